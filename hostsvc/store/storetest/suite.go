// Package storetest is the suite that every database passes: the store's rules
// as tests named after the invariants they hold. store/sqlite and
// store/postgres run it with real databases.
//
// It imports the store and the packages whose ports it implements.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/fence"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/store"
)

// Database is one database of a test.
type Database struct {
	// Open opens the database; every call the same one.
	Open func(t testing.TB) store.Engine
	// Crash is a process that calls CrashWriter on the database.
	Crash func(t testing.TB) *exec.Cmd
}

// Run runs the suite; fresh makes an empty database.
func Run(t *testing.T, fresh func(t testing.TB) Database) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Database)
	}{
		{"I3_RevisionsNeverRepeat", testRevisions},
		{"I3_OneOfManyFencesWins", testFenceRace},
		{"I5_NoCommitUnderTheOldRevision_16", func(t *testing.T, d Database) { testFenceUnderLoad(t, d, 16) }},
		{"I5_NoCommitUnderTheOldRevision_48", func(t *testing.T, d Database) { testFenceUnderLoad(t, d, 48) }},
		{"I5_Linearizable", func(t *testing.T, d Database) { testLinearizable(t, open(t, d)) }},
		{"I5_LinearizableWhileTheLeaseEnds", func(t *testing.T, d Database) { testLinearizableLease(t, openAt(t, d.Open(t), time.Now)) }},
		{"I5_RowBeforeTheLockIsCurrent", testRowBeforeLock},
		{"I5_DeposedLeader", testDeposed},
		{"I7_Check", testCheck},
		{"I5_LeaseAndCompleteEpoch", testLease},
		{"I5_LeaseRenewal", testRenewal},
		{"I5_NoCommitAfterTheLease", testLateCommit},
		{"I5_NoCommitAfterTheLeaseInRealTime", testLateCommitRealTime},
		{"I5_LeaseIsRenewedBesideCommands", testRenewalBesideCommands},
		{"I5_NoRowBeforeItIsCompared", testUncompared},
		{"I5_NoCommitAfterTheRowsReading", testLateCommitOfReading},
		{"I5_StoreEpoch", testStoreEpoch},
		{"I5_StoreEpochWaitsForWriters", testStoreEpochWaits},
		{"I7_OlderCopyUnderALeader", func(t *testing.T, d Database) { testOlderCopy(t, d) }},
		{"I5_OlderCopyKeepsItsLease", testOlderLease},
		{"I7_CopyOfAnEarlierEpoch", func(t *testing.T, d Database) { testOlderEpoch(t, d) }},
		{"I3_Claim", testClaim},
		{"I6_Adopt", testAdopt},
		{"I6_AdoptionGoesOnAfterAFault", testAdoptFaults},
		{"I7_Proof", testProof},
		{"I4_Archive", testArchive},
		{"I3_Rebind", testRebind},
		{"I6_Hold", func(t *testing.T, d Database) { testHold(t, d) }},
		{"I6_HoldOfProcessedVersion", testHoldProcessed},
		{"I6_HoldOvertaken", testHoldOvertaken},
		{"I6_Starting", testStarting},
		{"I7_StartingAppliesNoHoldTwice", testStartingAppliedHold},
		{"I7_Tombstone", testTombstone},
		{"SeenNeverGoesBack", testSeen},
		{"RowKeepsEveryField", testRowRoundTrip},
		{"I8_FaultAtEachStatement", testFaults},
		{"I8_UnknownOutcome", testUnknownOutcome},
		{"I8_DatabaseLost", testDatabaseLost},
		{"I8_CancelledCallerChangesNothingForNeighbours", testCancelledCaller},
		{"I8_PanicEndsOneCommand", testPanic},
		{"I8_RefusedCommandLeavesNothing", testRefused},
		{"I8_WriteWithoutEntry", testNoEntry},
		{"I8_CommitOrderHasNoGaps", testOrder},
		{"I9_Replay", testReplay},
		{"I10_ListsShowOneVersion", testLists},
		{"I10_ListsUnderConcurrentWrites", testListsConcurrently},
		{"I10_ListsOfManyTasksUnderLoad", testUnderLoad},
		{"I10_ConversationsShowOneVersion", testConversations},
		{"I10_ConversationsUnderConcurrentWrites", testConversationsConcurrently},
		{"I10_ConversationsPrune", testConversationsPrune},
		{"Conversations_NothingMisplaced", testMisplaced},
		{"I10_Prune", testPrune},
		{"SlotsAndPositions", testSlots},
		{"RowsKeepEveryField", testRowsKeepEveryField},
		{"I10_RelationsShowOneVersion", testRelations},
		{"PendingTransitions", testPendingTransitions},
		{"WIP_NeverMoreThanTheLimit", testWIP},
		{"WIP_NeverMoreThanTheLimitAtOnce", testWIPConcurrently},
		{"WIP_PromotionIsOfTheMove", testPromotion},
		{"C2_QueuedIsPending", testSlotMoves},
		{"C2_ExpiredSlotMove", testExpiredSlotMove},
		{"C2_PromotionInPlaceKeepsMoves", testPromotionInPlaceKeepsMoves},
		{"C2_SeedSlotMoves", testSeedSlotMoves},
		{"DependencyEventsAreOfTheCommand", testDependencyEvents},
		{"DependencyEventsOfEveryCommand", testDependencyCommands},
		{"I10_PagesCostTheSame", testPagesCostTheSame},
		{"C2_Guard", testGuard},
		{"I11_Sweep", testSweep},
		{"MoveDuringATurnWaits", testMoveDuringTurn},
		{"ChainShowsTampering", testTampering},
		{"Outbox_OneOrder", func(t *testing.T, d Database) { testOutbox(t, d) }},
		{"Outbox_OrderOfCommits", func(t *testing.T, d Database) { testOutboxCommits(t, d) }},
		{"Outbox_Since", testOutboxSince},
		{"Outbox_TailLosesNothing", func(t *testing.T, d Database) { testOutboxTail(t, open(t, d)) }},
		{"Outbox_CommitWakes", testOutboxWakes},
		{"ReceiptsAreDurableAndChained", testReceipts},
		{"Root_LinksWhatMoved", testRoots},
		{"Root_ManyChainsManyAtOnce", testRootsConcurrently},
		{"Retention_ProvesWhatIsLeft", testRetention},
		{"Retention_FaultLeavesNoGap", testRetentionFaults},
		{"Retention_BesideEverything", func(t *testing.T, d Database) { testRetentionConcurrently(t, open(t, d)) }},
		{"Installations", testInstallations},
		{"I3_Bindings", testBindings},
		{"ContextRevisionGrows", testContextRevision},
		{"RestartKeepsEverything", testRestart},
		{"CrashLosesNothingAnswered", testCrash},
		{"FirstSchemaIsBroughtUpToDate", testFirstSchema},
		{"CreatorsOfBeforeAreFound", testCreators},
		{"NewerSchemaIsRefused", testNewerSchema},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, fresh(t)) })
	}
	for _, test := range retentionTamperings {
		t.Run("Retention_"+test.name, func(t *testing.T) { test.run(t, fresh(t)) })
	}
	for _, test := range rootTamperings {
		t.Run("Root_"+test.name, func(t *testing.T) { test.run(t, fresh(t)) })
	}
}

// clock is the suite's clock: it moves only when told.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)} }

// Now is the clock's time.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// world is an open store with what tests do to it.
type world struct {
	*store.Store
	t   testing.TB
	now func() time.Time
	// clock is what now reads, nil for a real one.
	clock *clock
	term  fence.Term
	// beforeBatch, when set, is called by together when all commands wait.
	beforeBatch func()
}

func open(t testing.TB, d Database) *world { return openOn(t, d.Open(t)) }

func openOn(t testing.TB, engine store.Engine) *world {
	t.Helper()
	w := openFresh(t, engine)
	var err error
	w.term, err = Vouch(t.Context(), w.Store)
	w.must(err)
	return w
}

// openFresh opens a store as a Host does: nobody leads, and it vouches for
// nothing.
func openFresh(t testing.TB, engine store.Engine) *world {
	t.Helper()
	c := newClock()
	w := openAt(t, engine, c.Now)
	w.clock = c
	return w
}

func openAt(t testing.TB, engine store.Engine, now func() time.Time) *world {
	t.Helper()
	s, err := store.Open(t.Context(), engine, store.Options{
		Now: now, Log: slog.New(slog.DiscardHandler), Fatal: func(err error) { t.Errorf("the store ended the process: %v", err) },
	})
	if err != nil {
		t.Fatalf("open the store: %v", err)
	}
	w := &world{Store: s, t: t, now: now}
	t.Cleanup(func() { w.close() })
	return w
}

// leaseLife is longer than any test.
const leaseLife = 365 * 24 * time.Hour

// Vouch makes the store vouch for its rows for longer than any test, as the
// leader and the rounds of a Host do in short steps, and returns the term that
// it leads in. A store that is opened again needs it again.
func Vouch(ctx context.Context, s *store.Store) (fence.Term, error) {
	term, err := s.Lead(ctx)
	if err != nil {
		return term, fmt.Errorf("lead: %w", err)
	}
	if err := s.Complete(ctx, term); err != nil {
		return term, fmt.Errorf("complete the store epoch: %w", err)
	}
	round, err := s.BeginRound(ctx)
	if err != nil {
		return term, fmt.Errorf("begin a round: %w", err)
	}
	if _, err := s.RenewLease(ctx, round, leaseLife); err != nil {
		return term, fmt.Errorf("renew the lease: %w", err)
	}
	return term, nil
}

func (w *world) close() {
	w.t.Helper()
	if err := w.Close(); err != nil {
		w.t.Errorf("close the store: %v", err)
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) wantErr(what string, err, want error) {
	w.t.Helper()
	if !errors.Is(err, want) {
		w.t.Fatalf("%s: got error %v, want %v", what, err, want)
	}
}

const (
	installation = "11111111-1111-4111-8111-111111111111"
	step         = "step-1"
)

var testDigest = "v1:" + fmt.Sprintf("%064d", 7)

func key(workspace string) authority.Key {
	return authority.Key{InstallationID: installation, WorkspaceID: workspace}
}

func activeRow(k authority.Key, revision uint64) authority.Row {
	vector := authority.Vector{InstallationUID: "u", ManifestDigest: testDigest, WorkspaceID: k.WorkspaceID}
	return authority.Row{
		Key: k, Revision: revision, Act: authority.ActName(revision, "abcdef"), State: authority.StateActive,
		Granted: contract.AllCapabilities, Declared: contract.AllCapabilities, Allowed: contract.AllCapabilities,
		Vector: vector, Sum: vector.Sum(), Cause: authority.CauseHuman,
		Seen:    authority.Seen{UID: "approval-1", Generation: int64(revision)},
		AuditID: authority.AuditID(k, revision),
	}
}

// grant fences the workspace's row to the next revision, all granted.
func (w *world) grant(workspace string) authority.Row {
	w.t.Helper()
	w.fenceRead(workspace, 0)
	return w.row(workspace)
}

// row reads a row as it is stored, which doesn't say when.
func (w *world) row(workspace string) authority.Row {
	w.t.Helper()
	row, err := w.Row(w.t.Context(), key(workspace))
	w.must(err)
	if row.ReadAt.IsZero() {
		w.t.Fatalf("a row does not say when it was read: %+v", row)
	}
	row.ReadAt = time.Time{}
	return row
}

// seed makes a workspace with a workflow, a step and n tasks.
func (w *world) seed(workspace string, n int) {
	w.t.Helper()
	w.must(w.Seed(w.t.Context(), workspace, func(tx store.SeedTx) error {
		now := w.now()
		err := errors.Join(
			tx.Workspace(domain.Workspace{Name: "Workspace", CreatedAt: now, UpdatedAt: now}),
			tx.Workflow(domain.Workflow{ID: "flow-1", Name: "Flow", CreatedAt: now, UpdatedAt: now}),
			tx.WorkflowStep(domain.WorkflowStep{ID: step, WorkflowID: "flow-1", Name: "Work", Position: 1, StageType: "work", Start: true}),
		)
		for i := range n {
			err = errors.Join(err, tx.Task(task(workspace, taskID(i), int32(i))))
		}
		return err
	}))
}

func taskID(i int) string { return fmt.Sprintf("task-%05d", i) }

func task(workspace, id string, position int32) domain.Task {
	return domain.Task{
		ID: id, WorkspaceID: workspace, WorkflowID: "flow-1", WorkflowStepID: step, Position: position, Title: "Title of " + id,
		State: domain.TaskTodo, Priority: domain.PriorityMedium, Labels: []string{"a", "b\"c"}, WIPAdmitted: true,
		CreatedAt: time.Date(2026, 1, 1, 0, 0, 0, 1, time.UTC), UpdatedAt: time.Date(2026, 1, 1, 0, 0, 0, 1, time.UTC),
	}
}

// entry is the entry of a test's command.
func entry(workspace, idempotencyKey, target string) journal.Entry {
	return journal.Entry{
		WorkspaceID: workspace, Kind: journal.KindCommand, AuditID: uuid.NewString(), InstallationID: installation, Revision: 1,
		Method: "UpdateTaskExact", Capability: contract.WriteTasks.String(), IdempotencyKey: idempotencyKey,
		Result: contract.StateApplied, TargetID: target, EventType: "task.updated", Event: `{"a":"ä"}`,
		At: time.Date(2026, 1, 1, 0, 0, 0, 1, time.UTC),
	}
}

// insertTask is a command that inserts a task under its own ID as the
// idempotency key.
func insertTask(workspace, id string) func(command.Tx) error {
	return func(tx command.Tx) error {
		created := task(workspace, id, 0)
		created.Version = tx.Version()
		if err := tx.InsertTask(created); err != nil {
			return err
		}
		return tx.Append(entry(workspace, id, id))
	}
}

// touch is a command that changes a task's title.
func touch(workspace, id, title, idempotencyKey string) func(command.Tx) error {
	return func(tx command.Tx) error {
		current, found, err := tx.Task(id)
		if err != nil || !found {
			return errors.Join(err, fmt.Errorf("task %s found: %t", id, found))
		}
		current.Title, current.Version = title, tx.Version()
		if err := tx.UpdateTask(current); err != nil {
			return err
		}
		return tx.Append(entry(workspace, idempotencyKey, id))
	}
}

// entries reads the whole journal of a workspace and checks its order and its
// chain.
func (w *world) entries(workspace string) []journal.Entry {
	w.t.Helper()
	var all []journal.Entry
	for {
		page, err := w.Entries(w.t.Context(), workspace, domain.Version(len(all)), 100)
		w.must(err)
		if len(page) == 0 {
			break
		}
		all = append(all, page...)
	}
	for i, e := range all {
		if e.Version != domain.Version(i+1) {
			w.t.Fatalf("entry %d of workspace %s has version %d: a gap", i+1, workspace, e.Version)
		}
	}
	n, err := journal.VerifyWorkspace(w.t.Context(), w, workspace)
	w.must(err)
	if n != uint64(len(all)) {
		w.t.Fatalf("the chain of workspace %s has %d entries, the journal %d", workspace, n, len(all))
	}
	return all
}

// hold occupies the workspace until release is called, so that what is queued
// meanwhile shares the next commit.
func (w *world) hold(workspace string) (release func()) {
	w.t.Helper()
	begun, proceed := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		once := sync.OnceFunc(func() { close(begun) })
		done <- w.Write(context.WithoutCancel(w.t.Context()), workspace, func(command.Tx) error {
			once()
			<-proceed
			return nil
		})
	}()
	<-begun
	return func() {
		w.t.Helper()
		close(proceed)
		w.must(<-done)
	}
}

// together runs commands in one batch: they are queued in order behind a
// command that is held until all wait.
func (w *world) together(workspace string, fns ...func(command.Tx) error) []error {
	w.t.Helper()
	release := w.hold(workspace)
	errs := make([]error, len(fns))
	var wait sync.WaitGroup
	for i, fn := range fns {
		wait.Go(func() { errs[i] = w.Write(w.t.Context(), workspace, fn) })
		w.awaitQueued(i + 1)
	}
	if w.beforeBatch != nil {
		w.beforeBatch()
	}
	release()
	wait.Wait()
	return errs
}

// awaitQueued waits until n commands wait for their turn.
func (w *world) awaitQueued(n int) {
	w.t.Helper()
	await(w.t, fmt.Sprintf("%d commands to wait", n), func() bool { return w.Waiting() >= n })
}

// fixedView sees exactly what the row says.
type fixedView struct{ observed authority.Observed }

// Observe implements command.View.
func (v *fixedView) Observe(authority.Key) *authority.Observed { return &v.observed }

// executor runs real commands on the world's store.
func (w *world) executor(workspace string, receipts admission.Receipts) *command.Executor {
	return &command.Executor{
		Store: w, View: &fixedView{authority.Observed{Synced: true, Vector: activeRow(key(workspace), 1).Sum}}, Receipts: receipts,
		Now: w.clock.Now, NewID: func() string { return uuid.Must(uuid.NewV7()).String() }, NewAuditID: uuid.NewString,
	}
}

var updateMethod = admission.Method{Name: "UpdateTaskExact", Capability: contract.WriteTasks, Writer: true}

func envelope(workspace string, revision uint64, idempotencyKey string) admission.Envelope {
	return admission.Envelope{
		RequestID: uuid.NewString(), WorkspaceID: workspace, Revision: revision, IdempotencyKey: idempotencyKey,
		Guard: &admission.Guard{ExpectNone: true},
	}
}
