package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// root appends a root, which must find every chain whole.
func (w *world) root() journal.Root {
	w.t.Helper()
	root, err := w.AppendRoot(w.t.Context())
	w.must(err)
	return root
}

// receipts appends n segments of one receipt each to the chain "reads/" + name.
func (w *world) receipts(name string, n int) {
	w.t.Helper()
	recorder := journal.NewRecorder(w, name, w.clock.Now)
	for range n {
		w.must(recorder.Append(w.t.Context(), journal.Receipt{AuditID: "a", InstallationID: "i", Result: contract.StateApplied, At: w.clock.Now()}))
	}
	w.must(recorder.Close(w.t.Context()))
}

// write commits n entries in a workspace.
func (w *world) write(workspace string, n int) {
	w.t.Helper()
	for range n {
		w.must(w.Write(w.t.Context(), workspace, func(tx command.Tx) error {
			return tx.Append(entry(workspace, "", fmt.Sprint(tx.Version())))
		}))
	}
}

func testRoots(t *testing.T, d Database) {
	w := open(t, d)
	if root := w.root(); !reflect.DeepEqual(root, journal.Root{}) {
		t.Fatalf("a store without chains has the root %+v", root)
	}
	w.write("b", 2)
	w.write("a", 1)
	w.receipts("p", 3)
	named := func(root journal.Root) map[string]uint64 {
		heads, err := root.Heads()
		w.must(err)
		positions := map[string]uint64{}
		for _, head := range heads {
			positions[head.Chain] = head.Position
		}
		return positions
	}
	first := w.root()
	if want := map[string]uint64{"a": 1, "b": 2, "reads/p": 3}; first.Number != 1 || !reflect.DeepEqual(named(first), want) {
		t.Fatalf("root %d names %v, want %v", first.Number, named(first), want)
	}
	for range 2 {
		if again := w.root(); again.Number != 0 {
			t.Fatalf("nothing moved, and root %d was appended", again.Number)
		}
	}
	w.clock.advance(time.Minute)
	w.write("b", 1)
	second := w.root()
	if want := map[string]uint64{"b": 3}; second.Number != 2 || second.Previous != first.Hash || !reflect.DeepEqual(named(second), want) {
		t.Fatalf("root %d after %s names %v, want %v", second.Number, second.Previous, named(second), want)
	}
	w.close()

	w = open(t, d)
	if again := w.root(); again.Number != 0 {
		t.Fatalf("nothing but a restart, and root %d was appended", again.Number)
	}
	stored, err := w.Roots(t.Context(), 0, 100)
	w.must(err)
	for i, want := range []journal.Root{first, second} {
		if len(stored) != 2 || !stored[i].At.Equal(want.At) || stored[i].Hash != want.Hash || !bytes.Equal(stored[i].Body, want.Body) {
			t.Fatalf("stored %+v, want %+v and %+v", stored, first, second)
		}
	}
	if page, err := w.Roots(t.Context(), 1, 1); err != nil || len(page) != 1 || page[0].Number != 2 {
		t.Errorf("the roots after the first are %+v, %v", page, err)
	}
	newest, err := journal.VerifyRoots(t.Context(), w)
	w.must(err)
	if newest.Hash != second.Hash {
		t.Errorf("verified up to root %d", newest.Number)
	}
}

// statement changes one row behind the store's back.
type statement struct {
	text string
	args []any
}

// rootTampering is what is done to a store that has a chain of entries "w" and
// one of receipts "reads/p", of 4 each, and two roots: the first names both, the
// second another chain.
type rootTampering struct {
	name   string
	change func(w *world) []statement
	// want is what the verification finds.
	want journal.ChainError
	// appends tells that AppendRoot finds nothing: the chains are whole.
	appends bool
	// stuck tells that nothing can be written to "w" any more.
	stuck bool
}

var rootTamperings = []rootTampering{
	{name: "DeletedChain", change: func(*world) []statement {
		return append(deleteAll(`DELETE FROM journal WHERE workspace_id = $1 AND version = $2`, "w"),
			statement{`DELETE FROM heads WHERE workspace_id = $1`, []any{"w"}})
	}, want: journal.ChainError{Chain: "w", At: 4, Detail: "missing"}},
	{name: "DeletedHead", change: func(*world) []statement {
		return []statement{{`DELETE FROM heads WHERE workspace_id = $1`, []any{"w"}}}
	}, want: journal.ChainError{Chain: "w", At: 4, Detail: "missing"}, stuck: true},
	{name: "DeletedReceipts", change: func(*world) []statement {
		return append(deleteAll(`DELETE FROM segments WHERE chain = $1 AND idx = $2`, "reads/p"),
			statement{`DELETE FROM chains WHERE chain = $1`, []any{"reads/p"}})
	}, want: journal.ChainError{Chain: "reads/p", At: 4, Detail: "missing"}},
	{name: "CutTail", change: func(*world) []statement {
		return []statement{
			{`DELETE FROM journal WHERE workspace_id = $1 AND version = 4`, []any{"w"}},
			{`UPDATE heads SET version = 3, hash = (SELECT hash FROM journal WHERE workspace_id = $1 AND version = 3)
				WHERE workspace_id = $1`, []any{"w"}},
		}
	}, want: journal.ChainError{Chain: "w", At: 4, Detail: "missing"}},
	{name: "CutReceipts", change: func(*world) []statement {
		return []statement{
			{`DELETE FROM segments WHERE chain = $1 AND idx = 4`, []any{"reads/p"}},
			{`UPDATE chains SET idx = 3, hash = (SELECT hash FROM segments WHERE chain = $1 AND idx = 3) WHERE chain = $1`, []any{"reads/p"}},
		}
	}, want: journal.ChainError{Chain: "reads/p", At: 4, Detail: "missing"}},
	{name: "RewrittenChain", change: rewrite, want: journal.ChainError{Chain: "w", At: 4, Detail: "changed"}},
	{
		// Whoever knows of the roots makes the next one build on the rewritten
		// chain; the root that named the old one stays.
		name: "RewrittenChainRootedAgain", change: func(w *world) []statement {
			changes := rewrite(w)
			hash := changes[len(changes)-1].args[1]
			return append(changes, statement{`UPDATE rooted SET hash = $2 WHERE kind = 'entries' AND chain = $1`, []any{"w", hash}})
		}, want: journal.ChainError{Chain: "w", At: 4, Detail: "changed"}, appends: true,
	},
	{name: "MissingRoot", change: func(*world) []statement {
		return []statement{{`DELETE FROM roots WHERE number = $1`, []any{int64(1)}}}
	}, want: journal.ChainError{Chain: journal.RootsChain, At: 1, Detail: "missing"}, appends: true},
	{name: "MissingNewestRoot", change: func(*world) []statement {
		return []statement{{`DELETE FROM roots WHERE number = $1`, []any{int64(2)}}}
	}, want: journal.ChainError{Chain: journal.RootsChain, At: 2, Detail: "missing"}, appends: true},
	{name: "ChangedRoot", change: func(*world) []statement {
		return []statement{{`UPDATE roots SET body = $1 WHERE number = 1`, []any{[]byte("{}\n")}}}
	}, want: journal.ChainError{Chain: journal.RootsChain, At: 1, Detail: "changed"}, appends: true},
	{name: "ChangedTimeOfRoot", change: func(*world) []statement {
		return []statement{{`UPDATE roots SET at = at + 1 WHERE number = $1`, []any{int64(2)}}}
	}, want: journal.ChainError{Chain: journal.RootsChain, At: 2, Detail: "changed"}, appends: true},
	{
		// A root that takes a chain back, with every hash right.
		name: "RootGoesBack", change: func(w *world) []statement {
			roots, err := w.Roots(w.t.Context(), 0, 100)
			w.must(err)
			entries, err := w.Entries(w.t.Context(), "w", 2, 1)
			w.must(err)
			forged, err := journal.NewRoot(3, w.clock.Now(), []journal.Head{
				{Kind: journal.HeadOfEntries, Chain: "w", Position: 3, Hash: entries[0].Hash},
			})
			w.must(err)
			forged = forged.Link(roots[1].Hash)
			return []statement{
				{`INSERT INTO roots (number, at, previous_hash, hash, body) VALUES (3, $1, $2, $3, $4)`,
					[]any{forged.At.UnixNano(), forged.Previous, forged.Hash, forged.Body}},
				{`UPDATE rooted SET position = 3, hash = $1 WHERE kind = 'roots'`, []any{forged.Hash}},
			}
		}, want: journal.ChainError{Chain: "w", At: 3, Detail: "changed"}, appends: true,
	},
}

func deleteAll(text, chain string) (changes []statement) {
	for i := range int64(4) {
		changes = append(changes, statement{text, []any{chain, i + 1}})
	}
	return changes
}

// rewrite gives every entry of "w" another result, and the chain with its head
// the hashes that follow. The last statement's second argument is the head's.
func rewrite(w *world) (changes []statement) {
	hash := ""
	for _, e := range w.entries("w") {
		e.Result = contract.StateNoChange
		e = e.Link(hash)
		hash = e.Hash
		changes = append(changes, statement{
			`UPDATE journal SET result = $3, previous_hash = $4, hash = $5 WHERE workspace_id = $1 AND version = $2`,
			[]any{"w", int64(e.Version), string(e.Result), e.PreviousHash, e.Hash},
		})
	}
	return append(changes, statement{`UPDATE heads SET hash = $2 WHERE workspace_id = $1`, []any{"w", hash}})
}

func (c rootTampering) run(t *testing.T, d Database) {
	w := open(t, d)
	w.write("w", 4)
	w.receipts("p", 4)
	w.root()
	w.write("other", 1)
	w.root()
	_, err := journal.VerifyRoots(t.Context(), w)
	w.must(err)
	changes := c.change(w)
	w.close()
	for _, change := range changes {
		tamper(t, d, change.text, change.args...)
	}

	w = open(t, d)
	// What makes the roots worth it: the chains show nothing by themselves.
	_, err = journal.VerifyWorkspace(t.Context(), w, "w")
	w.must(err)
	check := func(when string, err error, want *journal.ChainError) {
		t.Helper()
		var got *journal.ChainError
		errors.As(err, &got)
		if !reflect.DeepEqual(got, want) || (want == nil && err != nil) {
			t.Errorf("%s: got %v, want %v", when, err, want)
		}
	}
	_, err = journal.VerifyRoots(t.Context(), w)
	check("verify", err, &c.want)
	// However the chain goes on, it stays found, and hides no other.
	for grown := range 3 {
		if grown > 0 && !c.stuck {
			w.write("w", 5)
			if c.want.Detail == "missing" && c.want.Chain == "w" {
				c.want.Detail = "changed" // something else is there now
			}
		}
		w.write("other", 1)
		root, err := w.AppendRoot(t.Context())
		heads, undecodable := root.Heads()
		w.must(undecodable)
		others := slices.ContainsFunc(heads, func(h journal.Head) bool { return h.Chain == "other" })
		broken := slices.ContainsFunc(heads, func(h journal.Head) bool { return h.Chain == c.want.Chain })
		if c.appends {
			check("append", err, nil)
		} else {
			check("append", err, &c.want)
			if broken {
				t.Errorf("root %d names the broken chain", root.Number)
			}
		}
		if !others {
			t.Errorf("root %d leaves the whole chain out", root.Number)
		}
		_, err = journal.VerifyRoots(t.Context(), w)
		check("verify again", err, &c.want)
	}
}

func testRootsConcurrently(t *testing.T, d Database) {
	w := open(t, d)
	const workspaces = 300 // more than one root names
	for i := range workspaces {
		w.write(fmt.Sprintf("w%03d", i), 1)
	}
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 3 {
				if _, err := w.AppendRoot(t.Context()); err != nil {
					t.Errorf("append: %v", err)
				}
			}
		})
	}
	for i := range 4 {
		wait.Go(func() {
			for n := range 20 {
				workspace := fmt.Sprintf("w%03d", i*50+n)
				err := w.Write(t.Context(), workspace, func(tx command.Tx) error { return tx.Append(entry(workspace, "", "x")) })
				if err != nil {
					t.Errorf("write: %v", err)
				}
			}
		})
	}
	wait.Wait()
	w.root()
	if root := w.root(); root.Number != 0 {
		t.Errorf("nothing moved, and root %d was appended", root.Number)
	}
	newest, err := journal.VerifyRoots(t.Context(), w)
	w.must(err)
	named := map[string]uint64{}
	roots, err := w.Roots(t.Context(), 0, 1000)
	w.must(err)
	for _, root := range roots {
		heads, err := root.Heads()
		w.must(err)
		for _, head := range heads {
			named[head.Chain] = head.Position
		}
	}
	if len(named) != workspaces || len(roots) < 2 || newest.Number != uint64(len(roots)) {
		t.Errorf("%d roots name %d chains", len(roots), len(named))
	}
	for workspace, position := range named {
		version, _, err := w.Head(t.Context(), workspace)
		w.must(err)
		if uint64(version) != position {
			t.Errorf("workspace %s is at %d, the roots name %d", workspace, version, position)
		}
	}
}
