package command

import (
	"fmt"

	"github.com/kandev/plugin-host/hostsvc/journal"
)

// describe writes the effect's outbox event into its entry, whose other fields say
// what changed and as of which version.
func describe(entry *journal.Entry, effect Effect) error {
	text, err := journal.EncodeEvent(effect.Event)
	if err != nil {
		return fmt.Errorf("%s: %w", effect.EventType, err)
	}
	entry.EventType, entry.Event = effect.EventType, text
	return nil
}
