package storetest

import (
	"reflect"
	"testing"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

// A check refuses what a fence would refuse, and writes nothing.
func testCheck(t *testing.T, d Database) {
	w := open(t, d)
	w.must(w.Check(t.Context(), w.term, authority.Row{Key: key("w")}))
	row := w.grant("w")
	w.must(w.Check(t.Context(), w.term, row))
	w.wantErr("a row that has been fenced", w.Check(t.Context(), w.term, authority.Row{Key: key("w")}), fence.ErrOvertaken)
	held, err := w.Hold(t.Context(), row, revoked("approval-1", 2))
	w.must(err)
	w.wantErr("a row that has been held", w.Check(t.Context(), w.term, row), fence.ErrOvertaken)
	w.must(w.Check(t.Context(), w.term, held))
	if now := w.row("w"); !reflect.DeepEqual(now.Hold, held.Hold) || now.Revision != row.Revision {
		t.Errorf("checks made %+v of the row", now)
	}
	old := w.term
	w.term, err = w.Lead(t.Context())
	w.must(err)
	w.wantErr("a deposed leader", w.Check(t.Context(), old, held), fence.ErrDeposed)
	w.must(w.Check(t.Context(), w.term, held))
}
