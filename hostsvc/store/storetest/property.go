package storetest

import (
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/fence"
	"github.com/kandev/plugin-host/hostsvc/store"
)

// epochModel is what a store says of whose it is and since when, and of two
// rows.
type epochModel struct {
	cluster  string
	epoch    uint64
	complete bool
	// leased: until when, by the suite's clock.
	leased time.Time
	beat   uint64
	rows   map[string]*rowModel
	// dead: the rows' installation is another cluster's.
	dead bool
}

type rowModel struct {
	revision           uint64
	starting, held, on bool
}

// shrinkable reports to a run of rapid what a test reports.
type shrinkable struct {
	testing.TB
	run *rapid.T
}

// Error implements testing.TB.
func (s shrinkable) Error(args ...any) { s.run.Error(args...) }

// Errorf implements testing.TB.
func (s shrinkable) Errorf(format string, args ...any) { s.run.Errorf(format, args...) }

// Fatal implements testing.TB.
func (s shrinkable) Fatal(args ...any) { s.run.Fatal(args...) }

// Fatalf implements testing.TB.
func (s shrinkable) Fatalf(format string, args ...any) { s.run.Fatalf(format, args...) }

// RunEpochs drives a store through claims, epochs, terms, rounds, fences,
// holds and restarts in any order and compares it with a model of what each of
// them is to do. It needs an engine whose clock is the process's.
func RunEpochs(t *testing.T, fresh func(t testing.TB) Database) {
	t.Helper()
	// A run makes files and opens them again and again: fewer than the usual
	// number, unless the command line says how many.
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		if err := checks.Value.Set("15"); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		d := fresh(t)
		c := newClock()
		start := func() *world {
			w := openAt(shrinkable{t, r}, d.Open(t), c.Now)
			w.clock = c
			return w
		}
		w := start()
		defer func() { w.must(w.Close()) }()
		w.seed("w", 0)
		w.seed("v", 0)
		m := &epochModel{epoch: 1, rows: map[string]*rowModel{"w": {}, "v": {}}}
		var terms []fence.Term
		var rounds []store.Round
		lead := func() {
			term, err := w.Lead(t.Context())
			w.must(err)
			terms = append(terms, term)
			if term.StoreEpoch != m.epoch {
				r.Fatalf("leads in store epoch %d, want %d", term.StoreEpoch, m.epoch)
			}
		}
		newEpoch := func() {
			m.epoch++
			m.complete, m.leased = false, time.Time{}
			for _, row := range m.rows {
				row.starting = row.starting || row.revision > 0
			}
			lead()
		}
		lead()
		inForce := func(term fence.Term) bool { return term == terms[len(terms)-1] }
		anyTerm := func() fence.Term { return terms[rapid.IntRange(max(0, len(terms)-3), len(terms)-1).Draw(r, "term")] }
		anyRow := func() (string, *rowModel) {
			name := rapid.SampledFrom([]string{"w", "v"}).Draw(r, "row")
			return name, m.rows[name]
		}
		n := 0
		r.Repeat(map[string]func(*rapid.T){
			"claim": func(r *rapid.T) {
				cluster := rapid.SampledFrom([]string{"a", "b"}).Draw(r, "cluster")
				from := rapid.SampledFrom([]string{"", "a", "b"}).Draw(r, "adoptFrom")
				// A process is of one cluster.
				w.must(w.Close())
				w = start()
				m.leased = time.Time{}
				err := w.Claim(t.Context(), cluster, from)
				switch {
				case m.cluster == "" || m.cluster == cluster:
					w.must(err)
					m.cluster = cluster
				case from == m.cluster:
					w.must(err)
					m.cluster = cluster
					for _, row := range m.rows {
						m.dead = m.dead || row.revision > 0
						row.held = row.held || row.revision > 0
					}
					newEpoch()
				default:
					w.wantErr("another's claim", err, store.ErrOtherCluster)
				}
			},
			"begin an epoch": func(*rapid.T) {
				w.must(w.BeginEpoch(t.Context()))
				newEpoch()
			},
			"lead": func(*rapid.T) { lead() },
			"complete": func(*rapid.T) {
				term := anyTerm()
				err := w.Complete(t.Context(), term)
				if !inForce(term) {
					w.wantErr("complete of another term", err, fence.ErrDeposed)
					return
				}
				w.must(err)
				m.complete = true
			},
			"begin a round": func(*rapid.T) { rounds = append(rounds, w.round()) },
			"renew": func(r *rapid.T) {
				if len(rounds) == 0 {
					return
				}
				round := rounds[rapid.IntRange(max(0, len(rounds)-3), len(rounds)-1).Draw(r, "round")]
				life := time.Duration(rapid.IntRange(1, 60).Draw(r, "life")) * time.Second
				beat, err := w.RenewLease(t.Context(), round, life)
				if round.StoreEpoch != m.epoch {
					w.wantErr("a round of another epoch", err, fence.ErrDeposed)
					return
				}
				w.must(err)
				m.beat++
				if until := round.Begun.Add(life); until.After(m.leased) {
					m.leased = until
				}
				if beat != m.beat {
					r.Fatalf("beat %d, want %d", beat, m.beat)
				}
			},
			"time passes": func(r *rapid.T) { c.advance(time.Duration(rapid.IntRange(1, 40).Draw(r, "seconds")) * time.Second) },
			"fence": func(*rapid.T) {
				name, row := anyRow()
				term := anyTerm()
				from := w.row(name)
				err := w.Fence(t.Context(), term, from, activeRow(key(name), from.Revision+1))
				switch {
				case !inForce(term):
					w.wantErr("a fence of another term", err, fence.ErrDeposed)
				case m.dead:
					w.wantErr("a fence to Active", err, store.ErrTombstoned)
				default:
					w.must(err)
					*row = rowModel{revision: row.revision + 1, on: true}
				}
			},
			"hold": func(*rapid.T) {
				name, row := anyRow()
				if row.revision == 0 {
					return
				}
				held, err := w.Hold(t.Context(), w.row(name), authority.Hold{State: authority.StateRevoked, Cause: authority.CauseUninstalled})
				w.must(err)
				row.held = true
				if held.Starting != row.starting {
					r.Fatalf("a hold left the row %+v", held)
				}
			},
			"restart": func(*rapid.T) {
				w.must(w.Close())
				w = start()
				m.leased = time.Time{} // the clock that it counted by has ended
			},
			"write": func(*rapid.T) {
				name, row := anyRow()
				n++
				id := fmt.Sprint(n)
				now := c.Now()
				want := m.complete && now.Before(m.leased) && row.on && !row.held && !row.starting
				refused := errors.New("refused")
				err := w.Write(t.Context(), name, func(tx command.Tx) error {
					locked, err := tx.AuthorityRow(key(name))
					if err != nil {
						return err
					}
					if locked == nil || !tx.Current() || locked.Effective(now) == 0 {
						return refused
					}
					return insertTask(name, id)(tx)
				})
				if want {
					w.must(err)
				} else {
					w.wantErr("a write that nothing authorises", err, refused)
				}
			},
			"": func(r *rapid.T) {
				for name, want := range m.rows {
					row := w.row(name)
					if row.Revision != want.revision || row.Starting != want.starting || (row.Hold != nil) != want.held {
						r.Fatalf("the row of %s is %+v, want %+v", name, row, want)
					}
					plain, err := w.AuthorityRow(t.Context(), key(name))
					w.must(err)
					if want.revision > 0 && (plain == nil || plain.Starting != want.starting || (plain.Hold != nil) != want.held) {
						r.Fatalf("before the lock, the row of %s is %+v, want %+v", name, plain, want)
					}
				}
				if round := w.round(); round.StoreEpoch != m.epoch || round.Complete != m.complete || round.Beat != m.beat ||
					!round.LeasedUntil.Equal(m.leased) {
					r.Fatalf("a round begins with %+v, want %+v", round, m)
				}
			},
		})
	})
}
