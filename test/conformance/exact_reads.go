package main

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// exactReads are the cases of the exact readers.
func exactReads() map[string]methodCases {
	// within is a request of a workspace, with what else it needs.
	within := func(m proto.Message, change func(m proto.Message, foreign bool)) func(*suite, string) proto.Message {
		return func(s *suite, workspace string) proto.Message {
			m := proto.Clone(m)
			setText(m, "request_id", requestID)
			setText(m, "workspace_id", workspace)
			if change != nil {
				change(m, workspace == s.given.ForeignWorkspace)
			}
			return m
		}
	}
	// named sets a text to what there is in the workspace.
	named := func(field protoreflect.Name, here, foreign string) func(proto.Message, bool) {
		return func(m proto.Message, elsewhere bool) {
			name := here
			if elsewhere {
				name = foreign
			}
			setText(m, field, name)
		}
	}
	ofTask := foreignName{"task_id", foreignTask, func(m proto.Message, name string) { setText(m, "task_id", name) }}
	listed := func(field, name string, set func(proto.Message, string)) foreignName {
		return foreignName{"filter." + field, name, set}
	}
	here := func(rows func(*known) []knownRow) func(*known) int {
		return func(k *known) int {
			return len(ids(rows(k), false, func(r knownRow) bool { return r.workspace == k.workspace }))
		}
	}
	relations := func(k *known) int {
		n := many + 25 - 1 - 20
		for _, t := range k.tasks {
			if t.parent != "" && t.workspace == k.workspace {
				n++
			}
		}
		return n
	}
	return map[string]methodCases{
		"GetCapabilityContext": {base: within(&pluginv1.GetCapabilityContextRequest{}, nil), run: getCapabilityContext},
		"ListWorkspacesExact":  {base: within(&pluginv1.ListWorkspacesExactRequest{}, nil), list: &listCases{count: of(1)}},
		"ListWorkflowsExact":   {base: within(&pluginv1.ListWorkflowsExactRequest{}, nil), list: &listCases{count: func(k *known) int { return len(k.workflows) + 1 }}},
		"ListWorkflowStepsExact": {
			base: within(&pluginv1.ListWorkflowStepsExactRequest{}, named("workflow_id", firstFlow, foreignFlow)),
			list: &listCases{count: of(many), filtered: func(m proto.Message) { setText(m, "workflow_id", flow) }, foreign: []foreignName{
				{"workflow_id", foreignFlow, func(m proto.Message, name string) { setText(m, "workflow_id", name) }},
			}},
		},
		"ListTasksExact": {
			base: within(&pluginv1.ListTasksExactRequest{}, nil),
			list: &listCases{
				count: func(k *known) int {
					return len(k.taskIDs(func(t knownTask) bool { return plain(t) && t.workspace == k.workspace }))
				},
				filtered: func(m proto.Message) { filter[*pluginv1.TaskFilter](m).States = []string{"IN_PROGRESS"} },
				foreign: []foreignName{

					listed("workflow_ids", foreignFlow, func(m proto.Message, name string) { filter[*pluginv1.TaskFilter](m).WorkflowIds = []string{name} }),
					listed("parent_id", foreignTask, func(m proto.Message, name string) { filter[*pluginv1.TaskFilter](m).ParentId = &name }),
				},
			},
			run: listTasksExact,
		},
		"GetTaskExact": {base: within(&pluginv1.GetTaskExactRequest{}, named("task_id", parent, foreignTask)), run: func(ctx context.Context, p *probe) {
			p.exactGet(ctx, "task_id", ofTask, "task was not found")
		}},
		"ListSessionsExact": {
			base: within(&pluginv1.ListSessionsExactRequest{}, nil),
			list: &listCases{
				count:    here(func(k *known) []knownRow { return k.sessions }),
				filtered: func(m proto.Message) { filter[*pluginv1.SessionFilter](m).States = []string{"RUNNING"} },
				foreign: []foreignName{
					listed("task_ids", foreignTask, func(m proto.Message, name string) { filter[*pluginv1.SessionFilter](m).TaskIds = []string{name} }),
				},
			},
			run: func(ctx context.Context, p *probe) { p.widened(ctx) },
		},
		"ListPendingInteractionsExact": {
			base: within(&pluginv1.ListPendingInteractionsExactRequest{}, nil),
			list: &listCases{
				count:    here(func(k *known) []knownRow { return k.asked }),
				filtered: func(m proto.Message) { filter[*pluginv1.InteractionFilter](m).Kinds = []string{"permission"} },
				foreign: []foreignName{
					listed("session_ids", foreignSession, func(m proto.Message, name string) {
						filter[*pluginv1.InteractionFilter](m).SessionIds = []string{name}
					}),
					listed("task_ids", foreignTask, func(m proto.Message, name string) { filter[*pluginv1.InteractionFilter](m).TaskIds = []string{name} }),
				},
			},
		},
		"GetInteractionExact": {
			base: within(&pluginv1.GetInteractionExactRequest{}, named("interaction_id", answered, foreignInteraction)),
			run: func(ctx context.Context, p *probe) {
				p.exactGet(ctx, "interaction_id", foreignName{"interaction_id", foreignInteraction, func(m proto.Message, name string) {
					setText(m, "interaction_id", name)
				}}, "interaction was not found")
			},
		},
		"ListSanitizedMessagesExact": {
			base: within(&pluginv1.ListSanitizedMessagesExactRequest{}, nil),
			list: &listCases{
				count:    here(func(k *known) []knownRow { return k.messages }),
				filtered: func(m proto.Message) { filter[*pluginv1.MessageFilter](m).Types = []string{"message"} },
				foreign: []foreignName{
					listed("session_ids", foreignSession, func(m proto.Message, name string) { filter[*pluginv1.MessageFilter](m).SessionIds = []string{name} }),
					listed("task_ids", foreignTask, func(m proto.Message, name string) { filter[*pluginv1.MessageFilter](m).TaskIds = []string{name} }),
				},
			},
			run: listSanitizedMessagesExact,
		},
		"ListTaskInboxExact": {
			base: within(&pluginv1.ListTaskInboxExactRequest{}, nil),
			list: &listCases{
				count:    func(k *known) int { return here(func(k *known) []knownRow { return k.asked })(k) + many },
				filtered: func(m proto.Message) { setText(m, "task_id", "cf-task-010") },
				foreign:  []foreignName{ofTask, {"session_id", foreignSession, func(m proto.Message, name string) { setText(m, "session_id", name) }}},
			},
		},
		"GetTaskRelationsExact": {
			base: within(&pluginv1.GetTaskRelationsExactRequest{}, named("task_id", chained, foreignTask)),
			list: &listCases{
				count: of(upstream), filtered: func(m proto.Message) { setText(m, "task_id", "cf-task-101") }, foreign: []foreignName{ofTask},
			},
		},
		"ListTaskRelationsExact": {
			base: within(&pluginv1.ListTaskRelationsExactRequest{}, nil),
			list: &listCases{count: relations, filtered: func(m proto.Message) { setText(m, "task_id", chained) }, foreign: []foreignName{ofTask}},
		},
		"ListPendingTaskTransitionsExact": {
			base: within(&pluginv1.ListPendingTaskTransitionsExactRequest{}, nil),
			list: &listCases{count: of(many), filtered: func(m proto.Message) { setText(m, "task_id", "cf-task-010") }, foreign: []foreignName{ofTask}},
		},
		"WatchEvents": {base: within(&pluginv1.WatchEventsRequest{}, nil), run: watchEvents},
	}
}

// filter is the filter of a list's request.
func filter[T proto.Message](m proto.Message) T {
	return child(m, "filter").(T) //nolint:forcetypeassert,errcheck // the method's request has it
}

// exactGet makes the cases of a reader of one thing.
func (p *probe) exactGet(ctx context.Context, field protoreflect.Name, foreign foreignName, missing string) {
	a := p.ask(ctx, message(p))
	p.ok("with a receipt", a, func() string {
		receipt, _ := a.message.(interface {
			GetReceipt() *pluginv1.HostReadReceipt
		})
		return p.receiptProblem(receipt.GetReceipt(), requestID, "")
	})
	p.exactEnvelope(ctx)
	p.foreignNames(ctx, []foreignName{foreign})
	with := func(id string) answer {
		m := message(p)
		setText(m, field, id)
		return p.ask(ctx, m)
	}
	p.typed("an unknown ID", with("cf-nothing"), "NOT_FOUND/WORKSPACE_TARGET_NOT_FOUND", "", missing)
	p.typed("no ID", with(""), "INVALID/MISSING_EXACT_FIELD", string(field), "")
	p.typed("an ID with white space at its edge", with("x "), "INVALID/MALFORMED_PRECONDITION", string(field), "")
}

// widened makes the cases of a filter that names other workspaces.
func (p *probe) widened(ctx context.Context) {
	with := func(name string) answer {
		m := message(p)
		f := child(m, "filter").ProtoReflect()
		list := f.Mutable(f.Descriptor().Fields().ByName("workspace_ids")).List()
		list.Append(protoreflect.ValueOfString(name))
		return p.ask(ctx, m)
	}
	text := "exact task filters cannot widen workspace scope"
	if p.method.Name() == "ListSessionsExact" {
		text = "exact session filters cannot widen workspace scope"
	}
	foreign, unknown := p.given.ForeignWorkspace, unknownLike(p.given.ForeignWorkspace)
	p.typed("filter.workspace_ids of another workspace", with(foreign), "INVALID/MALFORMED_PRECONDITION", "filter.workspace_ids", text)
	p.same("filter.workspace_ids of another workspace, and of nothing: the same bytes", with(foreign), foreign, with(unknown), unknown)
	p.ok("filter.workspace_ids of its own workspace", with(p.given.Workspace), nil)
}

func listTasksExact(ctx context.Context, p *probe) {
	p.widened(ctx)
	a := p.ask(ctx, message(p))
	p.ok("resource versions", a, func() string {
		for _, item := range a.message.(*pluginv1.ListTasksExactResponse).GetItems() { //nolint:forcetypeassert,errcheck // it is the method's
			if item.GetResourceVersion() == "" || item.GetTask().GetWorkspaceId() != p.given.Workspace {
				return item.String()
			}
		}
		return ""
	})
}

func listSanitizedMessagesExact(ctx context.Context, p *probe) {
	for _, level := range []struct{ asked, applied string }{
		{"", "system_context_removed"}, {"system_context_removed", "system_context_removed"}, {"content_removed", "content_removed"},
	} {
		m := message(p)
		setText(m, "sanitization", level.asked)
		filter[*pluginv1.MessageFilter](m).SessionIds = []string{spoken}
		a := p.ask(ctx, m)
		p.ok(fmt.Sprintf("sanitization %q", level.asked), a, func() string {
			for _, item := range a.message.(*pluginv1.ListSanitizedMessagesExactResponse).GetItems() { //nolint:forcetypeassert,errcheck // likewise
				content := item.GetMessage().GetContent()
				if item.GetSanitization() != level.applied || item.GetCanonicalDigest() == "" || item.GetResourceVersion() == "" ||
					(content == "") != (level.applied == "content_removed") || len(content) > len("seen 200 ") && content != "May I?" {
					return item.String()
				}
			}
			return ""
		})
	}
	m := message(p)
	setText(m, "sanitization", "none")
	p.typed("an unknown sanitization", p.ask(ctx, m), "INVALID/MALFORMED_PRECONDITION", "sanitization", "")
}

func getCapabilityContext(ctx context.Context, p *probe) {
	ask := func(of *installation, m *pluginv1.GetCapabilityContextRequest) (*pluginv1.GetCapabilityContextResponse, answer) {
		r, err := p.host.GetCapabilityContext(as(ctx, of.token), m)
		return r, answer{r, err}
	}
	for i := range p.given.Installations {
		of := &p.given.Installations[i]
		r, a := ask(of, &pluginv1.GetCapabilityContextRequest{RequestId: requestID})
		p.ok("all workspaces of "+of.Name, a, func() string {
			if r.GetContractVersion() != declaredContract || r.GetAuditId() == "" {
				return "contract_version " + r.GetContractVersion()
			}
			got := map[string]int{}
			for _, w := range r.GetWorkspaces() {
				got[w.GetWorkspaceId()] = len(w.GetCapabilityIds())
				if w.GetCapabilityRevision() == 0 {
					return w.String()
				}
			}
			if len(got) != len(of.Approvals) {
				return fmt.Sprint(got)
			}
			for workspace, capabilities := range of.Approvals {
				if got[workspace] != len(capabilities) {
					return fmt.Sprint(got)
				}
			}
			return ""
		})
	}
	r, a := ask(p.first(), &pluginv1.GetCapabilityContextRequest{RequestId: requestID, WorkspaceId: p.given.Workspace})
	p.ok("one workspace", a, func() string {
		c := r.GetContext()
		if c.GetApprovalState() != "active" || c.GetApprovalRevision() != p.revisions[p.given.Workspace] || c.GetLimits()["page_size"] != largestPage ||
			c.GetLimits()["command_payload_bytes"] != 65536 || len(c.GetOperations()) == 0 || c.GetOperations()[0].GetMethod() != "GetCapabilityContext" {
			return c.String()
		}
		for _, o := range c.GetOperations() {
			want := o.GetCapabilityId() == "" || p.first().approved(p.given.Workspace, o.GetCapabilityId())
			if !o.GetSupported() || o.GetAuthorized() != want || (o.GetUnavailableReason() == "") != want {
				return o.String()
			}
		}
		return ""
	})
	unknown := unknownLike(p.given.ForeignWorkspace)
	_, a = ask(p.first(), &pluginv1.GetCapabilityContextRequest{RequestId: requestID, WorkspaceId: p.given.ForeignWorkspace})
	_, b := ask(p.first(), &pluginv1.GetCapabilityContextRequest{RequestId: requestID, WorkspaceId: unknown})
	p.same("a workspace that never approved, and one that isn't there: the same bytes", a, p.given.ForeignWorkspace, b, unknown)
	_, a = ask(p.first(), &pluginv1.GetCapabilityContextRequest{})
	p.typed("request_id absent", a, "INVALID/MISSING_EXACT_FIELD", "request_id", "")
	_, a = ask(p.first(), &pluginv1.GetCapabilityContextRequest{RequestId: requestID, WorkspaceId: " x"})
	p.typed("workspace_id with white space at its edge", a, "INVALID/MALFORMED_PRECONDITION", "workspace_id", "")
}

func watchEvents(ctx context.Context, p *probe) {
	watch := func(change func(*pluginv1.WatchEventsRequest)) answer {
		m := &pluginv1.WatchEventsRequest{RequestId: requestID}
		change(m)
		return p.ask(ctx, m)
	}
	a := watch(func(*pluginv1.WatchEventsRequest) {})
	first, _ := a.message.(*pluginv1.WatchEventsResponse)
	p.ok("capability-context-changed comes first, with a cursor", a, func() string {
		if first.GetEventType() != "capability-context-changed" || first.GetCursor() == "" || first.GetWorkspaceId() != "" {
			return first.String()
		}
		return ""
	})
	p.typed("request_id absent", watch(func(m *pluginv1.WatchEventsRequest) { m.RequestId = "" }), "INVALID/MISSING_EXACT_FIELD", "request_id",
		"request_id is a required bounded identifier")
	p.typed("a cursor that nobody issued", watch(func(m *pluginv1.WatchEventsRequest) { m.Cursor = "x" }), "INVALID/MALFORMED_PRECONDITION", "", "")
	p.typed("a pattern that it doesn't declare", watch(func(m *pluginv1.WatchEventsRequest) { m.Patterns = []string{"cf.undeclared"} }),
		"INVALID/MALFORMED_PRECONDITION", "", "")
	cursor := first.GetCursor()
	theirs := p.call(as(ctx, p.second().token), p.method, &pluginv1.WatchEventsRequest{RequestId: requestID, Cursor: cursor})
	p.typed("a cursor of another installation", theirs, "INVALID/MALFORMED_PRECONDITION", "", "")
	if len(p.first().Events) == 0 {
		p.enter("what it publishes comes back", skipped, answer{}, "the description declares no events")
		return
	}
	r, err := p.host.EmitEvent(p.caller(ctx), &pluginv1.EmitEventRequest{EventName: "cf-watched", Payload: object("v")})
	if err != nil {
		p.holds("what it publishes comes back", answer{r, err}, "it can't publish")
		return
	}
	a = p.next(ctx, cursor, "plugin."+p.first().PluginID+".cf-watched")
	p.ok("what it publishes comes back", a, func() string {
		e := a.message.(*pluginv1.WatchEventsResponse) //nolint:forcetypeassert,errcheck // it is the method's
		if e.GetEventId() == "" || e.GetOccurredAt() == "" || e.GetCursor() == "" || e.GetEventSchemaVersion() == 0 ||
			e.GetPayload().GetFields()["k"].GetStringValue() != "v" {
			return e.String()
		}
		return ""
	})
}

// next follows events from a cursor up to one of a type.
func (p *probe) next(ctx context.Context, cursor, eventType string) answer {
	ctx, cancel := context.WithTimeout(p.caller(ctx), patience)
	defer cancel()
	stream, err := p.host.WatchEvents(ctx, &pluginv1.WatchEventsRequest{RequestId: requestID, Cursor: cursor})
	for err == nil {
		var e *pluginv1.WatchEventsResponse
		if e, err = stream.Recv(); err == nil && e.GetEventType() == eventType {
			return answer{e, nil}
		}
	}
	return answer{&pluginv1.WatchEventsResponse{}, err}
}
