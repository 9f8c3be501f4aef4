package domain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// graph reads edges written "source>target", dependencies unless they end in
// "/parent".
func graph(t *testing.T, edges ...string) (all []TaskRelation, read RelationsOf) {
	t.Helper()
	for _, e := range edges {
		text, kind, _ := strings.Cut(e, "/")
		source, target, ok := strings.Cut(text, ">")
		if !ok {
			t.Fatalf("%q is no edge", e)
		}
		if kind == "" {
			kind = string(RelationDependency)
		}
		all = append(all, TaskRelation{Kind: RelationKind(kind), SourceTaskID: source, TargetTaskID: target})
	}
	return all, reader(all)
}

func reader(all []TaskRelation) RelationsOf {
	return func(ids []string) (found []TaskRelation, err error) {
		for _, r := range all {
			if slices.Contains(ids, r.SourceTaskID) || slices.Contains(ids, r.TargetTaskID) {
				found = append(found, r)
			}
		}
		return found, nil
	}
}

func TestWireRelations_refusals(t *testing.T) {
	_, none := graph(t)
	task := func(id, workspace string) Task { return Task{ID: id, WorkspaceID: workspace} }
	for _, c := range []struct {
		kind           RelationKind
		source, target Task
		text           string
	}{
		{RelationDependency, task("a", "w"), task("b", "w"), ""},
		{RelationDependency, task("", ""), task("b", "w"), "both task_id and depends_on_task_id are required"},
		{RelationDependency, task("a", "w"), task("", ""), "both task_id and depends_on_task_id are required"},
		{RelationDependency, task("a", "w"), task("a", "w"), "a task cannot depend on itself"},
		{RelationDependency, task("a", "x"), task("b", "w"), "task a belongs to a different workspace"},
		{RelationParent, task("a", "w"), task("a", "w"), "a task cannot be its own parent"},
		{RelationParent, task("", "w"), task("a", "w"), "both task_id and parent_id are required"},
	} {
		checkRule(t, c.text, CheckNewRelation(c.kind, c.source, c.target, none), FaultInvalid, c.text)
	}
}

func TestWireRelations_cycle(t *testing.T) {
	for _, c := range []struct {
		name           string
		kind           RelationKind
		source, target string
		edges          []string
		path           string
	}{
		{"two", RelationDependency, "a", "b", []string{"b>a"}, "b -> a -> b"},
		{"longer", RelationDependency, "a", "b", []string{"b>c", "c>d", "d>a", "x>a", "b>y"}, "b -> a -> d -> c -> b"},
		{"shortest", RelationDependency, "a", "b", []string{"b>c", "c>a", "b>a"}, "b -> a -> b"},
		{"the other direction", RelationDependency, "b", "a", []string{"b>c", "c>d"}, ""},
		{"of the other kind", RelationDependency, "a", "b", []string{"b>a/parent"}, ""},
		{"parents", RelationParent, "a", "b", []string{"b>c/parent", "c>a/parent", "b>a"}, "b -> a -> c -> b"},
		{"a cycle elsewhere", RelationDependency, "a", "b", []string{"c>a", "d>c", "c>d"}, ""},
		{"there already", RelationDependency, "a", "b", []string{"a>b"}, ""},
	} {
		_, read := graph(t, c.edges...)
		err := CheckNewRelation(c.kind, Task{ID: c.source}, Task{ID: c.target}, read)
		var cycle *CycleError
		switch {
		case c.path == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.path != "" && (!errors.As(err, &cycle) || cycle.Error() != string(c.kind)+" cycle: "+c.path):
			t.Errorf("%s: %v, want %s", c.name, err, c.path)
		}
	}
}

func TestWireRelations_searchLimit(t *testing.T) {
	chain := func(n int) RelationsOf {
		var edges []string
		for i := range n {
			edges = append(edges, fmt.Sprintf("n%d>n%d", i+1, i))
		}
		_, read := graph(t, edges...)
		return read
	}
	source, target := Task{ID: "n0"}, Task{ID: "new"}
	if err := CheckNewRelation(RelationDependency, source, target, chain(MaxRelationSearch-1)); err != nil {
		t.Errorf("%d tasks: %v", MaxRelationSearch, err)
	}
	if err := CheckNewRelation(RelationDependency, source, target, chain(MaxRelationSearch)); !errors.Is(err, ErrRelationSearch) {
		t.Errorf("one more: %v", err)
	}
	failed := errors.New("store is gone")
	broken := func([]string) ([]TaskRelation, error) { return nil, failed }
	if err := CheckNewRelation(RelationDependency, source, target, broken); !errors.Is(err, failed) {
		t.Errorf("a failing read: %v", err)
	}
	if _, err := RelationClosure("a", 10, broken); !errors.Is(err, failed) {
		t.Errorf("a failing read of a closure: %v", err)
	}
}

func TestH2c_closure(t *testing.T) {
	_, read := graph(t,
		"root>kid/parent", "kid>grandkid/parent", "top>root/parent", "top>sibling/parent", // up only one step
		"pre>root", "prepre>pre", "root>after", "after>afterafter", // down only one step
		"kidpre>kid", "pre>other", "elsewhere>pre/parent", "prepre>prekid/parent", "prekid>root",
	)
	closure, err := RelationClosure("root", 100, read)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range closure {
		got = append(got, string(r.Kind)[:1]+":"+r.SourceTaskID+">"+r.TargetTaskID)
	}
	want := []string{
		"d:kidpre>kid", "d:pre>root", "d:prekid>root", "d:prepre>pre", "d:root>after",
		"p:kid>grandkid", "p:prepre>prekid", "p:root>kid", "p:top>root",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
	if _, err := RelationClosure("root", 7, read); err != nil { // root, kid, grandkid, pre, prepre, prekid, kidpre
		t.Errorf("at the limit: %v", err)
	}
	if _, err := RelationClosure("root", 6, read); !errors.Is(err, ErrRelationSearch) {
		t.Errorf("beyond the limit: %v", err)
	}
	_, cyclic := graph(t, "a>b", "b>a", "a>a/parent")
	if closure, err := RelationClosure("a", 10, cyclic); err != nil || len(closure) != 3 {
		t.Errorf("a cycle: %v, %v", closure, err)
	}
}

// Whatever is admitted stays free of cycles, and only what would close one is
// refused.
func TestWireRelations_cycle_model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []TaskRelation
		var reach [6][6]bool // reach[a][b]: a leads to b
		for range rapid.IntRange(0, 20).Draw(t, "edges") {
			a, b := rapid.IntRange(0, 5).Draw(t, "source"), rapid.IntRange(0, 5).Draw(t, "target")
			if a == b {
				continue
			}
			err := CheckNewRelation(RelationDependency, Task{ID: fmt.Sprint(a)}, Task{ID: fmt.Sprint(b)}, reader(all))
			if (err != nil) != reach[b][a] {
				t.Fatalf("%d>%d among %v: %v", a, b, all, err)
			}
			if err != nil {
				continue
			}
			all = append(all, TaskRelation{Kind: RelationDependency, SourceTaskID: fmt.Sprint(a), TargetTaskID: fmt.Sprint(b)})
			for x := range reach {
				for y := range reach {
					reach[x][y] = reach[x][y] || (x == a || reach[x][a]) && (y == b || reach[b][y])
				}
			}
		}
	})
}

func TestWireDependencies_status(t *testing.T) {
	for _, state := range taskStates {
		want := DependencyPending
		switch state {
		case TaskCompleted:
			want = DependencyResolved
		case TaskFailed, TaskCancelled:
			want = DependencyFailed
		}
		if got := (Task{State: state}).DependencyStatus(); got != want {
			t.Errorf("%s: %q", state, got)
		}
		if want == DependencyResolved {
			want = DependencyPending
		}
		if got := (Task{State: state, ArchivedAt: later}).DependencyStatus(); got != want {
			t.Errorf("%s, archived: %q", state, got)
		}
	}
	resolved, failed, open := Task{State: TaskCompleted}, Task{State: TaskFailed}, Task{State: TaskTodo}
	for _, c := range []struct {
		predecessors []Task
		want         BlockedReason
	}{
		{nil, BlockedNot},
		{[]Task{resolved, resolved}, BlockedNot},
		{[]Task{resolved, failed}, BlockedFailed},
		{[]Task{failed, open}, BlockedPending},
		{[]Task{open, failed}, BlockedPending},
	} {
		if got := BlockedBy(c.predecessors); got != c.want {
			t.Errorf("%v: %q, want %q", c.predecessors, got, c.want)
		}
	}
	if !RelationParent.Known() || !RelationDependency.Known() || RelationKind("blocks").Known() {
		t.Error("relation kinds")
	}
}
