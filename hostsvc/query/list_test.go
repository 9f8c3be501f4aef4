package query

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// world is a small store of tasks in memory, for the rules of paging alone;
// that the real store keeps its part is tested with it.
type world struct {
	Snapshot
	row            *authority.Row
	seen           authority.Observed
	epoch          uint64
	newest, oldest domain.Version
	tasks          []domain.Task // by ID; Version is when it came
	receipts       []journal.Receipt
	broken         error
	fetched        []string
	// waits is what a task waits for, by its ID, from the version waitsSince on, and
	// asked is what that was looked up for.
	waits      map[string][]domain.Task
	waitsSince domain.Version
	asked      []string
}

func (w *world) Task(_, id string) (task domain.Task, waits, found bool, err error) {
	i := slices.IndexFunc(w.tasks, func(t domain.Task) bool { return t.ID == id })
	if i < 0 {
		return domain.Task{}, false, false, nil
	}
	return w.tasks[i], len(w.waits[id]) > 0, true, nil
}

func (w *world) Predecessors(_ string, ids []string, asOf domain.Version) (map[string][]domain.Task, error) {
	w.asked = append(w.asked, fmt.Sprintf("%d tasks as of %d", len(ids), asOf))
	if asOf < w.waitsSince {
		return nil, w.broken
	}
	return w.waits, w.broken
}

func (w *world) Read(_ context.Context, fn func(Snapshot) error) error { return fn(w) }

func (w *world) AuthorityRow(key authority.Key) (*authority.Row, error) {
	if w.row == nil || w.row.Key != key {
		return nil, nil //nolint:nilnil // the port's "no row"
	}
	return w.row, nil
}

// Current is the port's: the store of these tests always vouches.
func (w *world) Current() bool { return true }

func (w *world) StoreEpoch() uint64 { return w.epoch }

func (w *world) Head(string) (newest, oldest domain.Version, err error) {
	return w.newest, w.oldest, w.broken
}

func (w *world) Tasks(_ string, _ TaskFilter, asOf domain.Version, after string, limit int) ([]domain.Task, error) {
	w.fetched = append(w.fetched, fmt.Sprintf("%d after %q, %d", asOf, after, limit))
	var page []domain.Task
	for _, t := range w.tasks {
		if t.Version <= asOf && t.ID > after && len(page) < limit {
			page = append(page, t)
		}
	}
	return page, nil
}

func (w *world) Observe(authority.Key) *authority.Observed { return &w.seen }

func (w *world) Append(_ context.Context, receipt journal.Receipt) error {
	w.receipts = append(w.receipts, receipt)
	return nil
}

var (
	listTasks = admission.Method{Name: "ListTasksExact", Capability: contract.ReadTasks}
	testEnv   = admission.Envelope{RequestID: "r", WorkspaceID: "w"}
)

// listing is a workspace of n tasks and a reader of it.
func listing(t *testing.T, n int) (*world, *Reader) {
	t.Helper()
	row := &authority.Row{
		Key: authority.Key{InstallationID: "i", WorkspaceID: "w"}, Revision: 3, State: authority.StateActive,
		Granted: contract.AllCapabilities, Declared: contract.AllCapabilities, Allowed: contract.AllCapabilities,
	}
	row.Sum = row.Vector.Sum()
	w := &world{row: row, epoch: 1, newest: 100, oldest: 1, seen: authority.Observed{Synced: true, Vector: row.Sum}}
	for i := range n {
		w.tasks = append(w.tasks, domain.Task{ID: fmt.Sprintf("t%04d", i), Version: 50})
	}
	ring := cursors(t, key(1))
	audits := 0
	return w, &Reader{
		Store: w, View: w, Receipts: w, Cursors: ring, Now: func() time.Time { return time.Unix(0, 0) },
		NewAuditID: func() string { audits++; return fmt.Sprintf("audit-%d", audits) },
	}
}

func page(r *Reader, p Page) (List[Task], Receipt, *admission.Refusal) {
	return r.Tasks(context.Background(), "i", listTasks, testEnv, TaskFilter{}, p)
}

// all reads every page.
func all(t *testing.T, r *Reader, limit int32, between func()) (ids []string, pages int) {
	t.Helper()
	next := Page{Limit: limit}
	for {
		got, _, refusal := page(r, next)
		if refusal != nil {
			t.Fatal(refusal)
		}
		for _, task := range got.Items {
			ids = append(ids, task.ID)
		}
		pages++
		if got.NextCursor == "" {
			return ids, pages
		}
		if pages > 1000 {
			t.Fatal("no end")
		}
		next.Cursor, next.SnapshotVersion = got.NextCursor, got.SnapshotVersion
		between()
	}
}

// I10: a page is completed at once, as of the list's snapshot; a task that is read
// alone is as it is.
func TestI10_TasksAreBlockedAsOfTheirSnapshot(t *testing.T) {
	w, r := listing(t, contract.MaxPageSize+1)
	w.waits = map[string][]domain.Task{
		"t0001": {{State: domain.TaskFailed}, {State: domain.TaskTodo}}, "t0002": {{State: domain.TaskFailed}, {State: domain.TaskCompleted}},
		"t0003": {{State: domain.TaskCompleted}},
	}
	first, _, refusal := page(r, Page{Limit: contract.MaxPageSize})
	if refusal != nil {
		t.Fatal(refusal)
	}
	for i, want := range []domain.BlockedReason{domain.BlockedNot, domain.BlockedPending, domain.BlockedFailed, domain.BlockedNot, domain.BlockedNot} {
		if got := first.Items[i].Blocked; got != want {
			t.Errorf("task %d is blocked by %q, want %q", i, got, want)
		}
	}
	snapshot := w.newest
	w.newest, w.waitsSince = 101, 101
	w.waits = map[string][]domain.Task{w.tasks[contract.MaxPageSize].ID: {{State: domain.TaskTodo}}}
	second, _, refusal := page(r, Page{Limit: contract.MaxPageSize, Cursor: first.NextCursor, SnapshotVersion: first.SnapshotVersion})
	if refusal != nil {
		t.Fatal(refusal)
	}
	if len(second.Items) != 1 || second.Items[0].Blocked != domain.BlockedNot {
		t.Errorf("behind the snapshot it was blocked by %q", second.Items[0].Blocked)
	}
	alone, _, refusal := r.Task(t.Context(), "i", admission.Method{Name: "GetTaskExact", Capability: contract.ReadTasks}, testEnv, second.Items[0].ID)
	if refusal != nil || alone.Blocked != domain.BlockedPending {
		t.Errorf("read alone it is blocked by %q, %v", alone.Blocked, refusal)
	}
	want := []string{
		fmt.Sprintf("%d tasks as of %d", contract.MaxPageSize, snapshot), fmt.Sprintf("1 tasks as of %d", snapshot),
		fmt.Sprintf("1 tasks as of %d", Latest),
	}
	if !slices.Equal(w.asked, want) {
		t.Errorf("asked for %q, want %q", w.asked, want)
	}
	w.broken = errors.New("a broken disk")
	if got, _, refusal := r.Task(t.Context(), "i", admission.Method{Name: "GetTaskExact", Capability: contract.ReadTasks}, testEnv, second.Items[0].ID); refusal == nil || got != nil {
		t.Errorf("what it waits for can't be read: %+v, %v", got, refusal)
	}
	// What waits for nothing isn't asked for.
	if got, _, refusal := r.Task(t.Context(), "i", admission.Method{Name: "GetTaskExact", Capability: contract.ReadTasks}, testEnv, first.Items[0].ID); refusal != nil || got.Blocked != domain.BlockedNot {
		t.Errorf("it waits for nothing: %+v, %v", got, refusal)
	}
}

// A page ends at its bytes, with one item at least, and shows no item twice.
func TestList_PagesEndAtTheirBytes(t *testing.T) {
	for _, c := range []struct{ tasks, each, most int }{
		{10, pageBytes + 1, 1},
		{10, pageBytes / 2, 1},
		{10, pageBytes/2 - itemBytes - domain.Task{}.Size() - 5, 2},
		{200, contract.MaxDescriptionBytes, pageBytes / contract.MaxDescriptionBytes},
		{fetchStep, 0, fetchStep}, {fetchStep + 1, 0, fetchStep + 1}, {contract.MaxPageSize, 0, contract.MaxPageSize},
		{contract.MaxPageSize + 1, 0, contract.MaxPageSize},
	} {
		w, r := listing(t, c.tasks)
		for i := range w.tasks {
			w.tasks[i].Description = strings.Repeat("x", c.each)
		}
		first, _, refusal := page(r, Page{Limit: contract.MaxPageSize})
		if refusal != nil {
			t.Fatal(refusal)
		}
		if n := len(first.Items); n == 0 || n > c.most || c.each == 0 && n != c.most {
			t.Errorf("%d tasks of %d bytes: %d in the first page, want at most %d", c.tasks, c.each, n, c.most)
		}
		ids, _ := all(t, r, contract.MaxPageSize, func() {})
		if len(ids) != c.tasks || !slices.IsSorted(ids) || len(slices.Compact(ids)) != c.tasks {
			t.Errorf("%d tasks of %d bytes: the pages show %d", c.tasks, c.each, len(ids))
		}
	}
}

// Whatever a task is long of.
func TestList_LongTasksEndAPage(t *testing.T) {
	long := strings.Repeat("x", pageBytes)
	for name, task := range map[string]domain.Task{
		"label": {Labels: []string{long}}, "pull request": {PullRequests: []domain.TaskPullRequest{{Title: long}}},
		"repository": {Repositories: []domain.TaskRepository{{BaseBranch: long}}}, "metadata": {Metadata: domain.Object{"a": long}},
	} {
		w, r := listing(t, 2)
		w.tasks[0].Labels, w.tasks[0].PullRequests = task.Labels, task.PullRequests
		w.tasks[0].Repositories, w.tasks[0].Metadata = task.Repositories, task.Metadata
		first, _, refusal := page(r, Page{Limit: contract.MaxPageSize})
		if refusal != nil || len(first.Items) != 1 {
			t.Errorf("%s: %d tasks in the first page, %v", name, len(first.Items), refusal)
		}
	}
}

func TestList_Pages(t *testing.T) {
	for _, c := range []struct {
		tasks int
		limit int32
		pages int
	}{
		{0, 0, 1}, {1, 1, 1}, {2, 1, 2}, {50, 0, 1}, {51, 0, 2}, {100, 50, 2}, {200, 200, 1}, {201, 200, 2}, {201, 1 << 30, 2}, {3, 2, 2},
	} {
		w, r := listing(t, c.tasks)
		ids, pages := all(t, r, c.limit, func() {})
		if len(ids) != c.tasks || pages != c.pages || !slices.IsSorted(ids) || len(slices.Compact(ids)) != c.tasks {
			t.Errorf("%d tasks by %d: %d in %d pages", c.tasks, c.limit, len(ids), pages)
		}
		if len(w.receipts) != pages {
			t.Errorf("%d receipts for %d pages", len(w.receipts), pages)
		}
	}
}

// All pages show the rows as of the first, whatever is written meanwhile.
func TestI10_PagesShowOneWorld(t *testing.T) {
	w, r := listing(t, 10)
	ids, _ := all(t, r, 3, func() {
		w.newest++
		w.tasks = append(w.tasks, domain.Task{ID: fmt.Sprintf("t0004-%d", w.newest), Version: w.newest})
		slices.SortFunc(w.tasks, func(a, b domain.Task) int { return strings.Compare(a.ID, b.ID) })
	})
	if len(ids) != 10 {
		t.Errorf("read %v", ids)
	}
	for _, fetch := range w.fetched {
		if !strings.HasPrefix(fetch, "100 after") {
			t.Errorf("read as of %s", fetch)
		}
	}
}

func TestList_RefusesBadPages(t *testing.T) {
	w, r := listing(t, 10)
	first, _, refusal := page(r, Page{Limit: 3})
	if refusal != nil || first.NextCursor == "" || first.SnapshotVersion != "1.100" {
		t.Fatalf("%+v, %v", first, refusal)
	}
	for name, c := range map[string]struct {
		page   Page
		field  string
		reason contract.Reason
	}{
		"negative limit":    {Page{Limit: -1}, "page.limit", contract.ReasonMalformedPrecondition},
		"version alone":     {Page{SnapshotVersion: "1.100"}, "page.snapshot_version", contract.ReasonMalformedPrecondition},
		"cursor alone":      {Page{Cursor: first.NextCursor}, "page.snapshot_version", contract.ReasonMissingExactField},
		"another version":   {Page{Cursor: first.NextCursor, SnapshotVersion: "1.99"}, "page.snapshot_version", contract.ReasonMalformedPrecondition},
		"no cursor of ours": {Page{Cursor: "abc", SnapshotVersion: "1.100"}, "page.cursor", contract.ReasonMalformedPrecondition},
		"altered":           {Page{Cursor: "A" + first.NextCursor, SnapshotVersion: "1.100"}, "page.cursor", contract.ReasonMalformedPrecondition},
		"too long":          {Page{Cursor: strings.Repeat("A", contract.MaxCursorBytes+1), SnapshotVersion: "1.100"}, "page.cursor", contract.ReasonMalformedPrecondition},
	} {
		fetched := len(w.fetched)
		got, _, refusal := page(r, c.page)
		if refusal == nil || refusal.Field != c.field || refusal.Reason != c.reason || refusal.State != contract.StateInvalid || got.Items != nil {
			t.Errorf("%s: %v", name, refusal)
		}
		if len(w.fetched) != fetched {
			t.Errorf("%s: data was read", name)
		}
	}
}

// A cursor is of no use to another installation, workspace, filter, revision,
// method, store or time.
func TestI10_CursorsOfOtherListsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world, env *admission.Envelope, m *admission.Method, f *TaskFilter, installation *string)
		state  contract.State
		reason contract.Reason
	}{
		"installation": {func(w *world, _ *admission.Envelope, _ *admission.Method, _ *TaskFilter, i *string) {
			*i, w.row.Key.InstallationID = "j", "j"
		}, contract.StateInvalid, contract.ReasonMalformedPrecondition},
		"workspace": {func(w *world, e *admission.Envelope, _ *admission.Method, _ *TaskFilter, _ *string) {
			e.WorkspaceID, w.row.Key.WorkspaceID = "x", "x"
		}, contract.StateInvalid, contract.ReasonMalformedPrecondition},
		"method": {func(_ *world, _ *admission.Envelope, m *admission.Method, _ *TaskFilter, _ *string) {
			m.Name = "ListOthersExact"
		}, contract.StateInvalid, contract.ReasonMalformedPrecondition},
		"filter": {func(_ *world, _ *admission.Envelope, _ *admission.Method, f *TaskFilter, _ *string) {
			f.IncludeArchived = true
		}, contract.StateInvalid, contract.ReasonMalformedPrecondition},
		"no parent is another filter": {func(_ *world, _ *admission.Envelope, _ *admission.Method, f *TaskFilter, _ *string) {
			f.Parent = new(string)
		}, contract.StateInvalid, contract.ReasonMalformedPrecondition},
		"revision": {func(w *world, _ *admission.Envelope, _ *admission.Method, _ *TaskFilter, _ *string) {
			w.row.Revision = 4
		}, contract.StateConflict, contract.ReasonStaleResourceVersion},
		"epoch":   {func(w *world, _ *admission.Envelope, _ *admission.Method, _ *TaskFilter, _ *string) { w.epoch = 2 }, contract.StateConflict, contract.ReasonStaleResourceVersion},
		"too old": {func(w *world, _ *admission.Envelope, _ *admission.Method, _ *TaskFilter, _ *string) { w.oldest = 101 }, contract.StateConflict, contract.ReasonStaleResourceVersion},
		"ahead":   {func(w *world, _ *admission.Envelope, _ *admission.Method, _ *TaskFilter, _ *string) { w.newest = 99 }, contract.StateConflict, contract.ReasonStaleResourceVersion},
		"revoked": {func(w *world, _ *admission.Envelope, _ *admission.Method, _ *TaskFilter, _ *string) {
			w.row.State = authority.StateRevoked
		}, contract.StateDenied, contract.ReasonCapabilityRevoked},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := listing(t, 10)
			first, _, refusal := page(r, Page{Limit: 3})
			if refusal != nil {
				t.Fatal(refusal)
			}
			fetched := len(w.fetched)
			env, m, filter, installation := testEnv, listTasks, TaskFilter{}, "i"
			c.change(w, &env, &m, &filter, &installation)
			got, _, refusal := r.Tasks(context.Background(), installation, m, env, filter, Page{Cursor: first.NextCursor, SnapshotVersion: first.SnapshotVersion})
			if refusal == nil || refusal.State != c.state || refusal.Reason != c.reason || got.Items != nil || len(w.fetched) != fetched {
				t.Errorf("%v", refusal)
			}
			if last := w.receipts[len(w.receipts)-1]; last.Reason != c.reason || last.AuditID != refusal.AuditID {
				t.Errorf("recorded %+v", last)
			}
		})
	}
}

func TestList_OldestKeptSnapshotStillReads(t *testing.T) {
	w, r := listing(t, 10)
	first, _, _ := page(r, Page{Limit: 3})
	w.newest, w.oldest = 500, 100
	if got, _, refusal := page(r, Page{Cursor: first.NextCursor, SnapshotVersion: first.SnapshotVersion}); refusal != nil || len(got.Items) != 7 {
		t.Errorf("%+v, %v", got, refusal)
	}
}

type noReceipts struct{}

func (noReceipts) Append(context.Context, journal.Receipt) error { return errors.New("disk full") }

// No receipt, no data; and no fault of the store is an answer.
func TestI6_NoReceiptNoData(t *testing.T) {
	w, r := listing(t, 10)
	r.Receipts = noReceipts{}
	if got, _, refusal := page(r, Page{}); refusal == nil || refusal.State != contract.StateUnavailable || got.Items != nil {
		t.Errorf("%+v, %v", got, refusal)
	}
	r.Receipts, w.broken = w, errors.New("disk gone")
	if got, _, refusal := page(r, Page{}); refusal == nil || refusal.State != contract.StateUnavailable || got.Items != nil || strings.Contains(refusal.Error(), "disk") {
		t.Errorf("%+v, %v", got, refusal)
	}
}

// StepKey sorts as positions do, negative ones included.
func TestStepKey_SortsAsPositions(t *testing.T) {
	positions := []int32{-1 << 31, -10, -9, -1, 0, 1, 9, 10, 11, 100, 1<<31 - 1}
	var keys []string
	for _, p := range positions {
		keys = append(keys, StepKey(domain.WorkflowStep{ID: "z", Position: p}))
	}
	if !slices.IsSorted(keys) || len(slices.Compact(keys)) != len(positions) {
		t.Errorf("%v", keys)
	}
	if a, b := StepKey(domain.WorkflowStep{ID: "a"}), StepKey(domain.WorkflowStep{ID: "b"}); a >= b {
		t.Errorf("%s before %s", b, a)
	}
}

func TestTaskFilter_Check(t *testing.T) {
	bad := " x"
	none := ""
	for field, f := range map[string]TaskFilter{
		"":                       {WorkflowIDs: []string{"w"}, States: []string{"TODO"}, Parent: &none},
		"filter":                 {WorkflowIDs: slices.Repeat([]string{"w"}, contract.MaxFilterValues), States: []string{"TODO"}},
		"filter.workflow_ids[1]": {WorkflowIDs: []string{"w", ""}},
		"filter.states[0]":       {States: []string{bad}},
		"filter.parent_id":       {Parent: &bad},
	} {
		switch refusal := f.Check(); {
		case field == "" && refusal != nil:
			t.Error(refusal)
		case field != "" && (refusal == nil || refusal.Field != field || refusal.State != contract.StateInvalid):
			t.Errorf("%s: %v", field, refusal)
		}
	}
}
