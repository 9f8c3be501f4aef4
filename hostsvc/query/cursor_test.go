package query

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
)

func key(b byte) []byte { return bytes.Repeat([]byte{b}, CursorKeySize) }

func cursors(tb testing.TB, keys ...[]byte) *Cursors {
	tb.Helper()
	c, err := NewCursors(keys...)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

var (
	testBinding  = Binding{InstallationID: "i", WorkspaceID: "w", Method: "ListTasksExact", Filter: contract.Digest{1}}
	testPosition = Position{StoreEpoch: 2, Revision: 7, Snapshot: 300, After: "task-9"}
)

func TestCursors_RoundTrip(t *testing.T) {
	c := cursors(t, key(1))
	for _, p := range []Position{
		testPosition, {}, {StoreEpoch: 1<<64 - 1, Revision: 1<<64 - 1, Snapshot: 1<<64 - 1},
		{After: "\x00\xff"}, {After: strings.Repeat("ä", contract.MaxIdentifierBytes/2)},
	} {
		cursor, err := c.Seal(testBinding, p)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.Open(testBinding, cursor); err != nil || got != p {
			t.Errorf("%+v opens as %+v, %v", p, got, err)
		}
		if len(cursor) > contract.MaxCursorBytes {
			t.Errorf("%d bytes", len(cursor))
		}
	}
	if _, err := c.Seal(testBinding, Position{After: strings.Repeat("a", contract.MaxCursorBytes)}); err == nil {
		t.Error("a cursor beyond the bound is sealed")
	}
}

// A cursor tells nothing of what it holds, and two of one position differ.
func TestI10_CursorsAreOpaque(t *testing.T) {
	c := cursors(t, key(1))
	a, _ := c.Seal(testBinding, testPosition)
	b, _ := c.Seal(testBinding, testPosition)
	raw, err := base64.RawURLEncoding.DecodeString(a)
	if err != nil || a == b || bytes.Contains(raw, []byte(testPosition.After)) {
		t.Errorf("%s and %s, %v", a, b, err)
	}
}

// A cursor of another list never opens.
func TestI10_CursorsAreBoundToTheirList(t *testing.T) {
	c := cursors(t, key(1))
	cursor, err := c.Seal(testBinding, testPosition)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Binding){
		"installation":      func(b *Binding) { b.InstallationID = "j" },
		"workspace":         func(b *Binding) { b.WorkspaceID = "x" },
		"method":            func(b *Binding) { b.Method = "ListWorkflowsExact" },
		"filter":            func(b *Binding) { b.Filter[31] ^= 1 },
		"fields run over":   func(b *Binding) { b.InstallationID, b.WorkspaceID = "iw", "" },
		"fields run over 2": func(b *Binding) { b.WorkspaceID, b.Method = "wL", "istTasksExact" },
		"nothing":           func(b *Binding) { *b = Binding{} },
	} {
		other := testBinding
		change(&other)
		if got, err := c.Open(other, cursor); !errors.Is(err, ErrCursor) || got != (Position{}) {
			t.Errorf("%s: opens as %+v, %v", name, got, err)
		}
	}
}

// The first key seals, every key opens, and a key that is dropped closes what
// it sealed.
func TestCursors_Rotation(t *testing.T) {
	old, both, next := cursors(t, key(1)), cursors(t, key(2), key(1)), cursors(t, key(2))
	before, _ := old.Seal(testBinding, testPosition)
	after, _ := both.Seal(testBinding, testPosition)
	for name, c := range map[string]struct {
		ring   *Cursors
		cursor string
		opens  bool
	}{
		"before, during": {both, before, true}, "during, during": {both, after, true},
		"before, after": {next, before, false}, "during, after": {next, after, true},
		"during, before": {old, after, false},
	} {
		got, err := c.ring.Open(testBinding, c.cursor)
		if (err == nil) != c.opens || c.opens && got != testPosition {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestNewCursors_RefusesBadKeys(t *testing.T) {
	for name, keys := range map[string][][]byte{
		"none": {}, "short": {key(1)[1:]}, "long": {append(key(1), 0)}, "second": {key(1), nil},
	} {
		if c, err := NewCursors(keys...); err == nil || c != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	a, err := NewCursorKey()
	b, err2 := NewCursorKey()
	if err != nil || err2 != nil || len(a) != CursorKeySize || bytes.Equal(a, b) {
		t.Errorf("drew %x and %x, %v, %v", a, b, err, err2)
	}
}

// A cursor that is altered in one bit never opens, whatever else it holds; and
// no text that was not sealed does.
func FuzzCursor(f *testing.F) {
	c := cursors(f, key(1), key(2))
	f.Add(uint64(1), uint64(2), uint64(3), "task", "i", "w", uint16(0), "")
	f.Add(uint64(0), uint64(0), uint64(0), "", "", "", uint16(77), "AAAA")
	f.Add(uint64(1)<<63, uint64(1), uint64(9), "\x00", "ä", "x", uint16(901), "\n")
	f.Fuzz(func(t *testing.T, epoch, revision, snapshot uint64, after, installation, workspace string, bit uint16, text string) {
		b := Binding{InstallationID: installation, WorkspaceID: workspace, Method: "ListTasksExact"}
		p := Position{StoreEpoch: epoch, Revision: revision, Snapshot: domain.Version(snapshot), After: after}
		cursor, err := c.Seal(b, p)
		if err != nil {
			if len(after) <= contract.MaxIdentifierBytes {
				t.Fatal(err)
			}
			return
		}
		if got, err := c.Open(b, cursor); err != nil || got != p {
			t.Fatalf("%+v opens as %+v, %v", p, got, err)
		}
		altered := []byte(cursor)
		at := int(bit) % (8 * len(altered))
		altered[at/8] ^= 1 << (at % 8)
		if got, err := c.Open(b, string(altered)); !errors.Is(err, ErrCursor) || got != (Position{}) {
			t.Errorf("bit %d altered: opens as %+v", at, got)
		}
		if got, err := c.Open(Binding{InstallationID: installation + "x", WorkspaceID: workspace, Method: "ListTasksExact"}, cursor); !errors.Is(err, ErrCursor) {
			t.Errorf("opens for another installation as %+v", got)
		}
		if got, err := c.Open(b, text); !errors.Is(err, ErrCursor) {
			t.Errorf("%q opens as %+v", text, got)
		}
		if got, err := c.Open(b, cursor[:len(cursor)-1]); !errors.Is(err, ErrCursor) {
			t.Errorf("cut: opens as %+v", got)
		}
	})
}
