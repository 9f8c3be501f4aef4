package storetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/legacy"
	"github.com/kandev/plugin-host/hostsvc/query"
	"github.com/kandev/plugin-host/hostsvc/store"
)

// tamper changes the database behind the store's back.
func tamper(t *testing.T, d Database, statement string, args ...any) {
	t.Helper()
	engine := d.Open(t)
	defer func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	}()
	tx, err := engine.Begin(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	n, err := tx.Exec(statement, args...)
	if err := errors.Join(err, tx.Commit()); err != nil || n != 1 {
		t.Fatalf("tamper: %d rows, %v", n, err)
	}
}

func testTampering(t *testing.T, d Database) {
	w := open(t, d)
	recorder := journal.NewRecorder(w, "p", time.Now)
	for _, workspace := range []string{"whole", "changed", "removed", "cut", "moved"} {
		w.seed(workspace, 0)
		for i := range 4 {
			w.must(w.Write(t.Context(), workspace, insertTask(workspace, fmt.Sprint(i))))
		}
	}
	for range 3 {
		w.must(recorder.Append(t.Context(), journal.Receipt{AuditID: "a", InstallationID: "i", Result: contract.StateApplied, At: w.clock.Now()}))
	}
	w.must(recorder.Close(t.Context()))
	w.receipts("q", 2)
	w.close()
	tamper(t, d, `UPDATE journal SET result = 'NO_CHANGE' WHERE workspace_id = $1 AND version = 3`, "changed")
	tamper(t, d, `DELETE FROM journal WHERE workspace_id = $1 AND version = 3`, "removed")
	tamper(t, d, `DELETE FROM journal WHERE workspace_id = $1 AND version = 5`, "cut")
	tamper(t, d, `UPDATE heads SET hash = previous_hash FROM journal WHERE heads.workspace_id = $1
		AND journal.workspace_id = heads.workspace_id AND journal.version = heads.version`, "moved")
	tamper(t, d, `UPDATE segments SET receipts = 7 WHERE chain = $1 AND idx = 2`, "reads/p")
	tamper(t, d, `UPDATE segments SET at = at + 1 WHERE chain = $1 AND idx = 2`, "reads/q")

	w = open(t, d)
	for workspace, want := range map[string]*journal.ChainError{
		"whole":   nil,
		"changed": {Chain: "changed", At: 3, Detail: "changed"},
		"removed": {Chain: "removed", At: 3, Detail: "missing"},
		"cut":     {Chain: "cut", At: 5, Detail: "missing"},
		"moved":   {Chain: "moved", At: 5, Detail: "changed"},
	} {
		_, err := journal.VerifyWorkspace(t.Context(), w, workspace)
		var got *journal.ChainError
		errors.As(err, &got)
		if !reflect.DeepEqual(got, want) || (want == nil && err != nil) {
			t.Errorf("workspace %s: verified with %v, want %v", workspace, err, want)
		}
	}
	chains, err := w.Chains(t.Context())
	w.must(err)
	if len(chains) != 2 || chains[0].Index != 3 || chains[1].Index != 2 {
		t.Fatalf("the chains are %+v", chains)
	}
	for _, chain := range chains {
		_, err = journal.VerifyReceipts(t.Context(), w, chain)
		var broken *journal.ChainError
		if !errors.As(err, &broken) || broken.At != 2 {
			t.Errorf("the receipts of chain %s verified with %v", chain.Name, err)
		}
	}
}

func testReceipts(t *testing.T, d Database) {
	w := open(t, d)
	recorder := journal.NewRecorder(w, "p", w.clock.Now)
	var wait sync.WaitGroup
	for i := range 300 {
		wait.Go(func() {
			result := contract.StateApplied
			if i%3 == 0 {
				result = contract.StateDenied
			}
			err := recorder.Append(t.Context(), journal.Receipt{
				AuditID: fmt.Sprint(i), InstallationID: fmt.Sprintf("i%d", i%2), Result: result, At: w.clock.Now(),
			})
			if err != nil {
				t.Errorf("append: %v", err)
			}
		})
	}
	wait.Wait()
	w.must(recorder.Close(t.Context()))
	w.close()
	w = open(t, d)
	chains, err := w.Chains(t.Context())
	w.must(err)
	counts := map[string]int{}
	for _, chain := range chains {
		counts[chain.Name], err = journal.VerifyReceipts(t.Context(), w, chain)
		w.must(err)
	}
	if want := map[string]int{"reads/p": 200, "refusals/p/i0": 50, "refusals/p/i1": 50}; !reflect.DeepEqual(counts, want) {
		t.Errorf("the chains hold %v, want %v", counts, want)
	}
}

func testInstallations(t *testing.T, d Database) {
	w := open(t, d)
	ids := make([]string, 8)
	var wait sync.WaitGroup
	for i := range ids {
		wait.Go(func() {
			var err error
			if ids[i], err = w.RecordInstallation(t.Context(), "uid-1", "plugin"); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	other, err := w.RecordInstallation(t.Context(), "uid-2", "plugin")
	w.must(err)
	w.close()
	w = open(t, d)
	again, err := w.RecordInstallation(t.Context(), "uid-1", "renamed")
	w.must(err)
	for _, id := range slices.Concat(ids, []string{again}) {
		if _, err := uuid.Parse(id); err != nil || id != ids[0] || id == other {
			t.Errorf("the installation's ID is %q, %q, that of another object %q", ids[0], id, other)
		}
	}
	w.must(w.AdoptInstallation(t.Context(), "uid-3", "plugin", "33333333-3333-4333-8333-333333333333"))
	w.must(w.AdoptInstallation(t.Context(), "uid-3", "plugin", "33333333-3333-4333-8333-333333333333"))
	adopted, err := w.RecordInstallation(t.Context(), "uid-3", "plugin")
	w.must(err)
	if adopted != "33333333-3333-4333-8333-333333333333" {
		t.Errorf("the adopted ID reads as %s", adopted)
	}
	w.wantErr("another ID for the object", w.AdoptInstallation(t.Context(), "uid-3", "plugin", uuid.NewString()), store.ErrInstallationKnown)
	w.wantErr("another object for the ID", w.AdoptInstallation(t.Context(), "uid-4", "plugin", adopted), store.ErrInstallationKnown)
}

func testBindings(t *testing.T, d Database) {
	w := open(t, d)
	first, err := w.Bind(t.Context(), "w", "namespace-1", "uid-1")
	w.must(err)
	if first.Namespace != "namespace-1" || first.NamespaceUID != "uid-1" || first.WorkspaceID != "w" {
		t.Errorf("bound %+v", first)
	}
	second, err := w.Bind(t.Context(), "w", "namespace-2", "uid-2")
	w.must(err)
	if !reflect.DeepEqual(second, first) {
		t.Errorf("a second namespace got %+v, want the first binding", second)
	}
	if n := len(w.entries("w")); n != 1 {
		t.Errorf("%d entries, want the binding's alone", n)
	}
	w.seed("v", 1)
	_, err = w.Bind(t.Context(), "v", "namespace-2", "uid-2")
	w.must(err)
	var got [2]domain.Workspace
	w.must(w.Read(t.Context(), func(s query.Snapshot) error {
		for i, id := range []string{"w", "v"} {
			newest, _, err := s.Head(id)
			if err != nil {
				return err
			}
			workspace, found, err := s.Workspace(id, newest)
			if err != nil || !found {
				return errors.Join(err, fmt.Errorf("workspace %s found: %t", id, found))
			}
			got[i] = workspace
		}
		return nil
	}))
	if got[0].Name != "w" || got[0].Version != 1 || got[1].Name != "Workspace" {
		t.Errorf("the workspaces are %+v", got)
	}
	bound := make([]store.Binding, 8)
	var wait sync.WaitGroup
	for i := range bound {
		wait.Go(func() {
			var err error
			if bound[i], err = w.Bind(t.Context(), "race", "n", fmt.Sprintf("uid-%d", i)); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	w.close()
	w = open(t, d)
	all, err := w.Bindings(t.Context())
	w.must(err)
	if len(all) != 3 || all[0].WorkspaceID != "race" || all[1].NamespaceUID != "uid-2" || !reflect.DeepEqual(all[2], first) {
		t.Errorf("the bindings are %+v", all)
	}
	for _, b := range bound {
		if !reflect.DeepEqual(b, all[0]) {
			t.Errorf("one caller got %+v, in force is %+v", b, all[0])
		}
	}
}

func testRestart(t *testing.T, d Database) {
	w := open(t, d)
	w.seed("w", 2)
	w.must(w.Seed(t.Context(), "bare", func(store.SeedTx) error { return nil }))
	w.grant("w")
	w.must(w.Write(t.Context(), "w", touch("w", taskID(0), "touched", "k")))
	type state struct {
		entries   []journal.Entry
		epochs    string
		task      domain.Task
		old       []domain.Task
		flows     []domain.Workflow
		steps     []domain.WorkflowStep
		workspace domain.Workspace
		bare      domain.Workspace
	}
	take := func(w *world) (s state) {
		t.Helper()
		s.entries = w.entries("w")
		epochs, err := w.Epochs(t.Context())
		w.must(err)
		s.epochs = fmt.Sprint(epochs.StoreID, epochs.StoreEpoch)
		w.must(w.Read(t.Context(), func(snap query.Snapshot) error {
			var errs [6]error
			s.task, _, _, errs[0] = snap.Task("w", taskID(0))
			s.old, errs[1] = snap.Tasks("w", query.TaskFilter{}, 1, "", 10)
			s.flows, errs[2] = snap.Workflows("w", 3, "", 10)
			s.steps, errs[3] = snap.WorkflowSteps("w", "flow-1", 3, "", 10)
			s.workspace, _, errs[4] = snap.Workspace("w", 1)
			s.bare, _, errs[5] = snap.Workspace("bare", 1)
			if snap.StoreEpoch() != epochs.StoreEpoch {
				t.Errorf("the snapshot is of store epoch %d", snap.StoreEpoch())
			}
			return errors.Join(errs[:]...)
		}))
		return s
	}
	before := take(w)
	if before.task.Title != "touched" || len(before.old) != 2 || before.old[0].Title != "Title of "+taskID(0) || len(before.flows) != 1 ||
		len(before.steps) != 1 || before.workspace.Name != "Workspace" || before.bare.Name != "bare" {
		t.Errorf("the state is %+v", before)
	}
	term := w.term
	w.close()
	w.wantErr("a write to a closed store", w.Write(context.Background(), "w", insertTask("w", "late")), store.ErrClosed)
	w = open(t, d)
	if after := take(w); !reflect.DeepEqual(after, before) {
		t.Errorf("before the restart\n%+v\nafter\n%+v", before, after)
	}
	if w.term.LeaderEpoch != term.LeaderEpoch+1 {
		t.Errorf("the term went from %+v to %+v", term, w.term)
	}
}

// A database of the first schema, with what a Host wrote into it, is brought up
// to date: its rows stay, and nothing is in force until they have been compared
// with the history.
func testFirstSchema(t *testing.T, d Database) {
	engine := d.Open(t)
	first, err := fs.ReadFile(engine.Migrations(), "0001_init.sql")
	if err != nil {
		t.Fatal(err)
	}
	tx, err := engine.Begin(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	sum := activeRow(key("w"), 3).Vector.Sum()
	err = errors.Join(tx.Script(string(first)), tx.Script(`CREATE TABLE schema_version (version bigint NOT NULL);
		INSERT INTO schema_version (version) VALUES (1);
		INSERT INTO store (id, store_id, store_epoch, leader_epoch) VALUES (1, 'the-store', 1, 7);
		INSERT INTO rooted (kind, chain, position, hash) VALUES ('entries', 'v', 2, 'h');`))
	_, failed := tx.Exec(`INSERT INTO authority (installation_id, workspace_id, revision, act, state, granted, declared,
		required, allowed, gates, starting, manifest_digest, vector_sum, vector, seen_uid, seen_generation, seen_gone,
		seen_revoked, actor, assurance, cause, reason, approved_by, audit_id, event_hash, unproven, store_epoch,
		leader_epoch, changes) VALUES ($1, 'w', 3, '3-abcdef', 1, 1, 1, 0, 1, 0, 0, $2, $3, '{"WorkspaceID":"w"}', 'uid',
		4, 0, 0, 'ann', 'Claimed', 'Human', '', 'ann', 'a', 'h', 1, 1, 7, 3)`, installation, testDigest, sum[:])
	if err := errors.Join(err, failed, tx.Commit(), engine.Close()); err != nil {
		t.Fatal(err)
	}

	w := openFresh(t, d.Open(t))
	row := w.row("w")
	if row.Revision != 3 || row.Starting || !row.Unproven || row.ApprovedBy != "ann" || row.ApprovedVia != "" || row.ConfirmedBy != "" {
		t.Errorf("the row is %+v", row)
	}
	if row.Seen.Generation != 4 || row.Seen.Recorded() {
		t.Errorf("the row says what the processed version asked for: %+v", row.Seen)
	}
	if round := w.round(); round.StoreID != "the-store" || round.StoreEpoch != 1 || round.Complete || round.Beat != 0 || w.current() {
		t.Errorf("a round begins with %+v", round)
	}
	w.term, err = Vouch(t.Context(), w.Store)
	w.must(err)
	if !w.current() || w.term.LeaderEpoch != 8 || w.uncompared("w") {
		t.Errorf("in term %+v the store vouches for its rows: %t, and leaves this one out: %t", w.term, w.current(), w.uncompared("w"))
	}
	if next := w.grant("w"); next.Revision != 4 {
		t.Errorf("the next revision is %d", next.Revision)
	}
}

// Who created the tasks of before is known from the entries of their creation; where
// there is none, nobody did.
func testCreators(t *testing.T, d Database) {
	const before = 10 // schemas that knew no creators
	engine := d.Open(t)
	tx, err := engine.Begin(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	names, err := fs.Glob(engine.Migrations(), "*.sql")
	for _, name := range names[:before] {
		script, unread := fs.ReadFile(engine.Migrations(), name)
		err = errors.Join(err, unread, tx.Script(string(script)))
	}
	err = errors.Join(err, tx.Script(`CREATE TABLE schema_version (version bigint NOT NULL)`))
	exec := func(text string, args ...any) {
		_, failed := tx.Exec(text, args...)
		err = errors.Join(err, failed)
	}
	exec(`INSERT INTO schema_version (version) VALUES ($1)`, int64(before))
	exec(`INSERT INTO store (id, store_id, store_epoch, leader_epoch) VALUES (1, 'the-store', 1, 7)`)
	for i, task := range []string{"by-v1", "imported"} {
		exec(`INSERT INTO tasks (workspace_id, id, workflow_id, workflow_step_id, position, title, description, state, priority,
			parent_id, labels, external_id, source, wip_admitted, queued_for_step_id, version)
			VALUES ('w', $1, 'f', 's', $2, 'T', '', 'TODO', 'medium', '', '', '', 'plugin:p', 1, '', 9)`, task, int64(i))
	}
	for version, entry := range [][2]string{{"task.created", "by-v1"}, {"task.updated", "imported"}, {"task.updated", "by-v1"}} {
		by := installation
		if version > 0 {
			by = "another"
		}
		exec(`INSERT INTO journal (workspace_id, version, kind, audit_id, installation_id, revision, method, capability, request_id,
			command_digest, result, target_id, before_version, after_version, event_type, event, at, previous_hash, hash)
			VALUES ('w', $1, 'command', 'a', $2, 0, 'M', '', '', $3, 'APPLIED', $4, '', '', $5, '{}', 1, '', '')`,
			int64(version+1), by, []byte{}, entry[1], entry[0])
	}
	if err := errors.Join(err, tx.Commit(), engine.Close()); err != nil {
		t.Fatal(err)
	}

	w := openFresh(t, d.Open(t))
	got := map[string]string{}
	w.must(w.Legacy().Read(t.Context(), func(s legacy.Snapshot) error {
		tasks, err := s.AllTasks(legacy.TaskFilter{}, 0, 10)
		for _, task := range tasks {
			got[task.ID] = task.CreatorInstallationID
		}
		return err
	}))
	if want := map[string]string{"by-v1": installation, "imported": ""}; !maps.Equal(got, want) {
		t.Errorf("the creators are %q, want %q", got, want)
	}
}

func testNewerSchema(t *testing.T, d Database) {
	open(t, d).close()
	tamper(t, d, `INSERT INTO schema_version (version) VALUES (99)`)
	s, err := store.Open(t.Context(), d.Open(t), store.Options{Now: time.Now, Log: slog.New(slog.DiscardHandler), Fatal: func(error) {}})
	if !errors.Is(err, store.ErrSchemaNewer) {
		t.Errorf("opened a newer database: %v, %v", s, err)
	}
}

// crashWriters is how many commands the crashing process has in flight.
const crashWriters = 8

// CrashWriter writes tasks to a store on engine and prints the ID of each one
// that was answered, until the process is killed.
func CrashWriter(engine store.Engine) error {
	s, err := store.Open(context.Background(), engine, store.Options{
		Now: time.Now, Log: slog.Default(), Fatal: func(err error) { fmt.Fprintln(os.Stderr, err); os.Exit(3) },
	})
	if err != nil {
		return err
	}
	recorder := journal.NewRecorder(s, uuid.NewString(), time.Now)
	failed := make(chan error)
	var mu sync.Mutex
	for i := range crashWriters {
		go func() {
			for n := 0; ; n++ {
				id := fmt.Sprintf("%d-%d", i, n)
				err := errors.Join(
					s.Write(context.Background(), "w", insertTask("w", id)),
					recorder.Append(context.Background(), journal.Receipt{AuditID: id, Result: contract.StateApplied}),
				)
				if err != nil {
					failed <- err
					return
				}
				mu.Lock()
				fmt.Println(id)
				mu.Unlock()
			}
		}()
	}
	return <-failed
}

func testCrash(t *testing.T, d Database) {
	process := d.Crash(t)
	process.Stderr = os.Stderr
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	var answered []string
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			break // what a kill cut off has no end of line
		}
		if err != nil {
			t.Fatal(err)
		}
		answered = append(answered, strings.TrimSpace(line))
		if len(answered) == 200 {
			if err := process.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = process.Wait() // killed
	if len(answered) < 200 {
		t.Fatalf("the process ended after %d answers", len(answered))
	}
	w := open(t, d)
	recorded := map[string]bool{}
	for _, e := range w.entries("w") {
		recorded[e.IdempotencyKey] = true
	}
	for _, id := range answered {
		if _, found := w.readTask("w", id); !found || !recorded[id] {
			t.Errorf("the answered command %s is lost: task %t, entry %t", id, found, recorded[id])
		}
	}
	chains, err := w.Chains(t.Context())
	w.must(err)
	receipts := 0
	for _, chain := range chains {
		n, err := journal.VerifyReceipts(t.Context(), w, chain)
		w.must(err)
		receipts += n
	}
	if receipts < len(answered) {
		t.Errorf("%d receipts are left of %d answered", receipts, len(answered))
	}
	w.must(w.Write(t.Context(), "w", func(tx command.Tx) error { return insertTask("w", "after the crash")(tx) }))
	w.entries("w")
}
