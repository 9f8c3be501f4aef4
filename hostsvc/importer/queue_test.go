package importer_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/importer"
	"github.com/kandev/plugin-host/hostsvc/query"
)

// C2: a task that is queued for another step has its move in the same commit, however
// the documents are cut into batches, and a document of its own takes its place.
func TestAQueuedTaskHasItsMove(t *testing.T) {
	base := lines(conversation...) + aFeeder
	const queuedSince = `,"queued_for_step_id":"s","queued_at":"2026-02-01T00:00:00Z"}`
	task := func(id, more string) string {
		return fmt.Sprintf(`{"kind":"task","workspace_id":"w","id":%q,"workflow_step_id":"feeder","title":"T"%s`+"\n", id, more)
	}
	for name, c := range map[string]struct {
		text string
		want string
	}{
		"by its task alone": {task("x", queuedSince), "x of x since 2026-02-01, admitted true"},
		"by its own document": {
			task("x", queuedSince) + `{"kind":"transition","workspace_id":"w","id":"y","task_id":"x","to_step_id":"s","predicate":"wip_slot","expires_at":"2026-09-01T00:00:00Z"}` + "\n",
			"y of x since 2026-02-01 until 2026-09-01, admitted true",
		},
		"by its own document, which says when": {
			task("x", queuedSince) + `{"kind":"transition","workspace_id":"w","id":"y","task_id":"x","to_step_id":"s","predicate":"wip_slot","created_at":"2026-03-01T00:00:00Z"}` + "\n",
			"y of x since 2026-03-01, admitted true",
		},
		"not of one that is archived": {task("x", `,"archived_at":"2026-04-01T00:00:00Z"`+queuedSince), ""},
		"not of one that waits in the step itself": {
			`{"kind":"task","workspace_id":"w","id":"x","workflow_step_id":"s","title":"T"` + queuedSince, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for engine, open := range databases(t) {
				s := openStore(t, open(t))
				batch := map[string]int{"sqlite": 1, "postgres": 100}[engine]
				if _, err := check(t, s, base+c.text, importer.Options{BatchDocuments: batch}); err != nil {
					t.Fatalf("%s, %d at a time, rehearsed: %v", engine, batch, err)
				}
				if _, err := run(t, s, base+c.text, importer.Options{BatchDocuments: batch}); err != nil {
					t.Fatalf("%s, %d at a time: %v", engine, batch, err)
				}
				err := s.Read(t.Context(), func(r query.Snapshot) error {
					newest, _, err := r.Head("w")
					if err != nil {
						return err
					}
					moves, err := r.PendingTransitions("w", "", newest, "", 10)
					if err != nil {
						return err
					}
					got := ""
					for _, p := range moves {
						of, _, _, err := r.Task("w", p.TaskID)
						if err != nil {
							return err
						}
						until := ""
						if !p.ExpiresAt.IsZero() {
							until = " until " + p.ExpiresAt.Format(time.DateOnly)
						}
						if !p.Takes(of) || p.ToWorkflowID != "f" || p.FromWorkflowID != "f" || p.Predicate != domain.PredicateSlot {
							t.Errorf("%+v isn't the move of %+v", p, of)
						}
						got += fmt.Sprintf("%s of %s since %s%s, admitted %t", p.ID, p.TaskID, p.QueuedAt.Format(time.DateOnly), until, of.WIPAdmitted)
					}
					if got != c.want {
						t.Errorf("%s, %d at a time: pending is %q, want %q", engine, batch, got, c.want)
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
