package importer_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kandev/plugin-host/hostsvc/importer"
)

// secret stands in every value that a fault must not quote.
const secret = "hush-hush"

// aFeeder is a step whose task aFedTask waits for a slot of "s".
const (
	aFeeder  = `{"kind":"step","workspace_id":"w","workflow_id":"f","id":"feeder","name":"S"}` + "\n"
	aFedTask = `{"kind":"task","workspace_id":"w","id":"x","workflow_step_id":"feeder","title":"T","queued_for_step_id":"s"}`
)

func TestFaultsNameLineKindIDAndField(t *testing.T) {
	deep := strings.Repeat("[", 40) + strings.Repeat("]", 40)
	base := strings.Join(conversation, "\n") + "\n"
	for name, c := range map[string]struct {
		// text stands behind base, which has 7 lines, unless alone.
		text  string
		alone bool
		// want are the beginnings of the faults.
		want []string
	}{
		"no JSON":            {text: `{"kind":"task","title":"hush-hush`, want: []string{"8: the line is not one JSON object"}},
		"two on a line":      {text: `{} {"hush-hush":1}`, want: []string{"8: the line is not one JSON object"}},
		"no object":          {text: `["hush-hush"]`, want: []string{"8: the line is not one JSON object"}},
		"no kind":            {text: `{"id":"x"}`, want: []string{"8: kind: is no kind of document"}},
		"another kind":       {text: `{"kind":"hush-hush"}`, want: []string{"8: kind: is no kind of document"}},
		"a kind of a number": {text: `{"kind":1}`, want: []string{"8: kind: is not a text"}},
		"a name twice":       {text: `{"kind":"task","id":"x","id":"hush-hush"}`, want: []string{"8: id: stands there twice"}},
		"a name twice below": {text: `{"kind":"task","metadata":{"a":{"b":1,"b":2}}}`, want: []string{"8: b: stands there twice"}},
		"too deep":           {text: `{"kind":"task","metadata":{"a":` + deep + `}}`, want: []string{"8: is nested too deep"}},
		"no UTF-8":           {text: "{\"kind\":\"task\",\"title\":\"\xff\"}", want: []string{"8: the document is not valid UTF-8"}},
		"an unknown field": {
			text: strings.Replace(aTask, `"t"`, `"x","titel":"hush-hush"`, 1), want: []string{`8: task "x": titel: is no field of this kind`},
		},
		"a field of another case": {
			text: strings.Replace(aTask, `"title"`, `"Title"`, 1),
			want: []string{`8: task "t": title: is required`, `8: task "t": Title: is no field of this kind`},
		},
		"an unknown field that says something": {
			text: strings.Replace(aTask, `"t"`, `"x","hush-hush, he said":1`, 1), want: []string{`8: task "x": a field: is no field`},
		},
		"an unknown field below": {
			text: strings.Replace(aTask, `"t"`, `"x","pull_requests":[{"number":1},{"nummer":2}]`, 1),
			want: []string{`8: task "x": pull_requests[1].nummer: is no field`},
		},
		"no ID":          {text: `{"kind":"workspace","name":"hush-hush"}`, want: []string{"8: workspace: id: is required"}},
		"no workspace":   {text: `{"kind":"workflow","id":"x","name":"X"}`, want: []string{`8: workflow "x": workspace_id: is required`}},
		"no text":        {text: `{"kind":"workspace","id":"x","name":7}`, want: []string{`8: workspace "x": name: is not a text`}},
		"too long":       {text: `{"kind":"workspace","id":"x","name":"` + strings.Repeat(secret, 200) + `"}`, want: []string{`8: workspace "x": name: is longer than 1024 bytes`}},
		"a NUL":          {text: `{"kind":"workspace","id":"x","name":"hush-hush\u0000"}`, want: []string{`8: workspace "x": name: holds a NUL byte`}},
		"no number":      {text: `{"kind":"workspace","id":"x","name":"X","sort_order":1.5}`, want: []string{`8: workspace "x": sort_order: is no whole number`}},
		"a large number": {text: `{"kind":"workspace","id":"x","name":"X","sort_order":3000000000}`, want: []string{`8: workspace "x": sort_order: is no whole number`}},
		"no instant":     {text: `{"kind":"workspace","id":"x","name":"X","created_at":"hush-hush"}`, want: []string{`8: workspace "x": created_at: is no instant`}},
		"long ago":       {text: `{"kind":"workspace","id":"x","name":"X","created_at":"0999-01-01T00:00:00Z"}`, want: []string{`8: workspace "x": created_at: is not between`}},
		"changed before it was": {
			text: `{"kind":"workspace","id":"x","name":"X","created_at":"2026-01-02T00:00:00Z","updated_at":"2026-01-01T00:00:00Z"}`,
			want: []string{`8: workspace "x": updated_at: is before created_at`},
		},
		"no flag":        {text: strings.Replace(aStep, `"s"`, `"x","is_start_step":"hush-hush"`, 1), want: []string{`8: step "x": is_start_step: is neither true nor false`}},
		"no object here": {text: strings.Replace(aTask, `"t"`, `"x","metadata":"hush-hush"`, 1), want: []string{`8: task "x": metadata: is no object`}},
		"no list":        {text: strings.Replace(aTask, `"t"`, `"x","labels":"hush-hush"`, 1), want: []string{`8: task "x": labels: is no list`}},
		"no label":       {text: strings.Replace(aTask, `"t"`, `"x","labels":["a",{"hush-hush":1}]`, 1), want: []string{`8: task "x": labels: item 1 is no text`}},
		"no stage":       {text: strings.Replace(aStep, `"s"`, `"x","stage_type":"hush-hush"`, 1), want: []string{`8: step "x": stage_type: is none of work, review, approval, custom`}},

		"a workspace that isn't": {text: strings.Replace(aTask, `"w"`, `"x"`, 1), want: []string{`8: task "t": workspace_id: is no workspace`}},
		"a workspace twice":      {text: aWorkspace, want: []string{`8: workspace "w": id: is there already`}},
		"a task twice":           {text: aTask, want: []string{`8: task "t": id: is there already`}},
		"a message twice":        {text: aMessage, want: []string{`8: message "m": id: is there already`}},
		"a workflow that isn't":  {text: `{"kind":"step","workspace_id":"w","id":"x","workflow_id":"hush","name":"S"}`, want: []string{`8: step "x": workflow_id: is no workflow`}},
		"a feeder that isn't":    {text: strings.Replace(aStep, `"s"`, `"x","pull_from_step_id":"y"`, 1), want: []string{`8: step "x": pull_from_step_id: is no step of the same workflow`}},
		"a step that isn't":      {text: `{"kind":"task","workspace_id":"w","id":"x","workflow_step_id":"y","title":"T"}`, want: []string{`8: task "x": workflow_step_id: is no step`}},
		"no step":                {text: `{"kind":"task","workspace_id":"w","id":"x","title":"T"}`, want: []string{`8: task "x": workflow_step_id: is required`}},
		"another workflow":       {text: strings.Replace(aTask, `"t"`, `"x","workflow_id":"g"`, 1), want: []string{`8: task "x": workflow_id: is not the workflow of workflow_step_id`}},
		"an ephemeral one":       {text: strings.Replace(aTask, `"t"`, `"x","is_ephemeral":true`, 1), want: []string{`8: task "x": is_ephemeral: an ephemeral task is in no workflow`}},
		"a parent that isn't":    {text: strings.Replace(aTask, `"t"`, `"x","parent_id":"y"`, 1), want: []string{`8: task "x": parent_id: is no task`}},
		"its own parent":         {text: strings.Replace(aTask, `"t"`, `"x","parent_id":"x"`, 1), want: []string{`8: task "x": parent_id: is no task`}},
		"a state":                {text: strings.Replace(aTask, `"t"`, `"x","state":"hush-hush"`, 1), want: []string{`8: task "x": state: is none of TODO, CREATED`}},
		"a priority":             {text: strings.Replace(aTask, `"t"`, `"x","priority":"hush-hush"`, 1), want: []string{`8: task "x": priority: is none of critical, high, medium, low`}},
		"its source":             {text: strings.Replace(aTask, `"t"`, `"x","metadata":{"source":"hush-hush"}`, 1), want: []string{`8: task "x": metadata: has a member source`}},
		"a queue that isn't":     {text: strings.Replace(aTask, `"t"`, `"x","queued_for_step_id":"y"`, 1), want: []string{`8: task "x": queued_for_step_id: is no step`}},
		"queued for nothing":     {text: strings.Replace(aTask, `"t"`, `"x","queued_at":"2026-01-01T00:00:00Z"`, 1), want: []string{`8: task "x": queued_at: needs queued_for_step_id`}},
		"queued in another workflow": {
			text: `{"kind":"workflow","workspace_id":"w","id":"g","name":"G"}` + "\n" + `{"kind":"step","workspace_id":"w","workflow_id":"g","id":"elsewhere","name":"S"}` + "\n" +
				strings.Replace(aTask, `"t"`, `"x","queued_for_step_id":"elsewhere"`, 1),
			want: []string{`10: task "x": queued_for_step_id: is a step of another workflow`},
		},
		"a slot that it waits for": {
			text: strings.Replace(aTask, `"t"`, `"x","queued_for_step_id":"s","wip_admitted":true`, 1), want: []string{`8: task "x": wip_admitted: the task waits for a slot`},
		},
		"a queued task whose move's ID is taken": {
			text: aFeeder + `{"kind":"transition","workspace_id":"w","id":"x","task_id":"t","to_step_id":"s","session_id":"c"}` + "\n" + aFedTask,
			want: []string{`10: task "x": queued_for_step_id: a transition has the task's ID already`},
		},
		"a repository that isn't": {
			text: strings.Replace(aTask, `"t"`, `"x","repositories":[{"repository_id":"r"}]`, 1), want: []string{`8: task "x": repositories: one is no repository`},
		},
		"an external ID twice": {
			text: strings.Replace(aTask, `"t"`, `"x","source":"plugin:p","external_id":"e"`, 1) + "\n" +
				strings.Replace(aTask, `"t"`, `"y","source":"plugin:p","external_id":"e"`, 1),
			want: []string{`9: task "y": external_id: another task of the same source has it`},
		},
		"no end of a relation":     {text: `{"kind":"relation","workspace_id":"w","source_task_id":"t"}`, want: []string{"8: relation: target_task_id: is required"}},
		"an end that isn't":        {text: `{"kind":"relation","workspace_id":"w","source_task_id":"t","target_task_id":"y"}`, want: []string{"8: relation: target_task_id: is no task"}},
		"a relation to itself":     {text: `{"kind":"relation","workspace_id":"w","source_task_id":"t","target_task_id":"t"}`, want: []string{"8: relation: target_task_id: a task cannot depend on itself"}},
		"the kind of the relation": {text: `{"kind":"relation","workspace_id":"w","source_task_id":"t","target_task_id":"t","relation_kind":"parent"}`, want: []string{"8: relation: relation_kind: is no field"}},
		"a cycle": {
			text: strings.Replace(aTask, `"t"`, `"x"`, 1) + "\n" + strings.Replace(aTask, `"t"`, `"y"`, 1) + "\n" +
				`{"kind":"relation","workspace_id":"w","source_task_id":"t","target_task_id":"x"}` + "\n" +
				`{"kind":"relation","workspace_id":"w","source_task_id":"x","target_task_id":"y"}` + "\n" +
				`{"kind":"relation","workspace_id":"w","source_task_id":"y","target_task_id":"t"}`,
			want: []string{"12: relation: source_task_id: closes a cycle"},
		},
		"a relation twice": {
			text: strings.Replace(aTask, `"t"`, `"x"`, 1) + "\n" +
				strings.Repeat(`{"kind":"relation","workspace_id":"w","source_task_id":"t","target_task_id":"x"}`+"\n", 2),
			want: []string{"10: relation: is there already"},
		},
		"a move of no task": {text: `{"kind":"step_transition","workspace_id":"w","task_id":"x","occurred_at":"2026-01-01T00:00:00Z"}`, want: []string{"8: step_transition: task_id: is no task"}},
		"a move at no time": {text: `{"kind":"step_transition","workspace_id":"w","task_id":"t","trigger":"hush-hush"}`, want: []string{"8: step_transition: trigger: is none of", "8: step_transition: occurred_at: is required"}},

		"a pending move of no session": {text: `{"kind":"transition","workspace_id":"w","id":"x","task_id":"t","to_step_id":"s"}`, want: []string{`8: transition "x": session_id: is required`}},
		"of another task's session": {
			text: strings.Replace(aTask, `"t"`, `"x"`, 1) + "\n" + `{"kind":"transition","workspace_id":"w","id":"x","task_id":"x","to_step_id":"s","session_id":"c"}`,
			want: []string{`9: transition "x": session_id: is no session of the task`},
		},
		"for a slot, with a session": {text: `{"kind":"transition","workspace_id":"w","id":"x","task_id":"t","to_step_id":"s","session_id":"c","predicate":"wip_slot"}`, want: []string{`8: transition "x": session_id: belongs to predicate turn_end`}},
		"two of one session": {
			text: `{"kind":"transition","workspace_id":"w","id":"x","task_id":"t","to_step_id":"s","session_id":"c"}` + "\n" +
				`{"kind":"transition","workspace_id":"w","id":"y","task_id":"t","to_step_id":"s","session_id":"c"}`,
			want: []string{`9: transition "y": session_id: has a pending transition already`},
		},
		"of a session that is over": {
			text: strings.NewReplacer(`"c"`, `"x"`, "RUNNING", "FAILED").Replace(aSession) + "\n" + `{"kind":"transition","workspace_id":"w","id":"x","task_id":"t","to_step_id":"s","session_id":"x"}`,
			want: []string{`9: transition "x": session_id: is over`},
		},
		"expired, to nowhere": {
			text: `{"kind":"transition","workspace_id":"w","id":"x","task_id":"t","to_step_id":"y","predicate":"wip_slot","expires_at":"2026-01-01T00:00:00Z"}`,
			want: []string{`8: transition "x": expires_at: is over`},
		},
		"for a slot that nobody is queued for": {
			text: `{"kind":"transition","workspace_id":"w","id":"x","task_id":"t","to_step_id":"s","predicate":"wip_slot"}`,
			want: []string{`8: transition "x": to_step_id: is not the step whose slot the task waits for`},
		},
		"for another slot": {
			text: aFeeder + aFedTask + "\n" + `{"kind":"transition","workspace_id":"w","id":"y","task_id":"x","to_step_id":"feeder","predicate":"wip_slot"}`,
			want: []string{`10: transition "y": to_step_id: is not the step whose slot the task waits for`},
		},
		"two for one slot": {
			text: aFeeder + aFedTask + "\n" + `{"kind":"transition","workspace_id":"w","id":"y","task_id":"x","to_step_id":"s","predicate":"wip_slot"}` + "\n" +
				`{"kind":"transition","workspace_id":"w","id":"z","task_id":"x","to_step_id":"s","predicate":"wip_slot"}`,
			want: []string{`11: transition "z": task_id: has a pending transition for a slot already`},
		},
		"to nowhere": {text: `{"kind":"transition","workspace_id":"w","id":"x","task_id":"t","to_step_id":"y","predicate":"wip_slot"}`, want: []string{`8: transition "x": to_step_id: is no step`}},

		"a session of no task":  {text: strings.NewReplacer(`"c"`, `"x"`, `"t"`, `"y"`).Replace(aSession), want: []string{`8: session "x": task_id: is no task`}},
		"a session's state":     {text: strings.NewReplacer(`"c"`, `"x"`, `RUNNING`, secret).Replace(aSession), want: []string{`8: session "x": state: is none of CREATED`}},
		"ended before it began": {text: strings.Replace(aSession, `"c"`, `"x","ended_at":"2025-01-01T00:00:00Z"`, 1), want: []string{`8: session "x": ended_at: is before started_at`}},
		"two primary sessions": {
			text: strings.Replace(aSession, `"c"`, `"x","is_primary":true`, 1) + "\n" + strings.Replace(aSession, `"c"`, `"y","is_primary":true`, 1),
			want: []string{`9: session "y": is_primary: the task has a primary session already`},
		},
		"a turn of no session":    {text: strings.NewReplacer(`"u"`, `"x"`, `"c"`, `"y"`).Replace(aTurn), want: []string{`8: turn "x": session_id: is no session`}},
		"a turn of no time":       {text: `{"kind":"turn","workspace_id":"w","id":"x","session_id":"c"}`, want: []string{`8: turn "x": started_at: is required`}},
		"a message of no session": {text: strings.NewReplacer(`"m"`, `"x"`, `"c"`, `"y"`, `"turn_id":"u",`, "").Replace(aMessage), want: []string{`8: message "x": session_id: is no session`}},
		"a message of no turn":    {text: strings.NewReplacer(`"m"`, `"x"`, `"u"`, `"y"`).Replace(aMessage), want: []string{`8: message "x": turn_id: is no turn of the session`}},
		"a message of nobody":     {text: strings.NewReplacer(`"m"`, `"x"`, `"author_type":"user",`, "").Replace(aMessage), want: []string{`8: message "x": author_type: is required`}},
		"a message of the system": {text: strings.NewReplacer(`"m"`, `"x"`, `"user"`, `"system"`).Replace(aMessage), want: []string{`8: message "x": author_type: is none of user, agent`}},
		"a message's type":        {text: strings.Replace(aMessage, `"m"`, `"x","type":"hush-hush"`, 1), want: []string{`8: message "x": type: is none of message, content`}},
		"a message at no time":    {text: `{"kind":"message","workspace_id":"w","id":"x","session_id":"c","author_type":"user"}`, want: []string{`8: message "x": created_at: is required`}},
		"a long message":          {text: strings.NewReplacer(`"m"`, `"x"`, "hello", strings.Repeat(secret, 120000)).Replace(aMessage), want: []string{`8: message "x": content: is longer than 1048576 bytes`}},
		"a request without its ID": {
			text: strings.NewReplacer(`"m"`, `"x","type":"permission_request"`, `"user"`, `"agent"`).Replace(aMessage),
			want: []string{`8: message "x": metadata: pending_id is required`},
		},
		"a request of a user": {
			text: strings.Replace(aMessage, `"m"`, `"x","type":"permission_request","metadata":{"pending_id":"p"}`, 1),
			want: []string{`8: message "x": author_type: a request is of an agent`},
		},
		"an ID of another request": {
			text: strings.NewReplacer(`"m"`, `"x","type":"permission_request","metadata":{"pending_id":"p"}`, `"user"`, `"agent"`).Replace(aMessage) + "\n" +
				strings.NewReplacer(`"m"`, `"y","type":"clarification_request","metadata":{"pending_id":"p"}`, `"user"`, `"agent"`).Replace(aMessage),
			want: []string{`9: message "y": metadata: pending_id is that of another session or kind`},
		},
		"counts of no session": {text: `{"kind":"code_stats","workspace_id":"w","session_id":"x"}`, want: []string{`8: code_stats "x": session_id: is no session`}},
		"counts of less than nothing": {
			text: `{"kind":"code_stats","workspace_id":"w","session_id":"c","lines_added_committed":-1}`, want: []string{`8: code_stats "c": lines_added_committed: is no whole number`},
		},
		"counts of nobody": {
			text: `{"kind":"code_stats","workspace_id":"w","session_id":"c","lines_added_committed":1,"committed_lines_available":false}`,
			want: []string{`8: code_stats "c": committed_lines_available: is false, but`},
		},
		"a profile in a workspace": {text: `{"kind":"agent_profile","workspace_id":"w","id":"p","name":"P"}`, want: []string{`8: agent_profile "p": workspace_id: is no field`}},
		"a profile twice":          {text: `{"kind":"agent_profile","id":"p","name":"P"}` + "\n" + `{"kind":"agent_profile","id":"p","name":"Q"}`, want: []string{`9: agent_profile "p": id: is there already`}},

		"what refers to what is wrong": {
			text: `{"kind":"task","workspace_id":"w","id":"x","workflow_step_id":"s"}` + "\n" + strings.Replace(aTask, `"t"`, `"y","parent_id":"x"`, 1),
			want: []string{`8: task "x": title: is required`},
		},

		"no YAML":        {alone: true, text: "--- \nkind: [hush-hush\n", want: []string{"1: the document that begins here is not YAML"}},
		"a list":         {alone: true, text: "---\n- hush-hush\n", want: []string{"1: the document that begins here is no mapping"}},
		"a reference":    {alone: true, text: "---\nkind: workspace\nid: &id w\nname: *id\n", want: []string{"3: anchors and references aren't allowed"}},
		"a tag":          {alone: true, text: "---\nkind: workspace\nid: !!binary aHVzaC1odXNo\nname: W\n", want: []string{"3: tags aren't allowed"}},
		"infinity":       {alone: true, text: "---\nkind: workspace\nid: w\nname: W\nsort_order: .inf\n", want: []string{"5: is no number that JSON has"}},
		"a name of YAML": {alone: true, text: "---\nkind: workspace\n1: hush-hush\n", want: []string{"3: a name is no text"}},
		"twice in YAML":  {alone: true, text: "---\nkind: workspace\nid: w\nid: hush-hush\n", want: []string{"4: id: stands there twice"}},
		"lines of YAML": {
			alone: true, text: "# Two\nkind: workspace\nid: w\nname: W\n---\nkind: workflow\nworkspace_id: w\nid: f\nnam: hush-hush\nsort_order: many\n",
			want: []string{`6: workflow "f": name: is required`, `10: workflow "f": sort_order: is no whole number`, `9: workflow "f": nam: is no field`},
		},
		"a number for a text":   {alone: true, text: "---\nkind: workspace\nid: 17\nname: W\n", want: []string{"3: workspace: id: is not a text; put it into quotes"}},
		"a reference in a line": {alone: true, text: "---\nkind: workspace\nid: w\nname: W\n---\nkind: step\nworkspace_id: w\nid: s\nname: S\nworkflow_id: f\n", want: []string{`10: step "s": workflow_id: is no workflow`}},
	} {
		t.Run(name, func(t *testing.T) {
			text := base + c.text
			if c.alone {
				text = c.text
			}
			_, err := check(t, nil, text, importer.Options{})
			faults := faultsOf(t, err)
			if len(faults.Faults) != len(c.want) {
				t.Fatalf("got %d faults, want %d:\n%v", len(faults.Faults), len(c.want), err)
			}
			for i, want := range c.want {
				if got := faults.Faults[i].String(); !strings.HasPrefix(got, want) {
					t.Errorf("fault %d: got  %s\nwant it to begin %s", i, got, want)
				}
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("a fault quotes what the document says: %v", err)
			}
		})
	}
}

func TestFaultsAreToldUpToABound(t *testing.T) {
	var text strings.Builder
	text.WriteString(aWorkspace + "\n")
	for i := range 1000 {
		fmt.Fprintf(&text, `{"kind":"workflow","workspace_id":"w","id":"f%d"}`+"\n", i)
	}
	_, err := check(t, nil, text.String(), importer.Options{})
	faults := faultsOf(t, err)
	if len(faults.Faults) != 20 || !faults.More || !strings.HasSuffix(err.Error(), "and there may be more") {
		t.Errorf("%d faults, more %v", len(faults.Faults), faults.More)
	}
	if want := `file:2: workflow "f0": name: is required` + "\n"; !strings.HasPrefix(err.Error(), want) {
		t.Errorf("it begins %.60q, want %q", err.Error(), want)
	}
}
