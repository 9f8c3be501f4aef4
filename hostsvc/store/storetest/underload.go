package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/board"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/legacy"
	"github.com/kandev/plugin-host/hostsvc/query"
	"github.com/kandev/plugin-host/hostsvc/store"
)

// The size of testUnderLoad.
const (
	loadTasks   = 100_000
	loadWriters = 12
	// loadWrites is how many commands each writer runs. Some are several commits.
	loadWrites = 60
	// loadAgeings is how often lists that have begun grow too old.
	loadAgeings = 1
	// overtaken is how many commits come between the first two pages of each reader's
	// first list, and of the lists that grow old.
	overtaken = 20
	// loadPace is how many commits come between the beginnings of a reader's lists,
	// at least: small lists would else take the time of large ones.
	loadPace = 800
)

// change is what a commit made of a task, nil when it deleted it. Without an ID it is
// the commit alone.
type change struct {
	version domain.Version
	id      string
	task    *domain.Task
}

// chronicle is a workspace's tasks as they should be at every version: the changes in
// the order of the journal.
type chronicle struct {
	mu    sync.Mutex
	grown *sync.Cond
	// newest: every commit up to it is here. Those that are known before one that they
	// follow wait in early.
	newest domain.Version
	early  map[domain.Version][]change
	// ended: nothing will be added.
	ended bool
	// ids is every task that ever was, in order.
	ids     []string
	changes map[string][]change
	// targets is the task that each commit changed.
	targets map[domain.Version]string
	// edges are the dependencies, which end with either of their tasks and not before.
	edges []domain.TaskRelation
}

func newChronicle(version domain.Version, tasks []domain.Task, edges []domain.TaskRelation) *chronicle {
	for i := range edges {
		edges[i].WorkspaceID, edges[i].Version = "w", version
	}
	c := &chronicle{
		edges:  edges,
		newest: version, early: map[domain.Version][]change{}, changes: make(map[string][]change, len(tasks)),
		targets: map[domain.Version]string{},
	}
	c.grown = sync.NewCond(&c.mu)
	for _, t := range tasks {
		t.Version = version
		c.changes[t.ID] = []change{{version, t.ID, &t}}
	}
	c.ids = slices.Sorted(maps.Keys(c.changes))
	return c
}

// add takes the changes of one durable command.
func (c *chronicle) add(changes []change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range changes {
		c.early[one.version] = append(c.early[one.version], one)
	}
	for next := c.early[c.newest+1]; next != nil; next = c.early[c.newest+1] {
		c.newest++
		delete(c.early, c.newest)
		for _, one := range next {
			if one.id == "" {
				continue
			}
			if at, known := slices.BinarySearch(c.ids, one.id); !known {
				c.ids = slices.Insert(c.ids, at, one.id)
			}
			c.changes[one.id] = append(c.changes[one.id], one)
			c.targets[c.newest] = one.id
		}
	}
	c.grown.Broadcast()
}

func (c *chronicle) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.grown.Broadcast()
}

// await waits until every commit up to a version is known.
func (c *chronicle) await(version domain.Version) error {
	if newest, _ := c.until(version); newest < version {
		return fmt.Errorf("version %d is asked for and the newest commit is %d", version, newest)
	}
	return nil
}

// until waits until every commit up to a version is known, or nothing more will be.
func (c *chronicle) until(version domain.Version) (newest domain.Version, ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.newest < version && !c.ended {
		c.grown.Wait()
	}
	return c.newest, c.ended
}

func (c *chronicle) at() (newest domain.Version, ended bool) { return c.until(0) }

// world is every task as of a version, in the order of their IDs.
func (c *chronicle) world(asOf domain.Version) []*domain.Task {
	c.mu.Lock()
	defer c.mu.Unlock()
	tasks := make([]*domain.Task, 0, len(c.ids))
	for _, id := range c.ids {
		all := c.changes[id]
		for i := len(all) - 1; i >= 0; i-- {
			if all[i].version <= asOf {
				if all[i].task != nil {
					tasks = append(tasks, all[i].task)
				}
				break
			}
		}
	}
	return tasks
}

// blocked is what their predecessors make of the tasks of a world.
func (c *chronicle) blocked(world []*domain.Task) map[string]domain.BlockedReason {
	there := make(map[string]*domain.Task, len(world))
	for _, t := range world {
		there[t.ID] = t
	}
	before := map[string][]domain.Task{}
	for _, e := range c.edges {
		if source := there[e.SourceTaskID]; source != nil {
			before[e.TargetTaskID] = append(before[e.TargetTaskID], *source)
		}
	}
	blocked := make(map[string]domain.BlockedReason, len(before))
	for id, predecessors := range before {
		blocked[id] = domain.BlockedBy(predecessors)
	}
	return blocked
}

// tasks is the list of tasks as of a version.
func (c *chronicle) tasks(asOf domain.Version, filter query.TaskFilter) []*query.Task {
	var list []*query.Task
	world := c.world(asOf)
	blocked := c.blocked(world)
	for _, t := range world {
		if among(filter.WorkflowIDs, t.WorkflowID) && among(filter.States, string(t.State)) &&
			(filter.Parent == nil || *filter.Parent == t.ParentID) &&
			(filter.IncludeArchived || t.ArchivedAt.IsZero()) && (filter.IncludeEphemeral || !t.Ephemeral) {
			list = append(list, &query.Task{Task: *t, Blocked: blocked[t.ID]})
		}
	}
	return list
}

// relations is the list of relations as of a version.
func (c *chronicle) relations(asOf domain.Version) []*query.Relation {
	var list []*query.Relation
	world := c.world(asOf)
	versions := make(map[string]domain.Version, len(world))
	for _, t := range world {
		versions[t.ID] = t.Version
	}
	for _, t := range world {
		if parent := versions[t.ParentID]; parent != 0 {
			list = append(list, &query.Relation{
				TaskRelation: domain.TaskRelation{
					WorkspaceID: t.WorkspaceID, Kind: domain.RelationParent, SourceTaskID: t.ParentID, TargetTaskID: t.ID,
					CreatedAt: t.CreatedAt, Version: t.Version,
				},
				SourceVersion: parent, TargetVersion: t.Version,
			})
		}
	}
	for _, e := range c.edges {
		if source, target := versions[e.SourceTaskID], versions[e.TargetTaskID]; source != 0 && target != 0 {
			list = append(list, &query.Relation{TaskRelation: e, SourceVersion: source, TargetVersion: target})
		}
	}
	slices.SortFunc(list, func(a, b *query.Relation) int {
		return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.SourceTaskID, b.SourceTaskID), strings.Compare(a.TargetTaskID, b.TargetTaskID))
	})
	return list
}

// chronicled is a store that tells a chronicle what was written.
type chronicled struct {
	legacy.Store
	chronicle *chronicle
	// aging is held by a write from before it asks for the time until it is durable,
	// and by who sets the clock.
	aging sync.RWMutex
}

// Write implements legacy.Store.
func (s *chronicled) Write(ctx context.Context, workspaceID string, fn func(legacy.Tx) error) error {
	var changes []change
	err := s.Store.Write(ctx, workspaceID, func(tx legacy.Tx) error {
		changes = nil
		return fn(chronicledTx{tx, &changes})
	})
	if err == nil {
		s.chronicle.add(changes)
	}
	return err
}

type chronicledTx struct {
	legacy.Tx
	changes *[]change
}

// Append implements board.Tx. A commit may change no task.
func (tx chronicledTx) Append(e journal.Entry) error {
	*tx.changes = append(*tx.changes, change{version: tx.Version()})
	return tx.Tx.Append(e)
}

// InsertTask implements legacy.TaskTx.
func (tx chronicledTx) InsertTask(t domain.Task) error {
	*tx.changes = append(*tx.changes, change{tx.Version(), t.ID, &t})
	return tx.Tx.InsertTask(t)
}

// UpdateTask implements board.Tx.
func (tx chronicledTx) UpdateTask(t domain.Task) error {
	*tx.changes = append(*tx.changes, change{tx.Version(), t.ID, &t})
	return tx.Tx.UpdateTask(t)
}

// DeleteTask implements legacy.TaskTx.
func (tx chronicledTx) DeleteTask(t domain.Task) error {
	*tx.changes = append(*tx.changes, change{tx.Version(), t.ID, nil})
	return tx.Tx.DeleteTask(t)
}

// The seeded tasks stand in groups of ten. The first of every fifth group is the parent
// of the others; a group belongs to the writer that its number says.
const (
	loadGroup  = 10
	treeEvery  = 5
	adoptEvery = 50
	// adopted is which of them the adopter's child is.
	adopted = 2*loadGroup + 7
)

// adopter is a parent of many, which nobody writes.
var adopter = taskID(0)

func loadTask(at time.Time, i int) domain.Task {
	t := task("w", taskID(i), int32(i))
	t.WorkflowID, t.WorkflowStepID, t.Source = "w-flow", "w-done", domain.PluginSource(plugin.PluginID)
	t.CreatorInstallationID = plugin.InstallationID
	group := i / loadGroup
	switch {
	case i%100 == 3:
		t.WorkflowID, t.WorkflowStepID = "w-side", "w-aside"
	case i%100 == 4:
		t.ArchivedAt = at
	case i%100 == 5:
		t.Ephemeral = true
	case i%5 == 1:
		t.State = domain.TaskReview
	}
	switch {
	case group > 0 && group%treeEvery == 0 && i%loadGroup != 0:
		t.ParentID = taskID(group * loadGroup)
	case i%adoptEvery == adopted:
		t.ParentID = adopter
	}
	return t
}

// loadEdges are dependencies: of the last three tasks of some groups the first waits for
// the second and both for the third; most of the adopter's children wait for one task,
// and one of them for many.
func loadEdges(at time.Time) (edges []domain.TaskRelation) {
	edge := func(source, target int) {
		edges = append(edges, domain.TaskRelation{
			Kind: domain.RelationDependency, SourceTaskID: taskID(source), TargetTaskID: taskID(target), CreatedAt: at,
		})
	}
	for first := 2 * adoptEvery; first < loadTasks; first += adoptEvery {
		edge(first+8, first+7)
		edge(first+9, first+7)
		edge(first+9, first+8)
		edge(first+9, first+adopted)
		edge(first+8, adopted)
	}
	return edges
}

// loadWriter changes, moves, creates and deletes tasks that no other writer does.
type loadWriter struct {
	store  *chronicled
	host   *legacy.Host
	now    func() time.Time
	number int
	random *rand.Rand
	// created and moved are tasks to come back to; gone are those that are deleted.
	created, moved []string
	gone           map[string]bool
}

// root is the root of a tree of the writer's.
func (w *loadWriter) root() string {
	for {
		group := treeEvery * (1 + w.random.IntN(loadTasks/loadGroup/treeEvery-1))
		if id := taskID(group * loadGroup); group%loadWriters == w.number && !w.gone[id] {
			return id
		}
	}
}

func (w *loadWriter) isRoot(id string) bool {
	var i int
	n, err := fmt.Sscanf(id, "task-%d", &i)
	return n == 1 && err == nil && id == taskID(i) && i%(treeEvery*loadGroup) == 0
}

// any is any task of the writer's.
func (w *loadWriter) any() string {
	for {
		group := loadWriters*w.random.IntN(loadTasks/loadGroup/loadWriters) + w.number
		id := taskID(group*loadGroup + w.random.IntN(loadGroup))
		switch w.random.IntN(8) {
		case 0:
			if len(w.created) > 0 {
				id = w.created[w.random.IntN(len(w.created))]
			}
		case 1:
			id = w.root()
		}
		if id != adopter && !w.gone[id] {
			return id
		}
	}
}

func (w *loadWriter) write(ctx context.Context) error {
	w.store.aging.RLock()
	defer w.store.aging.RUnlock()
	switch n := w.random.IntN(10); {
	case n < 4:
		return w.change(ctx, w.any())
	case n < 7:
		return w.move(ctx)
	case n < 9:
		return w.create(ctx)
	default:
		return w.remove(ctx)
	}
}

func (w *loadWriter) change(ctx context.Context, id string) error {
	err := w.store.Write(ctx, "w", func(tx legacy.Tx) error {
		t, found, err := tx.Task(id)
		if err != nil || !found {
			return errors.Join(err, fmt.Errorf("found: %t", found))
		}
		t.Title, t.Version, t.UpdatedAt = fmt.Sprintf("%s as of %d", id, tx.Version()), tx.Version(), w.now()
		switch w.random.IntN(4) {
		case 0:
			t.State = []domain.TaskState{domain.TaskTodo, domain.TaskReview, domain.TaskCompleted}[w.random.IntN(3)]
		case 1:
			if t.ArchivedAt.IsZero() {
				t.ArchivedAt = w.now()
			} else {
				t.ArchivedAt = time.Time{}
			}
		case 2:
			if !w.isRoot(id) { // which would make rings
				t.ParentID = []string{"", adopter, w.root()}[w.random.IntN(3)]
			}
		}
		e := entry("w", uuid.NewString(), id)
		e.At = w.now()
		return errors.Join(tx.UpdateTask(t), tx.Append(e))
	})
	if err != nil {
		return fmt.Errorf("change %s: %w", id, err)
	}
	return nil
}

func (w *loadWriter) move(ctx context.Context) error {
	id := w.any()
	// One that moved lately may hold a slot that others wait for.
	if n := len(w.moved); n > 0 && w.random.IntN(2) == 0 {
		if lately := w.moved[n-1-w.random.IntN(min(n, 8))]; !w.gone[lately] {
			id = lately
		}
	}
	w.moved = append(w.moved, id)
	to := []string{"w-ready", "w-work", "w-review", "w-done", "w-aside"}[w.random.IntN(5)]
	if _, err := w.host.MoveTask(ctx, plugin, legacy.TaskMove{TaskID: id, WorkflowStepID: to}); err != nil {
		return fmt.Errorf("move %s to %s: %w", id, to, err)
	}
	return nil
}

func (w *loadWriter) create(ctx context.Context) error {
	step := []string{"w-done", "w-aside"}[w.random.IntN(2)]
	flow := map[string]string{"w-done": "w-flow", "w-aside": "w-side"}[step]
	asked := legacy.NewTask{Title: "t", WorkspaceID: "w", WorkflowID: flow, WorkflowStepID: step}
	if w.random.IntN(2) == 0 {
		asked.ParentID = adopter
	}
	created, err := w.host.CreateTask(ctx, plugin, asked)
	if err != nil {
		return fmt.Errorf("create in %s: %w", step, err)
	}
	w.created = append(w.created, created.ID)
	return nil
}

func (w *loadWriter) remove(ctx context.Context) error {
	root := w.any()
	if w.random.IntN(2) == 0 {
		root = w.root()
	}
	deleted, err := w.host.DeletePluginOwnedTaskTree(ctx, plugin, root)
	if err != nil || !slices.Contains(deleted, root) {
		return errors.Join(fmt.Errorf("delete the tree of %s: deleted %v", root, deleted), err)
	}
	for _, id := range deleted {
		w.gone[id] = true
	}
	return nil
}

// listing is one list, as it is asked for and as it should be.
type listing[T any] struct {
	limit int32
	page  func(context.Context, *query.Reader, query.Page) (query.List[T], *admission.Refusal)
	want  func(asOf domain.Version) []*T
}

var loadEnvelope = admission.Envelope{RequestID: "r", WorkspaceID: "w"}

func (c *chronicle) taskListing(limit int32, filter query.TaskFilter) listing[query.Task] {
	return listing[query.Task]{
		limit: limit,
		page: func(ctx context.Context, r *query.Reader, page query.Page) (query.List[query.Task], *admission.Refusal) {
			list, _, refusal := r.Tasks(ctx, installation, admission.Method{Name: "ListTasksExact", Capability: contract.ReadTasks}, loadEnvelope, filter, page)
			return list, refusal
		},
		want: func(asOf domain.Version) []*query.Task { return c.tasks(asOf, filter) },
	}
}

func (c *chronicle) relationListing(limit int32) listing[query.Relation] {
	return listing[query.Relation]{
		limit: limit,
		page: func(ctx context.Context, r *query.Reader, page query.Page) (query.List[query.Relation], *admission.Refusal) {
			list, _, refusal := r.Relations(ctx, installation, admission.Method{Name: "ListTaskRelationsExact", Capability: contract.ReadTasks}, loadEnvelope, "", page)
			return list, refusal
		},
		want: c.relations,
	}
}

// errGrewOld is the answer to who goes on with a list that has grown too old.
var errGrewOld = errors.New("the list's snapshot is no longer kept")

// read reads one list to its end and compares each item with the world at the list's
// snapshot. between is called behind the first page.
func (l listing[T]) read(ctx context.Context, c *chronicle, r *query.Reader, between func(asOf domain.Version) error) (items int, err error) {
	var asOf domain.Version
	var want []*T
	page := query.Page{Limit: l.limit}
	for {
		list, refusal := l.page(ctx, r, page)
		if refusal != nil {
			if refusal.Reason == contract.ReasonStaleResourceVersion && refusal.State == contract.StateConflict && refusal.Field == "page.cursor" {
				return 0, errGrewOld
			}
			return 0, fmt.Errorf("read behind %d items: %w", items, refusal)
		}
		if page.Cursor == "" {
			_, text, _ := strings.Cut(list.SnapshotVersion, ".")
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("the snapshot is %q: %w", list.SnapshotVersion, err)
			}
			asOf = domain.Version(n)
			if err := c.await(asOf); err != nil {
				return 0, err
			}
			want = l.want(asOf)
		} else if list.SnapshotVersion != page.SnapshotVersion {
			return 0, fmt.Errorf("a list as of %s goes on as of %s", page.SnapshotVersion, list.SnapshotVersion)
		}
		for i := range list.Items {
			got := &list.Items[i]
			if items == len(want) {
				return 0, fmt.Errorf("as of %d, behind all %d items: %+v", asOf, items, *got)
			}
			if !reflect.DeepEqual(got, want[items]) {
				return 0, fmt.Errorf("as of %d, item %d is\n%+v, want\n%+v", asOf, items, *got, *want[items])
			}
			items++
		}
		if list.NextCursor == "" {
			if items != len(want) {
				return 0, fmt.Errorf("as of %d, the list ends behind %d of %d items, before\n%+v", asOf, items, len(want), *want[items])
			}
			return items, nil
		}
		if len(list.Items) != int(l.limit) {
			return 0, fmt.Errorf("as of %d, a page that isn't the last has %d items of %d", asOf, len(list.Items), l.limit)
		}
		if page.Cursor == "" && between != nil {
			if err := between(asOf); err != nil {
				return 0, err
			}
		}
		page.Cursor, page.SnapshotVersion = list.NextCursor, list.SnapshotVersion
	}
}

// underLoad is what readers and writers share.
type underLoad struct {
	*world
	chronicle *chronicle
	reader    *query.Reader
	// ages counts how often lists have grown old, each time before they do.
	ages atomic.Int64
	// begun: every reader has a first page.
	begun sync.WaitGroup
}

// keepReading reads a list again and again until the writers are done.
func keepReading[T any](ctx context.Context, u *underLoad, l listing[T], begun func()) (lists, items, old int, err error) {
	defer begun()
	between := func(asOf domain.Version) error {
		begun()
		return u.chronicle.await(asOf + overtaken)
	}
	for ended := false; !ended || lists == 0; {
		ages := u.ages.Load()
		from, _ := u.chronicle.at()
		n, err := l.read(ctx, u.chronicle, u.reader, between)
		switch {
		case errors.Is(err, errGrewOld) && u.ages.Load() > ages:
			old++
		case err != nil:
			return lists, items, old, err
		default:
			lists, items = lists+1, items+n
		}
		between = nil
		if err == nil {
			_, ended = u.chronicle.until(from + loadPace)
		}
	}
	return lists, items, old, nil
}

// growOld lets the snapshot of a list grow too old between two pages, which has to be
// said, and reads the list anew.
func (u *underLoad) growOld(ctx context.Context, s *chronicled, begun func()) error {
	defer begun()
	list := u.chronicle.taskListing(50, query.TaskFilter{Parent: &adopter})
	for range loadAgeings {
		_, err := list.read(ctx, u.chronicle, u.reader, func(asOf domain.Version) error {
			begun()
			if err := u.chronicle.await(asOf + overtaken); err != nil {
				return err
			}
			s.aging.Lock()
			u.clock.advance(store.SnapshotLife + time.Minute)
			s.aging.Unlock()
			u.ages.Add(1)
			return u.Prune(ctx, u.clock.Now())
		})
		if !errors.Is(err, errGrewOld) {
			return fmt.Errorf("a list that has grown old ends with %w", err)
		}
		if _, err := list.read(ctx, u.chronicle, u.reader, nil); err != nil {
			return fmt.Errorf("the list, begun anew: %w", err)
		}
	}
	return nil
}

// Many readers page through many tasks while others change, move, create and delete
// them: every list is the world at its snapshot, whatever came after.
func testUnderLoad(t *testing.T, d Database) {
	w := open(t, d)
	w.seedBoard("w", 2, 3)
	w.grant("w")
	tasks := make([]domain.Task, loadTasks)
	for i := range tasks {
		tasks[i] = loadTask(w.now(), i)
	}
	edges := loadEdges(w.now())
	w.must(w.Seed(t.Context(), "w", func(tx store.SeedTx) error {
		err := errors.Join(
			tx.Workflow(domain.Workflow{ID: "w-side", Name: "Side", CreatedAt: w.now(), UpdatedAt: w.now()}),
			tx.WorkflowStep(domain.WorkflowStep{ID: "w-aside", WorkflowID: "w-side", Position: 1}),
		)
		for _, one := range tasks {
			if err == nil {
				err = tx.Task(one)
			}
		}
		for _, one := range edges {
			if err == nil {
				err = tx.Relation(one)
			}
		}
		return err
	}))
	var seeded domain.Version
	w.must(w.Read(t.Context(), func(s query.Snapshot) (err error) { seeded, _, err = s.Head("w"); return err }))
	c := newChronicle(seeded, tasks, edges)
	written := &chronicled{Store: w.Legacy(), chronicle: c}
	host := w.v1()
	host.Store = written
	var named atomic.Int64
	host.NewID = func() string { // among the others, not behind them
		return fmt.Sprintf("%s-%d", taskID(rand.IntN(loadTasks)), named.Add(1))
	}
	cursorKey, err := query.NewCursorKey()
	w.must(err)
	cursors, err := query.NewCursors(cursorKey)
	w.must(err)
	u := &underLoad{world: w, chronicle: c, reader: &query.Reader{
		Store: w, View: &fixedView{authority.Observed{Synced: true, Vector: activeRow(key("w"), 1).Sum}}, Receipts: discard{},
		Cursors: cursors, Now: w.clock.Now, NewAuditID: uuid.NewString,
	}}

	var readers, writers sync.WaitGroup
	reading := func(name string, read func(begun func()) (lists, items, old int, err error)) {
		u.begun.Add(1)
		begun := sync.OnceFunc(u.begun.Done)
		readers.Go(func() {
			lists, items, old, err := read(begun)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			t.Logf("%s: %d lists of %d items in all; %d grew old", name, lists, items, old)
		})
	}
	for name, l := range map[string]listing[query.Task]{
		"all tasks":           c.taskListing(200, query.TaskFilter{IncludeArchived: true, IncludeEphemeral: true}),
		"tasks in review":     c.taskListing(63, query.TaskFilter{States: []string{string(domain.TaskReview)}, IncludeArchived: true}),
		"tasks of a workflow": c.taskListing(7, query.TaskFilter{WorkflowIDs: []string{"w-side"}}),
		"children of a task":  c.taskListing(20, query.TaskFilter{Parent: &adopter}),
	} {
		reading(name, func(begun func()) (int, int, int, error) { return keepReading(t.Context(), u, l, begun) })
	}
	reading("relations", func(begun func()) (int, int, int, error) {
		return keepReading(t.Context(), u, c.relationListing(200), begun)
	})
	reading("lists that grow old", func(begun func()) (int, int, int, error) {
		return loadAgeings, 0, loadAgeings, u.growOld(t.Context(), written, begun)
	})
	for i := range loadWriters {
		lw := &loadWriter{
			store: written, host: host, now: w.clock.Now, number: i, gone: map[string]bool{},
			random: rand.New(rand.NewPCG(1, uint64(i))),
		}
		writers.Go(func() {
			u.begun.Wait()
			for n := range loadWrites {
				if t.Failed() {
					return
				}
				if err := lw.write(t.Context()); err != nil {
					t.Errorf("write %d of writer %d: %v", n, i, err)
					return
				}
			}
		})
	}
	writers.Wait()
	c.end()
	readers.Wait()
	if t.Failed() {
		return
	}

	newest, _ := c.at()
	entries := w.entries("w")
	if int(newest) != len(entries) {
		t.Fatalf("the journal has %d entries, %d commits are known", len(entries), newest)
	}
	for _, e := range entries[seeded:] {
		target, changed := c.targets[e.Version]
		if !changed && e.EventType == board.EventDependenciesResolved {
			continue // it changes nothing, and tells who waited for what is gone
		}
		if e.TargetID != target {
			t.Fatalf("entry %d is of %q, the commit changed %q", e.Version, e.TargetID, target)
		}
	}
	t.Logf("%d commits during the reads", newest-seeded)
	u.noticesNewer(t, c, host)
}

// noticesNewer shows that the comparison fails on a list that goes on with a newer
// world: a test that passes on it would test nothing.
func (u *underLoad) noticesNewer(t *testing.T, c *chronicle, host *legacy.Host) {
	t.Helper()
	faulty := *u.reader
	faulty.Store = newest{u.Store}
	children := query.TaskFilter{Parent: &adopter}
	all := c.taskListing(50, children)
	asOf, _ := c.at()
	world := c.tasks(asOf, children)
	last := world[len(world)-1]
	title := "changed behind the first page"
	for what, change := range map[string]func() error{
		"a change": func() error {
			_, err := host.UpdateTask(t.Context(), plugin, legacy.TaskUpdate{ID: last.ID, Title: &title})
			return err
		},
		"a deletion": func() error {
			_, err := host.DeletePluginOwnedTaskTree(t.Context(), plugin, world[len(world)/2].ID)
			return err
		},
	} {
		var changed error
		_, err := all.read(t.Context(), c, &faulty, func(domain.Version) error { changed = change(); return changed })
		u.must(changed)
		if err == nil {
			t.Errorf("a list that shows %s of after its snapshot passes", what)
			continue
		}
		t.Logf("noticed: %s", err)
	}
	u.noticesNewerPredecessors(t, c, host)
}

// noticesNewerPredecessors shows the same of what tasks wait for.
func (u *underLoad) noticesNewerPredecessors(t *testing.T, c *chronicle, host *legacy.Host) {
	t.Helper()
	faulty := *u.reader
	faulty.Store = newestPredecessors{u.Store}
	asOf, _ := c.at()
	blocked, there := map[string]domain.BlockedReason{}, map[string]*domain.Task{}
	for _, task := range c.tasks(asOf, query.TaskFilter{Parent: &adopter}) {
		blocked[task.ID] = task.Blocked
	}
	for _, task := range c.world(asOf) {
		there[task.ID] = task
	}
	// One that is far behind the first page.
	last := -1
	for i, e := range c.edges {
		if source := there[e.SourceTaskID]; blocked[e.TargetTaskID] == domain.BlockedPending && e.TargetTaskID != taskID(adopted) && source != nil &&
			source.DependencyStatus() == domain.DependencyPending {
			last = i
		}
	}
	if last < 0 {
		t.Fatal("no child of the adopter waits for anything")
	}
	failed := string(domain.TaskFailed)
	var changed error
	_, err := c.taskListing(50, query.TaskFilter{Parent: &adopter}).read(t.Context(), c, &faulty, func(domain.Version) error {
		_, changed = host.UpdateTask(t.Context(), plugin, legacy.TaskUpdate{ID: c.edges[last].SourceTaskID, State: &failed})
		return changed
	})
	u.must(changed)
	if err == nil {
		t.Error("a list that shows what became of predecessors after its snapshot passes")
		return
	}
	t.Logf("noticed: %s", err)
}

// newestPredecessors is a store that shows what tasks wait for as it is, whatever is
// asked for.
type newestPredecessors struct{ *store.Store }

// Read implements query.Store.
func (n newestPredecessors) Read(ctx context.Context, fn func(query.Snapshot) error) error {
	return n.Store.Read(ctx, func(s query.Snapshot) error { return fn(newestPredecessorsSnapshot{s}) })
}

type newestPredecessorsSnapshot struct{ query.Snapshot }

// Predecessors implements query.TaskSnapshot.
func (s newestPredecessorsSnapshot) Predecessors(workspaceID string, ids []string, _ domain.Version) (map[string][]domain.Task, error) {
	return s.Snapshot.Predecessors(workspaceID, ids, query.Latest)
}

// newest is a store whose lists of tasks show the newest world, whichever is asked for.
type newest struct{ *store.Store }

// Read implements query.Store.
func (n newest) Read(ctx context.Context, fn func(query.Snapshot) error) error {
	return n.Store.Read(ctx, func(s query.Snapshot) error { return fn(newestSnapshot{s}) })
}

type newestSnapshot struct{ query.Snapshot }

// Tasks implements query.TaskSnapshot.
func (s newestSnapshot) Tasks(workspaceID string, filter query.TaskFilter, _ domain.Version, after string, limit int) ([]domain.Task, error) {
	head, _, err := s.Head(workspaceID)
	if err != nil {
		return nil, err
	}
	return s.Snapshot.Tasks(workspaceID, filter, head, after, limit)
}
