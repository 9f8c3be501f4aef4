package storetest

import (
	"sync"
	"testing"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

// testRowBeforeLock reads the row as commands do before the lock, from several
// goroutines and while it moves: what a fence or a hold has returned from is
// there, and no reader ever goes back.
func testRowBeforeLock(t *testing.T, d Database) {
	w := open(t, d)
	ctx := t.Context()
	none, err := w.AuthorityRow(ctx, key("w"))
	if err != nil || none != nil {
		t.Fatalf("a row that does not exist reads as %+v, %v", none, err)
	}
	row := w.grant("w")
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for last := uint64(0); ; {
				select {
				case <-stop:
					return
				default:
				}
				seen, err := w.AuthorityRow(ctx, key("w"))
				if err != nil || seen == nil || seen.Revision < last {
					t.Errorf("after revision %d a reader sees %+v, %v", last, seen, err)
					return
				}
				last = seen.Revision
				seen.Granted = 0 // what one reader does with its row is nothing to another
			}
		})
	}
	end := sync.OnceFunc(func() { close(stop); readers.Wait() })
	defer end()
	for range 200 {
		row = w.grant("w")
		seen, err := w.AuthorityRow(ctx, key("w"))
		if err != nil || seen == nil || seen.Revision != row.Revision || seen.Granted != row.Granted {
			t.Fatalf("after the fence to %d the row reads as %+v, %v", row.Revision, seen, err)
		}
	}
	end()
	held, err := w.Hold(ctx, w.row("w"), authority.Hold{
		Granted: contract.CapabilitySet(0), State: authority.StateRevoked, Cause: authority.CauseHuman, UID: row.Seen.UID,
		Generation: row.Seen.Generation + 1,
	})
	w.must(err)
	seen, err := w.AuthorityRow(ctx, key("w"))
	if err != nil || seen == nil || seen.Hold == nil || held.Hold == nil {
		t.Errorf("after a hold the row reads as %+v, %v", seen, err)
	}
	w.close()
	if seen, err := w.AuthorityRow(ctx, key("w")); err == nil {
		t.Errorf("a closed store shows %+v", seen)
	}
}
