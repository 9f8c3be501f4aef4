package store

import (
	"sync"

	"github.com/kandev/plugin-host/hostsvc/authority"
)

// known holds authority rows as they are committed, for the read before the
// lock: every command makes it, and a connection that has seen a commit since
// reads its pages again for it. It is used where this process is the only one
// that writes (Engine.Sole), and where nothing but refusing early depends on the
// row; what allows is read in the transaction of the effect (I5).
type known struct {
	mu   sync.RWMutex
	rows map[authority.Key]*authority.Row
	// moves counts the transactions that wrote a row.
	moves uint64
}

func newKnown() *known { return &known{rows: map[authority.Key]*authority.Row{}} }

// get returns a copy of a row, and otherwise nil and the moves so far, for put.
func (k *known) get(key authority.Key) (row *authority.Row, moves uint64) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if found := k.rows[key]; found != nil {
		copied := *found
		return &copied, k.moves
	}
	return nil, k.moves
}

// put keeps a row that was read after get, unless any row has moved since: it
// may be the one from before.
func (k *known) put(row authority.Row, moves uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.moves == moves {
		k.rows[row.Key] = &row
	}
}

// clear forgets every row: once no read can succeed any more, and where a
// transaction changes what all of them mean.
func (k *known) clear() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.moves++
	clear(k.rows)
}

// forget ends what is known of the rows that a transaction wrote, whatever
// became of it. It comes after COMMIT and before its answers, so that whoever
// has an answer finds nothing older.
func (k *known) forget(keys []authority.Key) {
	if len(keys) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.moves++
	for _, key := range keys {
		delete(k.rows, key)
	}
}
