package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/query"
)

// Bench measures what calls cost in the store: whole commands and whole reads,
// with what they do before and after it, but without RPC. Commands are
// compared with a bare transaction, an insert of 300 bytes and an update with
// a commit of their own: slices of both are interleaved, and x-bare is the
// median over the pairs of how many commands take the time of one bare
// transaction.
func Bench(b *testing.B, fresh func(t testing.TB) Database) {
	for _, inFlight := range []int{1, 16} {
		b.Run(fmt.Sprintf("write/%d", inFlight), func(b *testing.B) {
			w := open(b, fresh(b))
			w.seed("w", inFlight)
			w.grant("w")
			x := w.executor("w", nil) // nothing is refused
			versions := make([]string, inFlight)
			for i := range versions {
				versions[i] = "1.1"
			}
			write := func(worker, n int) error {
				title := fmt.Sprint(n)
				result, refusal := x.Run(b.Context(), installation, updateMethod, envelope("w", 1, uuid.NewString()),
					command.UpdateTask{TaskID: taskID(worker), ExpectedVersion: versions[worker], Patch: domain.TaskPatch{Title: &title}})
				if refusal != nil {
					return refusal
				}
				versions[worker] = result.Entry.After
				return nil
			}
			bare := openBare(b, fresh(b), inFlight)
			b.ReportAllocs()
			var ratios []float64
			for b.Loop() {
				const slice = 320
				ratios = append(ratios, float64(parallel(b, slice, inFlight, bare))/float64(parallel(b, slice, inFlight, write)))
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "x-bare")
		})
	}
	for _, receipts := range []bool{false, true} {
		b.Run(fmt.Sprintf("read/64/receipts=%t", receipts), func(b *testing.B) {
			w := open(b, fresh(b))
			w.seed("w", 100)
			w.grant("w")
			r := &query.Reader{
				Store: w, View: &fixedView{authority.Observed{Synced: true, Vector: activeRow(key("w"), 1).Sum}},
				Receipts: discard{}, Now: time.Now, NewAuditID: uuid.NewString,
			}
			if receipts {
				recorder := journal.NewRecorder(w, uuid.NewString(), time.Now)
				defer func() { w.must(recorder.Close(b.Context())) }()
				r.Receipts = recorder
			}
			method := admission.Method{Name: "GetTaskExact", Capability: contract.ReadTasks}
			b.ReportAllocs()
			b.ResetTimer()
			parallel(b, b.N, 64, func(worker, n int) error {
				_, _, refusal := r.Task(b.Context(), installation, method, admission.Envelope{RequestID: "r", WorkspaceID: "w"}, taskID((worker+n)%100))
				if refusal != nil {
					return refusal
				}
				return nil
			})
		})
	}
}

type discard struct{}

// Append implements admission.Receipts.
func (discard) Append(context.Context, journal.Receipt) error { return nil }

// parallel runs n calls, inFlight at a time, and returns how long they took.
func parallel(b *testing.B, n, inFlight int, call func(worker, n int) error) time.Duration {
	b.Helper()
	begun := time.Now()
	var next atomic.Int64
	var wait sync.WaitGroup
	for worker := range inFlight {
		wait.Go(func() {
			for i := 0; next.Add(1) <= int64(n); i++ {
				if err := call(worker, i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	return time.Since(begun)
}

// openBare returns the bare transaction that a command is compared with.
func openBare(b *testing.B, d Database, inFlight int) func(worker, n int) error {
	engine := d.Open(b)
	b.Cleanup(func() {
		if err := engine.Close(); err != nil {
			b.Error(err)
		}
	})
	tx, err := engine.Begin(b.Context(), "")
	if err != nil {
		b.Fatal(err)
	}
	err = tx.Script(`CREATE TABLE bare_log (n bigint PRIMARY KEY, body text NOT NULL);
		CREATE TABLE bare_row (n bigint PRIMARY KEY, body text NOT NULL);`)
	for i := range inFlight {
		_, failed := tx.Exec(`INSERT INTO bare_row (n, body) VALUES ($1, '')`, int64(i))
		err = errors.Join(err, failed)
	}
	if err := errors.Join(err, tx.Commit()); err != nil {
		b.Fatal(err)
	}
	body := strings.Repeat("x", 300)
	slots := make(chan struct{}, engine.Writers())
	var ids atomic.Int64
	return func(worker, _ int) error {
		slots <- struct{}{}
		defer func() { <-slots }()
		tx, err := engine.Begin(b.Context(), "")
		if err != nil {
			return err
		}
		_, err = tx.Exec(`INSERT INTO bare_log (n, body) VALUES ($1, $2)`, ids.Add(1), body)
		_, err2 := tx.Exec(`UPDATE bare_row SET body = $2 WHERE n = $1`, int64(worker), body)
		return errors.Join(err, err2, tx.Commit())
	}
}
