package store

import (
	"fmt"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/query"
)

var inboxTable = newVersioned("an inbox item", "inbox", []string{
	"workspace_id", "item", "sort_key", "id", "kind", "task_id", "session_id", "digest", "created_at", "item_version", "version",
}, 2)

func scanInbox(r Row) (domain.InboxItem, error) {
	item := domain.InboxItem{
		WorkspaceID: r.Text(0), ID: r.Text(3), Kind: domain.InboxKind(r.Text(4)), TaskID: r.Text(5), SessionID: r.Text(6),
		State: domain.InboxPending, CreatedAt: nanoTime(r, 8), Version: domain.Version(r.Int(9)),
	}
	if n := copy(item.Digest[:], r.Bytes(7)); n != len(contract.Digest{}) {
		return domain.InboxItem{}, fmt.Errorf("read inbox item %s: its digest has %d bytes", item.ID, n)
	}
	return item, nil
}

// inboxName is the key of an item in its workspace.
func inboxName(kind domain.InboxKind, id string) string { return string(kind) + "/" + id }

// setInbox puts an item, or replaces it where it says something else.
func (t *tx) setInbox(item domain.InboxItem) error {
	item.CreatedAt = item.CreatedAt.UTC()
	var old domain.InboxItem
	found := false
	name := inboxName(item.Kind, item.ID)
	err := t.query("read an inbox item", `SELECT `+inboxTable.columns+` FROM inbox WHERE workspace_id = $1 AND item = $2`,
		func(r Row) (err error) { old, err = scanInbox(r); found = true; return err }, t.workspace, name)
	if err != nil || found && old == item {
		return err
	}
	t.domain = true
	args := []any{
		t.workspace, name, query.InboxKey(item), item.ID, string(item.Kind), item.TaskID, item.SessionID, item.Digest[:],
		nanos(item.CreatedAt), int64(item.Version), int64(t.writing()),
	}
	if found {
		return t.replaceRow(inboxTable, inboxTable.update, args)
	}
	return t.insertRow(inboxTable, args)
}

// dropInbox takes an item out, if it is there.
func (t *tx) dropInbox(kind domain.InboxKind, id string) error {
	t.domain = true
	return t.removeRow(inboxTable, t.workspace, inboxName(kind, id))
}

// Inbox implements query.InboxSnapshot.
func (s *snapshot) Inbox(workspaceID string, filter query.InboxFilter, asOf domain.Version, after string, limit int) ([]domain.InboxItem, error) {
	q := &streams{columns: inboxTable.columns, order: "sort_key"}
	q.and("sort_key > ?", after)
	if filter.SessionID != "" {
		q.and("session_id = ?", filter.SessionID)
	}
	if filter.TaskID != "" {
		q.and("task_id = ?", filter.TaskID)
	}
	return listStreams(s, q, "inbox", workspaceID, asOf, limit, scanInbox, query.InboxKey)
}
