package events

import (
	"strings"

	"github.com/kandev/plugin-host/contract"
)

// ContextChanged is the type of the event that an installation is sent when its
// own authority has changed, anywhere.
const ContextChanged = "capability-context-changed"

// published is what the types of all events that plugins publish begin with.
const published = "plugin."

// The event types of tasks. A change of state is both.
const (
	taskUpdated      = "task.updated"
	taskStateChanged = "task.state_changed"
)

// A class says what a plugin must be allowed to be sent an event of a type.
type class int

const (
	// classUnknown is sent to nobody.
	classUnknown class = iota
	// classLegacy needs the manifest's declaration (I12).
	classLegacy
	// classOwn is about the installation itself, and is sent to nobody else.
	classOwn
	// classExact needs the declaration and a capability in the event's workspace.
	classExact
)

// classify returns the class of a type, and the capability of an exact one.
func classify(eventType string) (class, contract.Capability) {
	if eventType == ContextChanged {
		return classOwn, 0
	}
	if strings.HasPrefix(eventType, published) || legacyTypes[eventType] {
		return classLegacy, 0
	}
	if i := strings.LastIndexByte(eventType, '.'); i >= 0 && suffixedTypes[eventType[:i]] {
		return classLegacy, 0
	}
	family, _, _ := strings.Cut(eventType, ".")
	if c, ok := exactFamilies[family]; ok {
		return classExact, c
	}
	return classUnknown, 0
}

// Needs returns what a plugin needs to be sent the events that a pattern is for:
// whether its declaration is enough for some of them, which are v1's own and what
// plugins publish, and the capabilities that the others need in their workspace
// besides. Where it is for neither, no event has such a type.
func Needs(pattern string) (declaration bool, capabilities contract.CapabilitySet) {
	first, _, more := strings.Cut(pattern, ".")
	for family, capability := range exactFamilies {
		if first == family || first == "*" {
			capabilities |= contract.SetOf(capability)
		}
	}
	declaration = more && (first == "*" || first+"." == published)
	for eventType := range legacyTypes {
		declaration = declaration || matches(pattern, eventType)
	}
	if last := strings.LastIndexByte(pattern, '.'); last >= 0 {
		for eventType := range suffixedTypes {
			declaration = declaration || matches(pattern[:last], eventType)
		}
	}
	return declaration, capabilities
}

// exactFamilies are the events that v1 does not have, by the first segment of
// their types, each with the capability that its resource is read by.
var exactFamilies = map[string]contract.Capability{
	"change_request":             contract.ReadChangeRequests,
	"interaction":                contract.ReadInteractions,
	"managed_agent_conversation": contract.ReadManagedAgentConversations,
	"task_directive":             contract.ReadTaskDirectives,
	"task_inbox":                 contract.ReadTaskInbox,
	"task_relation":              contract.ReadTaskRelations,
	"task_transition":            contract.ReadTaskTransitions,
	"terminal_resource":          contract.ReadTerminalResources,
}

// legacyTypes are the types that v1 publishes, and suffixedTypes those with the
// ID of a session or a run behind them (plugin runtime facts, section 7).
var (
	legacyTypes   = setOf(legacyNames)
	suffixedTypes = setOf(suffixedNames)
)

func setOf(families []family) map[string]bool {
	set := map[string]bool{}
	for _, f := range families {
		for name := range strings.FieldsSeq(f.names) {
			set[f.name+"."+name] = true
		}
	}
	return set
}

// family is the first segment of some types, with the rest of each.
type family struct{ name, names string }

var legacyNames = []family{
	{"task", "created updated state_changed deleted moved queue_promoted dependencies_resolved dependency_failed " +
		"tree_hold_created tree_hold_released status_summary.updated"},
	{"session", "workspace_sources.updated"},
	{"workspace", "created updated deleted"},
	{"workflow", "created updated deleted step_completion_signaled"},
	{"workflow_step", "created updated deleted"},
	{"message", "added updated deleted queue.status_changed"},
	{"task_session", "state_changed activity_changed cancellation_changed error_changed"},
	{"task_plan", "created updated deleted revision.created reverted"},
	{"task_walkthrough", "created updated deleted"},
	{"task_review", "run_updated findings_published finding_updated cleared"},
	{"turn", "started completed"},
	{"repository", "created updated deleted script.created script.updated script.deleted"},
	{"azure_devops", "work_item_watch.match pull_request_watch.match"},
	{"repository_set", "created updated deleted"},
	{"executor", "created updated deleted profile.created profile.updated profile.deleted prepare.progress prepare.completed"},
	{"user", "settings.updated"},
	{"system", "job.update agent_runtime.availability_changed"},
	{"environment", "created updated deleted"},
	{"agent_profile", "created updated deleted"},
	{"agent", "started running boot_ready ready completed failed stalled stopped context_reset acp_session_created " +
		"turn.message_saved"},
	{"agentctl", "starting ready error"},
	{"clarification", "answered primary_answered cancelled stale_dismissed"},
	{"automation", "triggered run.created"},
	{"github", "pr_feedback pr_state_changed new_pr_to_review new_issue task_pr.updated task_pr.deleted " +
		"task_ci_options.updated watch.event rate_limit.updated push_received check_run_completed"},
	{"gitlab", "mr_feedback mr_state_changed new_mr_to_review new_issue task_mr.updated watch.event task_mr_options.updated"},
	{"jira", "new_issue"},
	{"linear", "new_issue"},
	{"sentry", "new_issue"},
	{"office", "agent.created agent.updated agent.status_changed skill.created skill.updated project.created " +
		"project.updated approval.created approval.resolved comment.created cost.recorded run.queued run.processed " +
		"routine.triggered inbox.item task.status_changed task.updated task.decision_recorded task.review_requested " +
		"provider.health_changed route_attempt.appended routing.settings_updated"},
}

var suffixedNames = []family{
	{"shell", "output exit"},
	{"process", "output status"},
	{"agent", "stream"},
	{"git", "event ws"},
	{"file", "change.notified"},
	{"permission_request", "received"},
	{"context_window", "updated"},
	{"available_commands", "updated"},
	{"session_mode", "changed"},
	{"agent_capabilities", "updated"},
	{"session_models", "updated"},
	{"session_model_fallback", "updated"},
	{"session_model_selection_warning", "updated"},
	{"session_mcp_status", "updated"},
	{"session_info", "updated"},
	{"session_todos", "updated"},
	{"session_prompt_usage", "updated"},
	{"office", "run.event_appended"},
}
