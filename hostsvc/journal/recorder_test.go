package journal_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// The hand-written encoding is that of encoding/json, byte by byte.
func TestReceiptEncodesAsTheLibraryDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z0-9:._-]{0,20}`), rapid.Just("\x00\u2028<&>\"\\\xff\x7f"))
		r := journal.Receipt{
			AuditID: text.Draw(t, "audit"), InstallationID: text.Draw(t, "installation"), WorkspaceID: text.Draw(t, "workspace"),
			Revision: rapid.Uint64().Draw(t, "revision"), Method: text.Draw(t, "method"), Capability: text.Draw(t, "capability"),
			RequestID: text.Draw(t, "request"), IdempotencyKey: text.Draw(t, "key"), RequestDigest: text.Draw(t, "digest"),
			Result: contract.State(text.Draw(t, "result")), Reason: contract.Reason(text.Draw(t, "reason")),
			Snapshot: text.Draw(t, "snapshot"), Implicit: text.Draw(t, "implicit"),
			At: time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "s"), rapid.Int64Range(0, 999999999).Draw(t, "ns")).
				In(rapid.SampledFrom([]*time.Location{time.UTC, time.FixedZone("", 19800)}).Draw(t, "zone")),
		}
		if rapid.Bool().Draw(t, "provenance") {
			r.Provenance = &journal.Provenance{
				ConversationID: text.Draw(t, "conversation"), SessionID: text.Draw(t, "session"), GenerationTokenDigest: text.Draw(t, "token"),
			}
		}
		want, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.AppendJSON(nil); !bytes.Equal(got, want) {
			t.Fatalf("encoded\n%s, the library encodes\n%s", got, want)
		}
	})
}

// segments keeps what a recorder writes; gate, when set, holds each write
// until a value comes, which is its outcome.
type segments struct {
	mu   sync.Mutex
	kept []journal.Segment
	gate chan error
	// entered, when set, is told when a write begins.
	entered chan struct{}
}

func (s *segments) AppendSegments(_ context.Context, more []journal.Segment) error {
	if s.entered != nil {
		select {
		case s.entered <- struct{}{}:
		default:
		}
	}
	if s.gate != nil {
		if err := <-s.gate; err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, more...)
	return nil
}

func receipt(id, installation string, result contract.State) journal.Receipt {
	return journal.Receipt{AuditID: id, InstallationID: installation, WorkspaceID: "w", Method: "GetTaskExact", Result: result}
}

func TestRecorderChainsReadsPerProcessAndRefusalsPerInstallation(t *testing.T) {
	store := &segments{}
	r := journal.NewRecorder(store, "p1", time.Now)
	var wait sync.WaitGroup
	for i := range 200 {
		wait.Go(func() {
			result := contract.StateApplied
			if i%4 == 0 {
				result = contract.StateDenied
			}
			if err := r.Append(t.Context(), receipt(fmt.Sprintf("a%d", i), fmt.Sprintf("i%d", i%8), result)); err != nil {
				t.Errorf("append receipt %d: %v", i, err)
			}
		})
	}
	wait.Wait()
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Append(t.Context(), receipt("late", "i", contract.StateApplied)); !errors.Is(err, journal.ErrRecorderClosed) {
		t.Errorf("append after close: %v", err)
	}

	last, count := map[string]journal.Segment{}, map[string]int{}
	seen := map[string]bool{}
	for _, s := range store.kept {
		if s.Index != last[s.Chain].Index+1 || s.Previous != last[s.Chain].Hash {
			t.Fatalf("chain %s: segment %d after %d does not link", s.Chain, s.Index, last[s.Chain].Index)
		}
		if s.Link(s.Previous).Hash != s.Hash {
			t.Fatalf("chain %s: segment %d has another hash", s.Chain, s.Index)
		}
		last[s.Chain] = s
		count[s.Chain] += s.Count
		for line := range bytes.Lines(s.Body) {
			var got journal.Receipt
			if err := json.Unmarshal(line, &got); err != nil {
				t.Fatal(err)
			}
			seen[got.AuditID] = true
		}
	}
	want := map[string]int{"reads/p1": 150, "refusals/p1/i0": 25, "refusals/p1/i4": 25}
	if fmt.Sprint(count) != fmt.Sprint(want) || len(seen) != 200 {
		t.Errorf("chains hold %v (%d different receipts), want %v", count, len(seen), want)
	}
}

// A caller that goes away loses nothing of its neighbours, nor its receipt.
func TestRecorderCancelledCallerOnlyStopsWaiting(t *testing.T) {
	store := &segments{gate: make(chan error)}
	r := journal.NewRecorder(store, "p", time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	gone, stays := make(chan error, 1), make(chan error, 1)
	go func() { gone <- r.Append(ctx, receipt("gone", "i", contract.StateApplied)) }()
	go func() { stays <- r.Append(t.Context(), receipt("stays", "i", contract.StateApplied)) }()
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled caller got %v", err)
	}
	close(store.gate)
	if err := <-stays; err != nil {
		t.Errorf("its neighbour got %v", err)
	}
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, s := range store.kept {
		total += s.Count
	}
	if total != 2 {
		t.Errorf("%d receipts were written, want both", total)
	}
}

// After an unknown outcome no index is used again, so the chains stay whole
// whatever became of the lost segment.
func TestRecorderBeginsNewChainsAfterAnUnknownOutcome(t *testing.T) {
	store := &segments{gate: make(chan error, 3)}
	r := journal.NewRecorder(store, "p", time.Now)
	fault := errors.New("lost")
	for i, outcome := range []error{nil, fault, nil} {
		store.gate <- outcome
		if err := r.Append(t.Context(), receipt(fmt.Sprint(i), "i", contract.StateApplied)); !errors.Is(err, outcome) {
			t.Errorf("append %d: %v, want %v", i, err, outcome)
		}
	}
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(store.kept) != 2 || store.kept[0].Chain != "reads/p" || store.kept[1].Chain != "reads/p.1" || store.kept[1].Index != 1 {
		t.Errorf("wrote %+v, want one segment in each of two chains", store.kept)
	}
}

// appendAll appends n receipts of an installation for callers that don't wait,
// and returns how many were taken.
func appendAll(t *testing.T, r *journal.Recorder, n int, receipt journal.Receipt) (taken int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range n {
		switch err := r.Append(ctx, receipt); {
		case errors.Is(err, context.Canceled):
			taken++
		case !errors.Is(err, journal.ErrOverloaded):
			t.Fatalf("append: %v", err)
		}
	}
	return taken
}

// held returns a recorder whose flush is under way and waits for the gate.
func held(t *testing.T) (*journal.Recorder, *segments) {
	t.Helper()
	store := &segments{gate: make(chan error), entered: make(chan struct{}, 1)}
	r := journal.NewRecorder(store, "p", time.Now)
	appendAll(t, r, 1, receipt("first", "other", contract.StateApplied))
	<-store.entered
	return r, store
}

func TestRecorderRefusesBeyondItsBound(t *testing.T) {
	r, store := held(t)
	total := 0
	for i := range 16 {
		total += appendAll(t, r, 1000, receipt("a", fmt.Sprint("i", i), contract.StateApplied))
	}
	if total != 4096 {
		t.Errorf("%d receipts wait, want 4096", total)
	}
	close(store.gate)
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// However much one installation calls, refused or not, and however long its
// receipts are, those of the others find room.
func TestI14_RecorderKeepsRoomForOthers(t *testing.T) {
	long := receipt("a", "greedy", contract.StateDenied)
	long.RequestID = string(bytes.Repeat([]byte{'<'}, contract.MaxIdentifierBytes)) // six bytes each, as encoded
	for name, flood := range map[string][]journal.Receipt{
		"reads":          {receipt("a", "greedy", contract.StateApplied)},
		"refusals":       {receipt("a", "greedy", contract.StateDenied)},
		"both":           {receipt("a", "greedy", contract.StateApplied), receipt("a", "greedy", contract.StateDenied)},
		"long refusals":  {long},
		"several floods": {long, receipt("a", "greedy", contract.StateApplied), long},
	} {
		t.Run(name, func(t *testing.T) {
			r, store := held(t)
			taken := 0
			for _, receipt := range flood {
				taken += appendAll(t, r, 5000, receipt)
			}
			if taken == 0 || taken > 512 {
				t.Errorf("%d of its receipts wait, want at most 512", taken)
			}
			modest := make(chan error, 1)
			if n := appendAll(t, r, 100, receipt("b", "modest", contract.StateApplied)); n != 100 {
				t.Errorf("of 100 receipts of another installation %d were taken", n)
			}
			go func() { modest <- r.Append(t.Context(), receipt("c", "modest", contract.StateApplied)) }()
			close(store.gate)
			if err := <-modest; err != nil {
				t.Errorf("another installation's receipt: %v", err)
			}
			if err := r.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Close races with callers: what was taken is written, what was refused is not,
// and nobody waits for ever.
func TestRecorderCloseLosesNothingItTook(t *testing.T) {
	for range 20 {
		store := &segments{}
		r := journal.NewRecorder(store, "p", time.Now)
		var taken, refused atomic.Int64
		var callers sync.WaitGroup
		started := make(chan struct{}, 64)
		for range 16 {
			callers.Go(func() {
				for {
					switch err := r.Append(t.Context(), receipt("a", "i", contract.StateApplied)); {
					case err == nil:
						taken.Add(1)
						select {
						case started <- struct{}{}:
						default:
						}
					case errors.Is(err, journal.ErrRecorderClosed):
						refused.Add(1)
						return
					default:
						t.Errorf("append: %v", err)
						return
					}
				}
			})
		}
		<-started
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		callers.Wait()
		written := 0
		for _, s := range store.kept {
			written += s.Count
		}
		if int64(written) != taken.Load() || refused.Load() != 16 {
			t.Fatalf("%d receipts were answered as durable, %d are; %d callers were refused", taken.Load(), written, refused.Load())
		}
	}
}

func BenchmarkReceiptAppendJSON(b *testing.B) {
	r := receipt("0b0e4f4c-2f0e-4b8e-9d38-93f7c8a4a111", "0b0e4f4c-2f0e-4b8e-9d38-93f7c8a4a222", contract.StateApplied)
	r.At, r.Capability, r.RequestID = time.Now(), "host.v2.read:tasks", "req-1234567"
	var buffer []byte
	b.ReportAllocs()
	for b.Loop() {
		buffer = r.AppendJSON(buffer[:0])
	}
}

func BenchmarkEntryLink(b *testing.B) {
	e := journal.Entry{
		WorkspaceID: "workspace-1", Version: 17, Kind: journal.KindCommand, AuditID: "0b0e4f4c-2f0e-4b8e-9d38-93f7c8a4a111",
		InstallationID: "0b0e4f4c-2f0e-4b8e-9d38-93f7c8a4a222", Revision: 3, Method: "UpdateTaskExact", Capability: "host.v2.write:tasks",
		RequestID: "req-1", IdempotencyKey: "key-1", Result: contract.StateApplied, TargetID: "task-1", Before: "1.16", After: "1.17",
		EventType: "task.updated", Event: `{"event_schema_version":1,"audit_id":"0b0e4f4c-2f0e-4b8e-9d38-93f7c8a4a111","installation_id":"x","workspace_id":"w"}`,
		At: time.Now(),
	}
	b.ReportAllocs()
	for b.Loop() {
		e.Link("previous")
	}
}
