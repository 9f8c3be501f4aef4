package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/legacy"
	"github.com/kandev/plugin-host/hostsvc/query"
	"github.com/kandev/plugin-host/hostsvc/store"
)

// reading is an engine that keeps the statements that are read with.
type reading struct {
	store.Engine
	statements []store.Statement
}

// Read implements store.Engine.
func (e *reading) Read(ctx context.Context, fn func(store.Conn) error) error {
	return e.Engine.Read(ctx, func(c store.Conn) error { return fn(readingConn{c, e}) })
}

type readingConn struct {
	store.Conn
	engine *reading
}

// Query implements store.Conn.
func (c readingConn) Query(statement string, row func(store.Row) error, args ...any) error {
	c.engine.statements = append(c.engine.statements, store.Statement{Text: statement, Args: args})
	return c.Conn.Query(statement, row, args...)
}

// RunPlans asks an engine whose planner doesn't depend on what is in the tables how it
// reads each list of conversations: by ranges of an index in the list's order, so that
// neither a scan nor a sort grows with the table. explain returns the steps of a plan.
func RunPlans(t *testing.T, d Database, explain func(c store.Conn, statement store.Statement) (steps []string, err error)) {
	t.Helper()
	engine := &reading{Engine: d.Open(t)}
	w := openOn(t, engine)
	w.seed("w", 2)
	for range 2 { // so that a version is closed
		_, err := w.talk("w", func(tx talkTx) error {
			s := domain.Session{ID: "s", WorkspaceID: "w", TaskID: taskID(0), State: domain.SessionRunning, Version: tx.Version()}
			if _, found, err := tx.Session("s"); err != nil || found {
				return errors.Join(err, tx.UpdateSession(s))
			}
			return tx.InsertSession(s)
		})
		w.must(err)
	}
	newest, _, err := w.Head(t.Context(), "w")
	w.must(err)
	at := talkStart
	two, many := []string{"a", "b"}, make([]string, 100)
	for i := range many {
		many[i] = taskID(i)
	}
	asOf := newest - 1 // so that closed versions are read too
	explained := 0
	check := func(index string, err error) {
		t.Helper()
		w.must(err)
		statements := engine.statements
		engine.statements = nil
		w.must(engine.Engine.Read(t.Context(), func(c store.Conn) error {
			for _, statement := range statements {
				if strings.Contains(statement.Text, "FROM heads") {
					continue
				}
				explained++
				steps, err := explain(c, statement)
				if err != nil {
					return err
				}
				for _, step := range steps {
					if strings.Contains(step, "TEMP B-TREE") || strings.Contains(step, " USING ") && !strings.Contains(step, index+" ") && !strings.HasSuffix(step, index) {
						t.Errorf("%s\nis to be read by %s and is by: %s", statement.Text, index, strings.Join(steps, "; "))
					}
				}
			}
			return nil
		}))
	}
	exact := func(index string, fn func(s query.Snapshot) error) {
		t.Helper()
		check(index, w.Read(t.Context(), fn))
	}
	sessions := func(index string, filter query.SessionFilter) {
		t.Helper()
		exact(index, func(s query.Snapshot) error { _, err := s.Sessions("w", filter, asOf, "", 10); return err })
	}
	sessions("_order", query.SessionFilter{})
	sessions("_task", query.SessionFilter{TaskIDs: two})
	sessions("_task", query.SessionFilter{TaskIDs: many, States: two})
	sessions("_state", query.SessionFilter{States: two})
	messages := func(index string, filter query.MessageFilter) {
		t.Helper()
		exact(index, func(s query.Snapshot) error { _, err := s.Messages("w", filter, asOf, "", 10); return err })
	}
	messages("_order", query.MessageFilter{})
	messages("_order", query.MessageFilter{Since: &at, Until: &at})
	messages("_session", query.MessageFilter{SessionIDs: two})
	messages("_session", query.MessageFilter{SessionIDs: many, Types: two, Since: &at})
	messages("_session", query.MessageFilter{SessionIDs: two, TaskIDs: two})
	messages("_task", query.MessageFilter{TaskIDs: two, Types: two})
	messages("_type", query.MessageFilter{Types: two})
	pending := func(index string, filter query.InteractionFilter) {
		t.Helper()
		exact(index, func(s query.Snapshot) error { _, err := s.PendingInteractions("w", filter, asOf, "", 10); return err })
	}
	pending("_order", query.InteractionFilter{})
	pending("_order", query.InteractionFilter{Kinds: two})
	pending("_session", query.InteractionFilter{SessionIDs: two, TaskIDs: two})
	pending("_task", query.InteractionFilter{TaskIDs: two, Kinds: two})
	inbox := func(index string, filter query.InboxFilter) {
		t.Helper()
		exact(index, func(s query.Snapshot) error { _, err := s.Inbox("w", filter, asOf, "", 10); return err })
	}
	inbox("_order", query.InboxFilter{})
	inbox("_session", query.InboxFilter{SessionID: "s"})
	inbox("_task", query.InboxFilter{TaskID: "t"})

	v1 := func(index string, fn func(s legacy.Snapshot) error) {
		t.Helper()
		check(index, w.Legacy().Read(t.Context(), fn))
	}
	v1Sessions := func(index string, filter legacy.SessionFilter) {
		t.Helper()
		v1(index, func(s legacy.Snapshot) error { _, err := s.AllSessions(filter, 5, 10); return err })
	}
	v1Sessions("_all", legacy.SessionFilter{})
	v1Sessions("_task", legacy.SessionFilter{TaskIDs: two, WorkspaceIDs: two})
	v1Sessions("_order", legacy.SessionFilter{WorkspaceIDs: two})
	v1Messages := func(index string, filter legacy.MessageRange) {
		t.Helper()
		v1(index, func(s legacy.Snapshot) error { _, err := s.AllMessages(filter, 5, 10); return err })
	}
	v1Messages("_all", legacy.MessageRange{})
	v1Messages("_all", legacy.MessageRange{Since: &at, Until: &at, Types: two})
	v1Messages("_session", legacy.MessageRange{SessionIDs: two, TaskIDs: two})
	v1Messages("_task", legacy.MessageRange{TaskIDs: two, Types: two})
	v1Pending := func(index string, filter legacy.InteractionFilter) {
		t.Helper()
		v1(index, func(s legacy.Snapshot) error { _, err := s.AllPending(filter, 5, 10); return err })
	}
	v1Pending("_all", legacy.InteractionFilter{})
	v1Pending("_session", legacy.InteractionFilter{SessionIDs: two})
	v1Pending("_task", legacy.InteractionFilter{TaskIDs: two, Kinds: two})
	explainPredecessors(t, engine, w, asOf, explain)
	const least = 40
	if explained < least {
		t.Errorf("only %d statements were explained", explained)
	}
}

// explainPredecessors demands that what tasks wait for is found from the tasks that are
// asked for: neither all edges nor all tasks of a workspace are looked at.
func explainPredecessors(t *testing.T, engine *reading, w *world, asOf domain.Version, explain func(c store.Conn, statement store.Statement) (steps []string, err error)) {
	t.Helper()
	engine.statements = nil
	w.must(w.Read(t.Context(), func(s query.Snapshot) error {
		_, latest := s.Predecessors("w", []string{"a", "b"}, query.Latest)
		_, older := s.Predecessors("w", []string{"a", "b"}, asOf)
		return errors.Join(latest, older)
	}))
	statements := slices.DeleteFunc(engine.statements, func(s store.Statement) bool { return strings.Contains(s.Text, "FROM heads") })
	if len(statements) != 2 {
		t.Fatalf("it is read by %d statements", len(statements))
	}
	w.must(engine.Engine.Read(t.Context(), func(c store.Conn) error {
		for i, terms := range []int{1, 4} {
			steps, err := explain(c, statements[i])
			if err != nil {
				return err
			}
			found := 0
			for _, step := range steps {
				switch {
				case strings.HasPrefix(step, "SEARCH r ") && strings.Contains(step, "_target ") && strings.Contains(step, "target_task_id=?"),
					strings.HasPrefix(step, "SEARCH p ") && strings.Contains(step, "id=?"):
					found++
				case strings.HasPrefix(step, "SEARCH"), strings.HasPrefix(step, "SCAN"):
					t.Errorf("%s\nis read by: %s", statements[i].Text, strings.Join(steps, "; "))
				}
			}
			if found != 2*terms {
				t.Errorf("%s\nis read by: %s", statements[i].Text, strings.Join(steps, "; "))
			}
		}
		return nil
	}))
}
