package importer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/importer"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/query"
	"github.com/kandev/plugin-host/hostsvc/store"
)

// content is everything that exact reads show of a workspace, without versions.
func contentOf(tb testing.TB, s *store.Store, workspace string) string {
	tb.Helper()
	var b strings.Builder
	write := func(what string, value any) {
		text, err := json.Marshal(value)
		if err != nil {
			tb.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %s\n", what, text)
	}
	const most = 10000
	err := s.Read(tb.Context(), func(r query.Snapshot) error {
		newest, _, err := r.Head(workspace)
		if err != nil {
			return err
		}
		w, _, err := r.Workspace(workspace, newest)
		if err != nil {
			return err
		}
		w.Version = 0
		write("workspace", w)
		flows, err := r.Workflows(workspace, newest, "", most)
		if err != nil {
			return err
		}
		for _, flow := range flows {
			flow.Version = 0
			write("workflow", flow)
			steps, err := r.WorkflowSteps(workspace, flow.ID, newest, "", most)
			if err != nil {
				return err
			}
			for _, step := range steps {
				step.Version = 0
				write("step", step)
			}
		}
		tasks, err := r.Tasks(workspace, query.TaskFilter{IncludeArchived: true, IncludeEphemeral: true}, newest, "", most)
		if err != nil {
			return err
		}
		for _, task := range tasks {
			task.Version = 0
			write("task", task)
		}
		edges, err := r.Relations(workspace, newest, "", most)
		if err != nil {
			return err
		}
		for _, edge := range edges {
			edge.Version = 0
			write("relation", edge)
		}
		moves, err := r.PendingTransitions(workspace, "", newest, "", most)
		if err != nil {
			return err
		}
		for _, move := range moves {
			move.Version = 0
			write("transition", move)
		}
		sessions, err := r.Sessions(workspace, query.SessionFilter{}, newest, "", most)
		if err != nil {
			return err
		}
		for _, session := range sessions {
			session.Version = 0
			write("session", session)
		}
		messages, err := r.Messages(workspace, query.MessageFilter{}, newest, "", most)
		if err != nil {
			return err
		}
		for _, message := range messages {
			message.Version = 0
			write("message", message)
		}
		owed, err := r.PendingInteractions(workspace, query.InteractionFilter{}, newest, "", most)
		if err != nil {
			return err
		}
		for _, interaction := range owed {
			interaction.Version = 0
			write("interaction", interaction)
		}
		inbox, err := r.Inbox(workspace, query.InboxFilter{}, newest, "", most)
		if err != nil {
			return err
		}
		for _, i := range inbox {
			write("inbox", fmt.Sprintf("%s %s %s", i.Kind, i.ID, i.Digest))
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return b.String()
}

// everything has each kind with each of its fields.
func everything(tb testing.TB) []byte {
	tb.Helper()
	text, err := os.ReadFile("testdata/everything.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

// asJSON writes documents of YAML as lines of JSON.
func asJSON(tb testing.TB, text []byte) string {
	tb.Helper()
	var b strings.Builder
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		line, err := yaml.YAMLToJSON(document)
		if err != nil {
			tb.Fatal(err)
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.String()
}

// Both formats say the same, and what is read back is what they say, every field of it.
func TestImportsEverything(t *testing.T) {
	want, err := os.ReadFile("testdata/everything.txt")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for name, open := range databases(t) {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, open(t))
			text := everything(t)
			summary, err := run(t, s, string(text), importer.Options{BatchDocuments: 2})
			if err != nil {
				t.Fatal(err)
			}
			documents := int64(bytes.Count(text, []byte("\nkind: "))) + 1
			if summary.Documents != documents || summary.Inserted != documents || summary.Skipped != 0 || !summary.Complete {
				t.Errorf("%+v, want %d documents", summary, documents)
			}
			got := contentOf(t, s, "w")
			if os.Getenv("UPDATE_GOLDEN") != "" {
				if err := os.WriteFile("testdata/everything.txt", []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				want = []byte(got)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			other := openStore(t, openSQLite(t, t.TempDir()+"/json.db"))
			if _, err := run(t, other, asJSON(t, text), importer.Options{}); err != nil {
				t.Fatal(err)
			}
			if again := contentOf(t, other, "w"); again != got {
				t.Errorf("from lines of JSON:\n%s\nfrom YAML\n%s", again, got)
			}
			found(t, s, "w", importer.SpaceRepository, "r", importer.SpaceTurn, "u-1", importer.SpaceStats, "c-1")
			found(t, s, "", importer.SpaceAgentProfile, "agent", importer.SpaceExecutorProfile, "executor")
		})
	}
}

// found demands that things are in a store.
func found(tb testing.TB, s importer.Store, workspace string, spacesAndIDs ...any) {
	tb.Helper()
	err := s.Look(tb.Context(), workspace, func(l importer.Lookup) error {
		for pair := range slices.Chunk(spacesAndIDs, 2) {
			id := pair[1].(string)
			there, err := l.Find(pair[0].(importer.Space), []string{id, "no such"})
			if _, ok := there[id]; err != nil || len(there) != 1 || !ok {
				return fmt.Errorf("%v: found %v, %w", pair, there, err)
			}
		}
		return nil
	})
	if err != nil {
		tb.Error(err)
	}
}

// An import extends the workspace's order by one entry for each batch, chained as all
// others, and makes no event.
func TestI8_AnImportIsInTheOrder(t *testing.T) {
	for name, open := range databases(t) {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, open(t))
			if _, err := run(t, s, lines(conversation...), importer.Options{ID: "first", BatchDocuments: 3}); err != nil {
				t.Fatal(err)
			}
			entries, err := s.Entries(t.Context(), "w", 0, 100)
			if err != nil {
				t.Fatal(err)
			}
			if len(entries) != 3 {
				t.Fatalf("%d entries for 7 documents, 3 at a time", len(entries))
			}
			previous, digests := "", map[string]bool{}
			for i, e := range entries {
				if e.Version != domain.Version(i+1) || e.Kind != journal.KindImport || e.RequestID != "first" || e.EventType != "" || e.Event != "" || e.AuditID == "" {
					t.Errorf("entry %d: %+v", i, e)
				}
				if e.PreviousHash != previous || e.Link(previous).Hash != e.Hash {
					t.Errorf("entry %d isn't chained", i)
				}
				previous = e.Hash
				digests[e.CommandDigest.String()] = true
			}
			if len(digests) != 3 {
				t.Errorf("the batches have digests %v", digests)
			}
		})
	}
}

// A batch with a fault leaves nothing; mended, the import goes on behind the batches
// before it.
func TestABatchIsImportedWholeOrNotAtAll(t *testing.T) {
	for name, open := range databases(t) {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, open(t))
			bad := slices.Clone(conversation)
			bad[5] = strings.Replace(aTurn, `"c"`, `"no such"`, 1)
			summary, err := run(t, s, lines(bad...), importer.Options{BatchDocuments: 3})
			if faults := faultsOf(t, err); len(faults.Faults) != 2 && len(faults.Faults) != 1 || faults.Faults[0].Line != 6 {
				t.Errorf("got %v", err)
			}
			if summary.Documents != 3 || summary.Inserted != 3 {
				t.Errorf("%+v", summary)
			}
			before := contentOf(t, s, "w")
			for _, kind := range []string{"task", "session", "message"} {
				if strings.Contains(before, "\n"+kind+" ") {
					t.Errorf("a batch with a fault left a %s:\n%s", kind, before)
				}
			}
			// The same again stops at the same place, and changes nothing.
			if _, err := run(t, s, lines(bad...), importer.Options{BatchDocuments: 3}); faultsOf(t, err).Faults[0].Line != 6 || contentOf(t, s, "w") != before {
				t.Errorf("the second run: %v", err)
			}
			// Mended it is another file: what is there already is left alone.
			summary, err = run(t, s, lines(conversation...), importer.Options{BatchDocuments: 3, SkipExisting: true})
			if err != nil || summary.Skipped != 3 || summary.Inserted != 4 {
				t.Fatalf("%+v, %v", summary, err)
			}
			whole := openStore(t, openSQLite(t, t.TempDir()+"/whole.db"))
			if _, err := run(t, whole, lines(conversation...), importer.Options{}); err != nil {
				t.Fatal(err)
			}
			if got, want := contentOf(t, s, "w"), contentOf(t, whole, "w"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			version, _, err := s.Head(t.Context(), "w")
			if err != nil || version != 3 {
				t.Errorf("the workspace is at %d, %v; a batch of which all was there is no commit", version, err)
			}
		})
	}
}

// No position is behind the last one there is, and none wraps round to the first.
func TestAStepHasALastPosition(t *testing.T) {
	for name, open := range databases(t) {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, open(t))
			placed := strings.Replace(aTask, `"t"`, `"last","position":2147483647`, 1)
			before := contentOf(t, s, "w")
			_, err := run(t, s, lines(aWorkspace, aWorkflow, aStep, placed, aTask), importer.Options{})
			if err == nil || !strings.Contains(err.Error(), `line 5: insert task "t": position: the step has a task at the last position`) {
				t.Errorf("got %v", err)
			}
			if got := contentOf(t, s, "w"); got != before {
				t.Errorf("it left\n%s", got)
			}
		})
	}
}

// What an editor writes before the first character is no part of the first document,
// also where the import goes on.
func TestAByteOrderMarkIsNoContent(t *testing.T) {
	s := openStore(t, openSQLite(t, t.TempDir()+"/store.db"))
	whole := "\uFEFF" + lines(conversation...)
	if _, err := check(t, s, whole, importer.Options{BatchDocuments: 1}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stop := importer.Options{BatchDocuments: 1, Now: clock, Report: func(importer.Summary) { cancel() }}
	if _, err := importer.Run(ctx, s, sourceOf(t, whole), stop); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	summary, err := run(t, s, whole, importer.Options{})
	if err != nil || summary.Before != 1 || summary.Documents != int64(len(conversation)) {
		t.Errorf("%+v, %v", summary, err)
	}
}

func TestACompleteImportIsDoneOnce(t *testing.T) {
	for name, open := range databases(t) {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, open(t))
			text := lines(conversation...)
			for i, inserted := range []int64{7, 0, 0} {
				summary, err := run(t, s, text, importer.Options{})
				if err != nil || !summary.Complete || summary.Documents != 7 || summary.Inserted != inserted || summary.Skipped != 0 {
					t.Errorf("run %d: %+v, %v", i, summary, err)
				}
			}
			// Under another name it is another import, and everything is there.
			_, err := run(t, s, text, importer.Options{ID: "other"})
			if faults := faultsOf(t, err); len(faults.Faults) != 7 {
				t.Errorf("got %v", err)
			}
			// Other content under a name that is taken.
			_, err = run(t, s, text, importer.Options{ID: "named", SkipExisting: true})
			if err != nil {
				t.Fatal(err)
			}
			if _, err = run(t, s, text+"\n", importer.Options{ID: "named"}); !errors.Is(err, importer.ErrOtherContent) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A workspace that its binding made has nothing but its ID yet.
func TestABoundWorkspaceIsDescribedByAnImport(t *testing.T) {
	for name, open := range databases(t) {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, open(t))
			if _, err := s.Bind(t.Context(), "w", "namespace", "uid"); err != nil {
				t.Fatal(err)
			}
			if _, err := run(t, s, lines(conversation...), importer.Options{}); err != nil {
				t.Fatal(err)
			}
			if got := contentOf(t, s, "w"); !strings.Contains(got, `"Name":"W"`) {
				t.Errorf("got %s", got)
			}
			_, err := run(t, s, aWorkspace, importer.Options{})
			faultsOf(t, err)
		})
	}
}

// Documents may refer to what another import brought, also in a dry run.
func TestReferencesReachIntoTheStore(t *testing.T) {
	for name, open := range databases(t) {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, open(t))
			second := strings.Replace(aTask, `"t"`, `"x","parent_id":"t","source":"plugin:p","external_id":"e"`, 1)
			if _, err := run(t, s, lines(conversation[:6]...)+second, importer.Options{}); err != nil {
				t.Fatal(err)
			}
			edge := `{"kind":"relation","workspace_id":"w","source_task_id":"t","target_task_id":"x"}`
			rest := lines(aMessage, edge)
			for range 2 { // a dry run leaves nothing
				if summary, err := check(t, s, rest, importer.Options{}); err != nil || summary.Inserted != 2 || summary.Complete {
					t.Fatalf("%+v, %v", summary, err)
				}
			}
			if _, err := run(t, s, rest, importer.Options{}); err != nil {
				t.Fatal(err)
			}
			back := lines(
				strings.Replace(aTask, `"t"`, `"y","source":"plugin:p","external_id":"e"`, 1),
				`{"kind":"relation","workspace_id":"w","source_task_id":"x","target_task_id":"t"}`, edge)
			want := []string{"external_id", "source_task_id", ""}
			for what, err := range map[string]error{
				"a dry run": second1(check(t, s, back, importer.Options{BatchDocuments: 1})), "an import": second1(run(t, s, back, importer.Options{})),
			} {
				var fields []string
				for _, fault := range faultsOf(t, err).Faults {
					fields = append(fields, fault.Field)
				}
				if !slices.Equal(fields, want) {
					t.Errorf("%s faults %q, want %q: %v", what, fields, want, err)
				}
			}
		})
	}
}

func second1[T any](_ T, err error) error { return err }

// Two processes with one import: the one that comes late does nothing of it.
func TestTwoProcessesImportEverythingOnce(t *testing.T) {
	for name, open := range databases(t) {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, open(t))
			text := lines(conversation...)
			other := false
			_, err := run(t, s, text, importer.Options{BatchDocuments: 2, Report: func(importer.Summary) {
				if !other {
					other = true
					if _, err := run(t, s, text, importer.Options{}); err != nil {
						t.Error(err)
					}
				}
			}})
			if !errors.Is(err, importer.ErrMoved) {
				t.Errorf("got %v", err)
			}
			if summary, err := run(t, s, text, importer.Options{}); err != nil || !summary.Complete || summary.Documents != 7 {
				t.Errorf("%+v, %v", summary, err)
			}
			if version, _, err := s.Head(t.Context(), "w"); err != nil || version != 2 {
				t.Errorf("the workspace is at %d, %v; one process has committed twice, with nothing left to the other", version, err)
			}
		})
	}
}

func TestAFileThatChangesIsRefused(t *testing.T) {
	s := openStore(t, openSQLite(t, t.TempDir()+"/host.db"))
	path := fileOf(t, lines(conversation...))
	source, err := importer.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	change := func(importer.Summary) {
		if err := os.WriteFile(path, []byte(lines(conversation...)+" "), 0o600); err != nil {
			t.Error(err)
		}
	}
	summary, err := importer.Run(t.Context(), s, source, importer.Options{Now: clock, BatchDocuments: 3, Report: change})
	if !errors.Is(err, importer.ErrChanged) || summary.Documents != 3 {
		t.Errorf("%+v, %v", summary, err)
	}
	if _, err := importer.OpenFile(t.TempDir()); err == nil {
		t.Error("a folder is a file")
	}
}

// counted tells how far it has been read.
type counted struct {
	io.ReadCloser
	read int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.read += int64(n)
	return n, err
}

// However long the stream: no more of it is read ahead of the commits than one batch
// and a buffer, so that no more can be in memory.
func TestMemoryIsBoundedByABatch(t *testing.T) {
	s := openStore(t, openSQLite(t, t.TempDir()+"/host.db"))
	source := importer.Sample{Prefix: "many", Workspaces: 1, Tasks: 50, Messages: 6000, SessionMessages: 500}.Source()
	var stream *counted
	open := source.Open
	source.Open = func() (io.ReadCloser, error) {
		in, err := open()
		stream = &counted{ReadCloser: in}
		return stream, err
	}
	const documents, longest, buffer = 50, 1 << 10, 64 << 10
	most, batches := int64(0), 0
	summary, err := importer.Run(t.Context(), s, source, importer.Options{Now: clock, BatchDocuments: documents, Report: func(done importer.Summary) {
		most = max(most, stream.read-done.Offset)
		batches++
	}})
	if err != nil {
		t.Fatal(err)
	}
	if summary.Documents < 6000 || batches < 100 || stream.read < 10*(documents*longest+buffer) {
		t.Fatalf("%+v in %d batches of %d bytes: that shows nothing", summary, batches, stream.read)
	}
	if most > documents*longest+buffer {
		t.Errorf("%d bytes were read ahead of the commits", most)
	}
	// Large documents end a batch earlier.
	var large strings.Builder
	large.WriteString(lines(conversation[:6]...))
	for i := range 40 {
		large.WriteString(strings.NewReplacer(`"m"`, fmt.Sprintf(`"m%d"`, i), "hello", strings.Repeat("x", 200<<10)).Replace(aMessage) + "\n")
	}
	reports := 0
	if _, err := run(t, s, large.String(), importer.Options{Report: func(importer.Summary) { reports++ }}); err != nil {
		t.Fatal(err)
	}
	if reports < 4 {
		t.Errorf("8 MiB in %d batches", reports)
	}
}

func TestASampleIsTheSameEveryTimeAndImports(t *testing.T) {
	sample := importer.Sample{Prefix: "s", Workspaces: 3, Tasks: 40, Messages: 700, SessionMessages: 15}
	var first, second bytes.Buffer
	if err := errors.Join(sample.Write(&first), sample.Write(&second)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two writings differ")
	}
	for kind, want := range map[string]int{"workspace": 3, "task": 40, "message": 700} {
		if n := strings.Count(first.String(), `"kind":"`+kind+`"`); n != want {
			t.Errorf("%d of kind %s, want %d", n, kind, want)
		}
	}
	for _, kind := range []string{"relation", "session", "turn", "code_stats", "permission_request", "clarification_request", "parent_id"} {
		if !strings.Contains(first.String(), `"`+kind+`"`) {
			t.Errorf("it has no %s", kind)
		}
	}
	if _, err := check(t, nil, first.String(), importer.Options{}); err != nil {
		t.Errorf("a dry run: %v", err)
	}
	for name, open := range databases(t) {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, open(t))
			summary, err := importer.Run(t.Context(), s, sample.Source(), importer.Options{Now: time.Now})
			if err != nil || !summary.Complete || int(summary.Documents) != bytes.Count(first.Bytes(), []byte("\n")) {
				t.Fatalf("%+v, %v", summary, err)
			}
			var tasks, messages, owed int
			for i := range 3 {
				content := contentOf(t, s, fmt.Sprintf("s-%03d", i))
				tasks += strings.Count(content, "\ntask ")
				messages += strings.Count(content, "\nmessage ")
				owed += strings.Count(content, "\ninteraction ")
			}
			if tasks != 40 || messages != 700 || owed == 0 {
				t.Errorf("%d tasks, %d messages, %d interactions", tasks, messages, owed)
			}
		})
	}
	for _, bad := range []importer.Sample{
		{}, {Prefix: "a b", Workspaces: 1, Tasks: 1, SessionMessages: 1}, {Prefix: "a", Workspaces: 2, Tasks: 1, SessionMessages: 1},
		{Prefix: "a", Workspaces: 1, Tasks: 1, Messages: -1, SessionMessages: 1}, {Prefix: "a", Workspaces: 1, Tasks: 1, Messages: 1},
	} {
		if bad.Check() == nil || bad.Write(io.Discard) == nil {
			t.Errorf("%+v is a sample", bad)
		}
	}
}

// The documented names are the code's.
func TestEveryFieldIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/import-format.md")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	kind := ""
	for line := range strings.Lines(string(page)) {
		if rest, ok := strings.CutPrefix(line, "## `"); ok {
			kind, _, _ = strings.Cut(rest, "`")
			continue
		}
		if strings.HasPrefix(line, "## ") {
			kind = ""
		}
		if rest, ok := strings.CutPrefix(line, "| `"); ok && kind != "" {
			name, _, _ := strings.Cut(rest, "`")
			got[kind] = append(got[kind], name)
		}
	}
	want := importer.FieldNames()
	for kind := range want {
		slices.Sort(want[kind])
		slices.Sort(got[kind])
	}
	if !reflect.DeepEqual(got, want) {
		for kind := range want {
			if !slices.Equal(got[kind], want[kind]) {
				t.Errorf("%s: documented are\n%q, the code has\n%q", kind, got[kind], want[kind])
			}
		}
		if len(got) != len(want) {
			t.Errorf("documented are %d kinds, the code has %d", len(got), len(want))
		}
	}
}
