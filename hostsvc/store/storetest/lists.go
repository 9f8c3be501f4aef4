package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/query"
	"github.com/kandev/plugin-host/hostsvc/store"
)

// model is the workspace as it should be: every version of the world.
type model map[domain.Version]map[string]domain.Task

func (m model) list(asOf domain.Version, filter query.TaskFilter, after string, limit int) []domain.Task {
	var out []domain.Task
	for _, id := range slices.Sorted(maps.Keys(m[asOf])) {
		t := m[asOf][id]
		switch {
		case id <= after,
			len(filter.States) > 0 && !slices.Contains(filter.States, string(t.State)),
			len(filter.WorkflowIDs) > 0 && !slices.Contains(filter.WorkflowIDs, t.WorkflowID),
			filter.Parent != nil && t.ParentID != *filter.Parent,
			!filter.IncludeArchived && !t.ArchivedAt.IsZero():
			continue
		}
		if len(out) < limit {
			out = append(out, t)
		}
	}
	return out
}

func testLists(t *testing.T, d Database) {
	w := open(t, d)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		workspace := fmt.Sprintf("w%d", round)
		worlds := model{0: {}}
		var newest domain.Version
		states := []domain.TaskState{domain.TaskTodo, domain.TaskReview, domain.TaskCompleted}
		change := func(rt *rapid.T) {
			next := task(workspace, taskID(rapid.IntRange(0, 6).Draw(rt, "task")), 0)
			next.State = rapid.SampledFrom(states).Draw(rt, "state")
			next.WorkflowID = rapid.SampledFrom([]string{"flow-1", "flow-2"}).Draw(rt, "workflow")
			next.ParentID = rapid.SampledFrom([]string{"", "parent"}).Draw(rt, "parent")
			if rapid.Bool().Draw(rt, "archived") {
				next.ArchivedAt = next.CreatedAt
			}
			_, exists := worlds[newest][next.ID]
			err := w.Write(context.Background(), workspace, func(tx command.Tx) error {
				next.Version = tx.Version()
				write := tx.InsertTask
				if exists {
					write = tx.UpdateTask
				}
				return errors.Join(write(next), tx.Append(entry(workspace, fmt.Sprint(next.Version), next.ID)))
			})
			if err != nil {
				rt.Fatal(err)
			}
			now := maps.Clone(worlds[newest])
			now[next.ID] = next
			newest = next.Version
			worlds[newest] = now
		}
		list := func(rt *rapid.T) {
			asOf := domain.Version(rapid.Uint64Range(0, uint64(newest)).Draw(rt, "as of"))
			filter := query.TaskFilter{IncludeArchived: rapid.Bool().Draw(rt, "archived too")}
			for range rapid.IntRange(0, 3).Draw(rt, "states") {
				filter.States = append(filter.States, string(rapid.SampledFrom(states).Draw(rt, "state")))
			}
			if rapid.Bool().Draw(rt, "one workflow") {
				filter.WorkflowIDs = []string{"flow-2"}
			}
			if rapid.Bool().Draw(rt, "by parent") {
				parent := rapid.SampledFrom([]string{"", "parent"}).Draw(rt, "parent")
				filter.Parent = &parent
			}
			after := taskID(rapid.IntRange(0, 6).Draw(rt, "after"))
			limit := rapid.IntRange(1, 8).Draw(rt, "limit")
			var got []domain.Task
			err := w.Read(context.Background(), func(s query.Snapshot) (err error) {
				got, err = s.Tasks(workspace, filter, asOf, after, limit)
				return err
			})
			if err != nil {
				rt.Fatal(err)
			}
			if want := worlds.list(asOf, filter, after, limit); !reflect.DeepEqual(got, want) {
				rt.Fatalf("as of %d (newest %d) after %s: got\n%+v, want\n%+v", asOf, newest, after, got, want)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){"change": change, "list": list})
	})
}

// Pages of one list show one version while others write.
func testListsConcurrently(t *testing.T, d Database) {
	w := open(t, d)
	const tasks = 40
	w.seed("w", tasks)
	stop := make(chan struct{})
	var wait sync.WaitGroup
	for i := range 4 {
		wait.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				// Each command sets two tasks to the same title.
				err := w.Write(t.Context(), "w", func(tx command.Tx) error {
					title := fmt.Sprintf("%d-%d", i, n)
					for _, id := range []string{taskID(0), taskID(tasks - 1)} {
						current, _, err := tx.Task(id)
						if err != nil {
							return err
						}
						current.Title, current.Version = title, tx.Version()
						if err := tx.UpdateTask(current); err != nil {
							return err
						}
					}
					return tx.Append(entry("w", title, taskID(0)))
				})
				if err != nil {
					t.Errorf("write: %v", err)
					return
				}
			}
		})
	}
	for range 30 {
		var asOf domain.Version
		var all []domain.Task
		for after, more := "", true; more; {
			w.must(w.Read(t.Context(), func(s query.Snapshot) error {
				newest, oldest, err := s.Head("w")
				if err != nil {
					return err
				}
				if asOf == 0 {
					asOf = newest
				}
				if asOf < oldest || asOf > newest {
					t.Errorf("version %d is not in %d to %d", asOf, oldest, newest)
				}
				page, err := s.Tasks("w", query.TaskFilter{}, asOf, after, 7)
				all = append(all, page...)
				more = len(page) == 7
				if more {
					after = page[6].ID
				}
				return err
			}))
		}
		if len(all) != tasks {
			t.Fatalf("the pages hold %d tasks, want %d", len(all), tasks)
		}
		if first, last := all[0], all[tasks-1]; asOf > 1 && (first.Title != last.Title || first.Version != last.Version) {
			t.Fatalf("as of %d the list shows %q of %d and %q of %d", asOf, first.Title, first.Version, last.Title, last.Version)
		}
	}
	close(stop)
	wait.Wait()
}

func testPrune(t *testing.T, d Database) {
	w := open(t, d)
	w.seed("w", 1)
	write := func(n int) {
		for range n {
			w.must(w.Write(t.Context(), "w", func(tx command.Tx) error {
				current, _, err := tx.Task(taskID(0))
				current.Title, current.Version = fmt.Sprint(tx.Version()), tx.Version()
				e := entry("w", current.Title, current.ID)
				e.At = w.clock.Now()
				return errors.Join(err, tx.UpdateTask(current), tx.Append(e))
			}))
		}
	}
	write(3) // versions 2 to 4
	w.clock.advance(store.SnapshotLife)
	write(3) // 5 to 7
	head := func() (newest, oldest domain.Version) {
		t.Helper()
		w.must(w.Read(t.Context(), func(s query.Snapshot) (err error) { newest, oldest, err = s.Head("w"); return err }))
		return newest, oldest
	}
	w.must(w.Prune(t.Context(), w.clock.Now().Add(time.Hour)))
	if _, oldest := head(); oldest != 0 {
		t.Errorf("lists younger than %s were cut off at %d", store.SnapshotLife, oldest)
	}
	w.clock.advance(time.Minute)
	w.must(w.Prune(t.Context(), w.clock.Now()))
	newest, oldest := head()
	if newest != 7 || oldest != 4 {
		t.Errorf("the head is %d, lists go back to %d, want 7 and 4", newest, oldest)
	}
	for asOf := oldest; asOf <= newest; asOf++ {
		var got []domain.Task
		w.must(w.Read(t.Context(), func(s query.Snapshot) (err error) {
			got, err = s.Tasks("w", query.TaskFilter{}, asOf, "", 10)
			return err
		}))
		if len(got) != 1 || got[0].Title != fmt.Sprint(asOf) {
			t.Errorf("as of %d the list is %+v", asOf, got)
		}
	}
	w.clock.advance(time.Hour)
	w.must(w.Prune(t.Context(), w.clock.Now()))
	if _, oldest := head(); oldest != 7 {
		t.Errorf("lists go back to %d, want 7", oldest)
	}
	write(1)
	w.entries("w")
}
