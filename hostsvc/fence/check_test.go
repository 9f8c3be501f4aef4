package fence

import (
	"context"
	"testing"

	"github.com/kandev/plugin-host/hostsvc/authority"
)

func (c *controller) Check(_ context.Context, _ Term, from authority.Row) error {
	return c.m.overtaken(c, from)
}

// What an event says it has seen stands even where its fence is refused and the
// store is lost before the next: one that lacks a hold of what was read would bring
// back what that took away. So none is made of a row that has moved.
func TestI7_NoEventLacksAHoldOfWhatWasRead(t *testing.T) {
	m, c := leading(t, readTasks)
	m.manifest(digestOf(1)) // a reason for an event
	before(m, "read", func(*controller) error {
		m.edit(func(a *authority.Approval) { a.Revoked = true })
		m.edit(func(a *authority.Approval) { a.Revoked = false })
		return nil
	})
	m.runs(c)
	if applied := m.events[2].Applied; applied == nil || applied.State != authority.StateRevoked {
		t.Errorf("the event of revision 2 has seen %+v and applied %+v", m.events[2].Row.Seen, applied)
	}
	if m.row.Effective(m.now) != 0 {
		t.Errorf("what was revoked and healed stands: %+v", m.row)
	}
}
