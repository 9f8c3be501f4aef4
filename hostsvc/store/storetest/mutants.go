package storetest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kandev/plugin-host/hostsvc/store"
)

// A mutant is the store on a real engine with one of its rules taken away. A
// test of the suite that passes on a mutant does not test that rule.
type mutant struct {
	name string
	// mutate takes the rule away from an engine, on which stores of one database
	// are opened.
	mutate func(store.Engine) store.Engine
	// test is the test of the suite that has to fail.
	test func(testing.TB, Database)
}

// RunMutants runs tests of the suite on mutants, for engines whose rules they
// break, and fails for those that are not noticed.
func RunMutants(t *testing.T, fresh func(t testing.TB) Database) {
	linear := func(t testing.TB, d Database) { testLinearizable(t, open(t, d), open(t, d)) }
	runMutants(t, fresh, append([]mutant{
		{"ForShareInsteadOfTheLock", sharing, testReplicasFence},
		{"ForShareInsteadOfTheLock_Linearizable", sharing, linear},
		{"NoLockButSerializable", func(e store.Engine) store.Engine { return isolated{e, "SERIALIZABLE", false} }, linear},
		{"LockUnderRepeatableRead", func(e store.Engine) store.Engine { return isolated{e, "REPEATABLE READ", true} }, linear},
		{"NoLock", func(e store.Engine) store.Engine { return isolated{e, "READ COMMITTED", false} }, linear},
		{"FenceThatDoesNotCompareTheHold", func(e store.Engine) store.Engine { return &forgetful{Engine: e, hold: true} }, testHold},
		{"FenceThatDoesNotCompareTheLeader", func(e store.Engine) store.Engine { return &forgetful{Engine: e} }, testReplicasLead},
		{"TermThatDoesNotCompareTheBeat", func(e store.Engine) store.Engine { return &beatless{Engine: e} }, testOlderCopy},
	}, postgresOutboxMutants...))
	t.Run("CallersContextInASharedCommit", func(t *testing.T) {
		whole := fresh(t)
		ctx, cancel := context.WithCancel(t.Context())
		Noticed(t, func(tb testing.TB) { cancelledCaller(tb, borrowed{whole.Open(tb), ctx}, ctx, cancel) })
	})
}

func runMutants(t *testing.T, fresh func(t testing.TB) Database, mutants []mutant) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			whole := fresh(t)
			mutated := Database{Open: func(tb testing.TB) store.Engine { tb.Helper(); return m.mutate(whole.Open(tb)) }}
			Noticed(t, func(tb testing.TB) { m.test(tb, mutated) })
		})
	}
}

// Noticed runs a test that has to fail, on something with a rule taken away.
func Noticed(t *testing.T, test func(testing.TB)) {
	t.Helper()
	j := &judge{TB: t}
	j.ctx, j.cancel = context.WithCancel(t.Context())
	found := make(chan []string)
	go func() {
		defer func() {
			j.mu.Lock()
			failures := slices.Clone(j.failures)
			j.mu.Unlock()
			j.end() // closing a mutant may fail too, and notices nothing
			found <- failures
		}()
		test(j)
	}()
	failures := <-found
	if len(failures) == 0 {
		t.Fatal("the test passes on the mutant")
	}
	t.Logf("noticed: %s", failures[0])
}

// judge is what a test that is to fail reports to.
type judge struct {
	testing.TB
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	failures []string
	cleanups []func()
}

// Context implements testing.TB.
func (j *judge) Context() context.Context { return j.ctx }

// Cleanup implements testing.TB.
func (j *judge) Cleanup(f func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cleanups = append(j.cleanups, f)
}

// end does what the end of a test does.
func (j *judge) end() {
	j.cancel()
	for {
		j.mu.Lock()
		n := len(j.cleanups)
		if n == 0 {
			j.mu.Unlock()
			return
		}
		last := j.cleanups[n-1]
		j.cleanups = j.cleanups[:n-1]
		j.mu.Unlock()
		last()
	}
}

func (j *judge) fail(text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failures = append(j.failures, strings.TrimSpace(text))
}

// Failed implements testing.TB.
func (j *judge) Failed() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.failures) > 0
}

// Helper implements testing.TB.
func (j *judge) Helper() {}

// Log implements testing.TB.
func (j *judge) Log(...any) {}

// Logf implements testing.TB.
func (j *judge) Logf(string, ...any) {}

// Fail implements testing.TB.
func (j *judge) Fail() { j.fail("failed") }

// FailNow implements testing.TB.
func (j *judge) FailNow() { j.Fail(); runtime.Goexit() }

// Error implements testing.TB.
func (j *judge) Error(args ...any) { j.fail(fmt.Sprintln(args...)) }

// Errorf implements testing.TB.
func (j *judge) Errorf(format string, args ...any) { j.fail(fmt.Sprintf(format, args...)) }

// Fatal implements testing.TB.
func (j *judge) Fatal(args ...any) { j.Error(args...); runtime.Goexit() }

// Fatalf implements testing.TB.
func (j *judge) Fatalf(format string, args ...any) { j.Errorf(format, args...); runtime.Goexit() }

// isolated leaves it to an isolation level, with the lock or without.
type isolated struct {
	store.Engine
	level  string
	locked bool
}

// Begin implements store.Engine.
func (e isolated) Begin(ctx context.Context, name string) (store.Transaction, error) {
	t, err := e.Engine.Begin(ctx, "")
	if err != nil {
		return nil, err
	}
	if _, err = t.Exec("SET TRANSACTION ISOLATION LEVEL " + e.level); err == nil && e.locked && name != "" {
		_, err = t.Exec("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", name)
	}
	if err != nil {
		t.Rollback()
		return nil, err
	}
	return t, nil
}

// sharing takes a shared lock of the authority row instead of the workspace's.
func sharing(e store.Engine) store.Engine { return shared{e} }

type shared struct{ store.Engine }

// Begin implements store.Engine.
func (e shared) Begin(ctx context.Context, _ string) (store.Transaction, error) {
	t, err := e.Engine.Begin(ctx, "")
	return sharedTransaction{t}, err
}

type sharedTransaction struct{ store.Transaction }

// Query implements store.Transaction.
func (t sharedTransaction) Query(statement string, row func(store.Row) error, args ...any) error {
	if strings.Contains(statement, "FROM authority a WHERE") {
		statement += " FOR SHARE"
	}
	return t.Transaction.Query(statement, row, args...)
}

// forgetful compares less in a fence: not the hold, or not the leader's epoch.
// It takes the epoch of the term that its own process led in for the one in
// force.
type forgetful struct {
	store.Engine
	hold bool

	mu   sync.Mutex
	mine int64
}

// Begin implements store.Engine.
func (e *forgetful) Begin(ctx context.Context, name string) (store.Transaction, error) {
	t, err := e.Engine.Begin(ctx, name)
	return &forgetfulTransaction{Transaction: t, engine: e, leads: name == "leader"}, err
}

type forgetfulTransaction struct {
	store.Transaction
	engine        *forgetful
	leads, fences bool
}

// LockShared implements store.Transaction.
func (t *forgetfulTransaction) LockShared(name string) error {
	t.fences = t.fences || name == "leader"
	return t.Transaction.LockShared(name)
}

// Query implements store.Transaction.
func (t *forgetfulTransaction) Query(statement string, row func(store.Row) error, args ...any) error {
	e := t.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.hold && t.fences && strings.Contains(statement, "FROM authority a CROSS JOIN store s"):
		return t.Transaction.Query(statement, func(r store.Row) error { return row(withoutHold{r}) }, args...)
	case !e.hold && t.leads && strings.HasPrefix(statement, "SELECT store_epoch, leader_epoch"):
		return t.Transaction.Query(statement, func(r store.Row) error { e.mine = r.Int(1); return row(r) }, args...)
	case !e.hold && t.fences && strings.HasPrefix(statement, "SELECT store_epoch, leader_epoch"):
		return t.Transaction.Query(statement, func(r store.Row) error { return row(withLeader{r, e.mine}) }, args...)
	}
	return t.Transaction.Query(statement, row, args...)
}

// beatless shows a term the beat that was renewed last, whatever the store's is.
type beatless struct {
	store.Engine
	renewed atomic.Int64
}

// Begin implements store.Engine.
func (e *beatless) Begin(ctx context.Context, name string) (store.Transaction, error) {
	t, err := e.Engine.Begin(ctx, name)
	return beatlessTransaction{t, e}, err
}

type beatlessTransaction struct {
	store.Transaction
	engine *beatless
}

// Query implements store.Transaction.
func (t beatlessTransaction) Query(statement string, row func(store.Row) error, args ...any) error {
	switch {
	case strings.HasPrefix(statement, "SELECT beat"):
		return t.Transaction.Query(statement, func(r store.Row) error { t.engine.renewed.Store(r.Int(0)); return row(r) }, args...)
	case strings.HasPrefix(statement, "SELECT store_epoch, leader_epoch, store_id, beat"):
		return t.Transaction.Query(statement, func(r store.Row) error { return row(withBeat{r, t.engine.renewed.Load()}) }, args...)
	}
	return t.Transaction.Query(statement, row, args...)
}

type withBeat struct {
	store.Row
	beat int64
}

// Int implements store.Row.
func (r withBeat) Int(column int) int64 {
	if column == 3 {
		return r.beat
	}
	return r.Row.Int(column)
}

// holdColumn is where the hold stands in a row of authority.
const holdColumn = 8

type withoutHold struct{ store.Row }

// Null implements store.Row.
func (r withoutHold) Null(column int) bool { return column == holdColumn || r.Row.Null(column) }

type withLeader struct {
	store.Row
	leader int64
}

// Int implements store.Row.
func (r withLeader) Int(column int) int64 {
	if column == 1 {
		return r.leader
	}
	return r.Row.Int(column)
}

// borrowed runs transactions under the context of one caller as long as that
// caller waits.
type borrowed struct {
	store.Engine
	caller context.Context
}

// Begin implements store.Engine.
func (e borrowed) Begin(ctx context.Context, name string) (store.Transaction, error) {
	if e.caller.Err() == nil {
		ctx = e.caller
	}
	return e.Engine.Begin(ctx, name)
}
