package importer

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

// Sample is made-up content for trying things out at scale. The same Sample is always
// the same stream.
type Sample struct {
	// Prefix begins every ID, so that several samples fit into one store.
	Prefix string
	// Workspaces is how many there are; Tasks and Messages are divided between them.
	Workspaces, Tasks, Messages int
	// SessionMessages is how many messages a session has at most. A task has as many
	// sessions as its share of the messages needs.
	SessionMessages int
}

// Check returns what is wrong with the sample.
func (s Sample) Check() error {
	switch {
	case s.Prefix == "" || len(s.Prefix) > 64 || shown(s.Prefix) != s.Prefix:
		return fmt.Errorf("prefix %q: write 1 to 64 letters, digits, - and _", s.Prefix)
	case s.Workspaces < 1 || s.Tasks < s.Workspaces:
		return fmt.Errorf("%d tasks in %d workspaces: there must be a workspace, and a task for each", s.Tasks, s.Workspaces)
	case s.Messages < 0 || s.SessionMessages < 1:
		return fmt.Errorf("%d messages, %d for each session: the first must not be negative, the second at least 1", s.Messages, s.SessionMessages)
	}
	return nil
}

// sampleVersion is part of a sample's digest: whoever changes what a sample says
// counts it up.
const sampleVersion = 1

// Source is the sample as a source of an import.
func (s Sample) Source() Source {
	digest := fmt.Sprintf("sample:%d:%s:%d:%d:%d:%d", sampleVersion, s.Prefix, s.Workspaces, s.Tasks, s.Messages, s.SessionMessages)
	return Source{Name: "sample", Digest: digest, Open: func() (io.ReadCloser, error) {
		out, in := io.Pipe()
		go func() { in.CloseWithError(s.Write(in)) }()
		return out, nil
	}}
}

// Write writes the sample as JSON lines.
func (s Sample) Write(out io.Writer) error {
	if err := s.Check(); err != nil {
		return err
	}
	w := &sampleWriter{Sample: s, buffer: bufio.NewWriterSize(out, 64<<10)}
	w.json = json.NewEncoder(w.buffer)
	w.json.SetEscapeHTML(false)
	w.all()
	if w.err == nil {
		w.err = w.buffer.Flush()
	}
	return w.err
}

type fieldsOf = map[string]any

// sampleWriter writes one sample. The first error ends it.
type sampleWriter struct {
	Sample
	buffer *bufio.Writer
	json   *json.Encoder
	err    error
	// random is drawn anew for each task, from its number.
	random *rand.Rand
	// clock is when what is written happened.
	clock time.Time
}

// sampleBegins is when the first thing of a sample happened.
var sampleBegins = time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)

var (
	sampleSteps    = []string{"To do", "Doing", "Review", "Done"}
	sampleStages   = []string{"custom", "work", "review", "custom"}
	sampleStates   = []string{"TODO", "IN_PROGRESS", "REVIEW", "COMPLETED"}
	sampleSessions = []string{"CREATED", "RUNNING", "WAITING_FOR_INPUT", "COMPLETED"}
	sampleVerbs    = []string{"Rotate", "Document", "Measure", "Replace", "Review", "Test", "Simplify", "Monitor", "Migrate", "Remove"}
	sampleThings   = []string{
		"the signing key", "the import of orders", "the search index", "the retry policy", "the billing report", "the login page",
		"the build cache", "the audit log", "the rate limiter", "the backup job", "the feature flags", "the mail templates",
	}
	sampleSentences = []string{
		"Look at how it is done today before changing anything.", "The tests cover the common path and one failure.",
		"I found two callers that rely on the old order.", "This needs a migration that can be run twice.",
		"The change is small; the release note isn't written yet.", "It works here, but not with an empty configuration.",
		"Let me run the suite again to be certain.", "Done. What is left is the documentation.",
	}
	sampleTypes = []string{"message", "content", "tool_call", "tool_execute", "thinking", "tool_read", "content", "message"}
)

// pick chooses by the writer's random numbers.
func pick(w *sampleWriter, of []string) string { return of[w.random.IntN(len(of))] }

func (w *sampleWriter) put(kind string, fields fieldsOf) {
	if w.err != nil {
		return
	}
	fields["kind"] = kind
	if err := w.json.Encode(fields); err != nil {
		w.err = fmt.Errorf("write the sample: %w", err)
	}
}

// tick lets some time go by, and returns when it is.
func (w *sampleWriter) tick(by time.Duration) string {
	w.clock = w.clock.Add(by)
	return w.clock.Format(time.RFC3339Nano)
}

func (w *sampleWriter) all() {
	w.clock = sampleBegins
	w.put("agent_profile", fieldsOf{
		"id": w.Prefix + "-agent", "agent_id": "sample-agent", "display_name": "Sample agent", "name": "Default",
		"model": "sample-1", "created_at": w.tick(0),
	})
	w.put("executor_profile", fieldsOf{
		"id": w.Prefix + "-executor", "display_name": "Local worktree", "executor_type": "worktree", "created_at": w.tick(0),
	})
	task := 0
	for i := range w.Workspaces {
		workspace := fmt.Sprintf("%s-%03d", w.Prefix, i)
		w.topology(workspace, i)
		// The first task of the next workspace.
		end := w.Tasks * (i + 1) / w.Workspaces
		for first := task; task < end && w.err == nil; task++ {
			w.task(workspace, task, first)
		}
	}
}

func (w *sampleWriter) topology(workspace string, number int) {
	at := w.tick(0)
	w.put("workspace", fieldsOf{
		"id": workspace, "name": fmt.Sprintf("Team %d", number+1), "sort_order": number, "created_at": at,
	})
	w.put("repository", fieldsOf{
		"workspace_id": workspace, "id": workspace + "-repo", "name": fmt.Sprintf("team-%d", number+1), "default_branch": "main",
		"source_type": "provider", "provider_id": "github", "provider_repository_id": fmt.Sprintf("%d", 1000+number),
		"provider_host": "git.example", "owner_or_project": "example", "provider_name": fmt.Sprintf("team-%d", number+1),
		"remote_url": fmt.Sprintf("https://git.example/example/team-%d.git", number+1), "created_at": at,
	})
	w.put("workflow", fieldsOf{"workspace_id": workspace, "id": workspace + "-flow", "name": "Delivery", "created_at": at})
	for i, name := range sampleSteps {
		w.put("step", fieldsOf{
			"workspace_id": workspace, "workflow_id": workspace + "-flow", "id": sampleStep(workspace, i), "name": name,
			"position": i, "stage_type": sampleStages[i], "is_start_step": i == 0, "allow_manual_move": true,
		})
	}
}

func sampleStep(workspace string, number int) string {
	return fmt.Sprintf("%s-step-%d", workspace, number)
}

func (w *sampleWriter) taskID(number int) string { return fmt.Sprintf("%s-t-%08d", w.Prefix, number) }

// task writes a task with what belongs to it; first is the first task of its
// workspace.
func (w *sampleWriter) task(workspace string, number, first int) {
	w.random = rand.New(rand.NewPCG(uint64(number), sampleVersion)) //nolint:gosec // the same numbers every time
	w.clock = sampleBegins.Add(time.Duration(number) * time.Minute)
	step := w.random.IntN(len(sampleSteps))
	id := w.taskID(number)
	fields := fieldsOf{
		"workspace_id": workspace, "id": id, "workflow_step_id": sampleStep(workspace, step), "position": number - first,
		"title": pick(w, sampleVerbs) + " " + pick(w, sampleThings), "description": pick(w, sampleSentences),
		"state": sampleStates[step], "priority": pick(w, []string{"medium", "medium", "low", "high", "critical"}),
		"identifier": fmt.Sprintf("T-%d", number+1), "labels": []string{pick(w, []string{"backend", "frontend", "ops"})},
		"repositories": []fieldsOf{{"id": id + "-r", "repository_id": workspace + "-repo", "base_branch": "main"}},
		"created_at":   w.tick(0),
	}
	if step > 0 {
		fields["started_at"] = w.tick(time.Second)
	}
	if step == len(sampleSteps)-1 {
		fields["completed_at"] = w.clock.Add(time.Hour).Format(time.RFC3339Nano)
	}
	// Every eighth task is part of the one before, and every tenth waits for it.
	if number > first && number%8 == 7 {
		fields["parent_id"] = w.taskID(number - 1)
	}
	w.put("task", fields)
	if number > first && number%10 == 9 {
		w.put("relation", fieldsOf{
			"workspace_id": workspace, "source_task_id": w.taskID(number - 1), "target_task_id": id, "created_at": w.tick(0),
		})
	}
	messages := w.Messages*(number+1)/w.Tasks - w.Messages*number/w.Tasks
	for session := 0; messages > 0 && w.err == nil; session++ {
		share := min(messages, w.SessionMessages)
		w.session(workspace, id, session, share, step)
		messages -= share
	}
}

// turnMessages is how many messages a turn of a sample has at most.
const turnMessages = 20

func (w *sampleWriter) session(workspace, task string, number, messages, step int) {
	id := fmt.Sprintf("%s-s%d", task, number)
	state := sampleSessions[step]
	if number > 0 {
		state = "COMPLETED" // the first is the one that goes on
	}
	fields := fieldsOf{
		"workspace_id": workspace, "id": id, "task_id": task, "state": state, "is_primary": number == 0,
		"agent_profile_id": w.Prefix + "-agent", "executor_profile_id": w.Prefix + "-executor",
		"profile_snapshot": fieldsOf{"name": "Default", "agent_display_name": "Sample agent", "model": "sample-1"},
		"started_at":       w.tick(time.Second),
	}
	if state == "COMPLETED" {
		fields["ended_at"] = w.clock.Add(time.Duration(messages+1) * time.Second).Format(time.RFC3339Nano)
	}
	w.put("session", fields)
	for turn := 0; messages > 0 && w.err == nil; turn++ {
		share := min(messages, turnMessages)
		w.turn(workspace, id, turn, share, state == "WAITING_FOR_INPUT" && share == messages)
		messages -= share
	}
	w.put("code_stats", fieldsOf{
		"workspace_id": workspace, "session_id": id, "lines_added_committed": w.random.IntN(400),
		"lines_deleted_committed": w.random.IntN(200), "lines_added_peak_pending": w.random.IntN(100),
	})
}

// turn writes a turn; asks: its last message asks a human.
func (w *sampleWriter) turn(workspace, session string, number, messages int, asks bool) {
	id := fmt.Sprintf("%s-u%d", session, number)
	w.put("turn", fieldsOf{"workspace_id": workspace, "id": id, "session_id": session, "started_at": w.tick(time.Second)})
	for i := range messages {
		fields := fieldsOf{
			"workspace_id": workspace, "id": fmt.Sprintf("%s-m%02d", id, i), "session_id": session, "turn_id": id,
			"author_type": "agent", "type": pick(w, sampleTypes), "created_at": w.tick(time.Second),
			"content": pick(w, sampleSentences) + " " + pick(w, sampleSentences),
		}
		switch {
		case i == 0:
			fields["author_type"], fields["type"], fields["author_id"] = "user", "message", "sample-user"
			fields["content"] = pick(w, sampleSentences) + "\n\n<kandev-system>Keep to the workflow.</kandev-system>"
		case asks && i == messages-1:
			w.ask(fields, id)
		}
		w.put("message", fields)
	}
}

// ask makes a message a request: for permission, or for an answer.
func (w *sampleWriter) ask(fields fieldsOf, turn string) {
	if w.random.IntN(2) == 0 {
		fields["type"], fields["content"] = "permission_request", "Run the migration"
		fields["metadata"] = fieldsOf{
			"pending_id": turn + "-p", "tool_call_id": turn + "-call", "action_type": "execute",
			"options": []fieldsOf{
				{"option_id": "allow", "name": "Allow once", "kind": "allow_once"},
				{"option_id": "reject", "name": "Reject", "kind": "reject_once"},
			},
		}
		return
	}
	fields["type"], fields["content"], fields["requests_input"] = "clarification_request", "Which branch is it for?", true
	fields["metadata"] = fieldsOf{
		"pending_id": turn + "-p", "question_id": "q1", "question_index": 0, "question_total": 1, "status": "pending",
		"question": fieldsOf{
			"id": "q1", "title": "Branch", "prompt": "Which branch is it for?",
			"options": []fieldsOf{
				{"option_id": "main", "label": "main", "description": "The next release"},
				{"option_id": "stable", "label": "stable", "description": "A fix for this release"},
			},
		},
	}
}
