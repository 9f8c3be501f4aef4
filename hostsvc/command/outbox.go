package command

import (
	"encoding/json"
	"fmt"

	"github.com/kandev/plugin-host/hostsvc/journal"
)

// eventSchemaVersion is the version of the outbox events' envelope.
const eventSchemaVersion = 1

// describe writes the effect's outbox event into its entry. An event is a hint
// (I15): it names what changed and as of which version, and is never
// authority.
func describe(entry *journal.Entry, effect Effect) error {
	text, err := json.Marshal(struct {
		SchemaVersion      int    `json:"event_schema_version"`
		AuditID            string `json:"audit_id"`
		InstallationID     string `json:"installation_id"`
		WorkspaceID        string `json:"workspace_id"`
		CapabilityRevision uint64 `json:"capability_revision"`
		ResourceID         string `json:"resource_id"`
		ResourceVersion    string `json:"resource_version"`
		Data               any    `json:"data,omitempty"`
	}{
		eventSchemaVersion, entry.AuditID, entry.InstallationID, entry.WorkspaceID, entry.Revision,
		effect.TargetID, effect.After, effect.Event,
	})
	if err != nil {
		return fmt.Errorf("encode the event %s: %w", effect.EventType, err)
	}
	entry.EventType, entry.Event = effect.EventType, string(text)
	return nil
}
