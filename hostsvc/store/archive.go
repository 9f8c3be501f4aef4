package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kandev/plugin-host/hostsvc/authority"
)

const (
	archiveLock = "archive"
	// archiveStep is how many events one transaction archives.
	archiveStep = 64
)

// Archive stores events that are about to be pruned from the API. It is durable
// on return, and does nothing for those it has. An event that does not match its
// own digest is refused, and so is a second one of a revision
// (ErrArchivedOtherwise); those before it in events are stored.
func (s *Store) Archive(ctx context.Context, events []authority.Event) error {
	for some := range slices.Chunk(events, archiveStep) {
		err := s.run(ctx, lockName{name: archiveLock}, false, func(t *tx) error {
			for _, event := range some {
				if err := t.archive(event); err != nil {
					return fmt.Errorf("archive event %s: %w", event.Name(), err)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) archive(event authority.Event) error {
	if err := event.Verify(); err != nil {
		return err
	}
	key, hash := event.Row.Key, event.Hash()
	archived := ""
	err := t.query("look for an archived event", `SELECT hash FROM approval_events
		WHERE installation_id = $1 AND workspace_id = $2 AND revision = $3`,
		func(r Row) error { archived = r.Text(0); return nil }, key.InstallationID, key.WorkspaceID, int64(event.Row.Revision))
	switch {
	case err != nil || archived == hash:
		return err
	case archived != "":
		return ErrArchivedOtherwise
	}
	document, err := json.Marshal(event) //nolint:musttag // stored under its fields' names
	if err != nil {
		return fmt.Errorf("encode it: %w", err)
	}
	_, err = t.exec("archive an event", `INSERT INTO approval_events
		(installation_id, workspace_id, revision, hash, document, archived_at) VALUES ($1, $2, $3, $4, $5, $6)`,
		key.InstallationID, key.WorkspaceID, int64(event.Row.Revision), hash, string(document), t.store.now().UnixNano())
	return err
}

// ArchivedEvents lists at most limit archived events of a key above a revision,
// in order. One that was changed since it was archived is an error.
func (s *Store) ArchivedEvents(ctx context.Context, key authority.Key, after uint64, limit int) ([]authority.Event, error) {
	var events []authority.Event
	err := s.read(ctx, "list the archived events", func(c Conn) error {
		return c.Query(`SELECT revision, hash, document FROM approval_events
			WHERE installation_id = $1 AND workspace_id = $2 AND revision > $3 ORDER BY revision LIMIT $4`,
			func(r Row) error {
				var event authority.Event
				if err := json.Unmarshal([]byte(r.Text(2)), &event); err != nil { //nolint:musttag // stored under its fields' names
					return fmt.Errorf("decode the event of revision %d: %w", r.Int(0), err)
				}
				if err := event.Verify(); err != nil {
					return err
				}
				if event.Row.Key != key || event.Row.Revision != uint64(r.Int(0)) || event.Hash() != r.Text(1) {
					return fmt.Errorf("the archived event of revision %d is another's", r.Int(0))
				}
				events = append(events, event)
				return nil
			}, key.InstallationID, key.WorkspaceID, int64(after), int64(limit))
	})
	if err != nil {
		return nil, err
	}
	return events, nil
}
