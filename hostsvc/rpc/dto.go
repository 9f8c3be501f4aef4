package rpc

import (
	"cmp"
	"time"

	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/query"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// timestamp is the one text form of an instant on the exact wire: RFC 3339 in
// UTC.
func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// wholeSecond is an instant as the shipped entities show it.
func wholeSecond(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// optionalSecond is nil for no instant.
func optionalSecond(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	text := wholeSecond(t)
	return &text
}

func optionalText(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// taskDTO is a task without what others make of it: whether it is blocked is not
// known by the task alone.
func taskDTO(t *domain.Task, storeEpoch uint64) *pluginv1.Task {
	dto := &pluginv1.Task{
		Id: t.ID, WorkspaceId: t.WorkspaceID, WorkflowId: t.WorkflowID, WorkflowStepId: t.WorkflowStepID,
		Position: t.Position, Title: domain.StripMarkup(t.Title), Description: domain.StripMarkup(t.Description), State: string(t.State),
		Priority: string(t.Priority), CreatedBy: cmp.Or(t.Origin, t.Source), ParentId: optionalText(t.ParentID), Labels: visible(t.Labels),
		ExternalId: t.ExternalID, WipAdmitted: t.WIPAdmitted, QueuedForStepId: t.QueuedForStepID,
		QueuedAt: optionalSecond(t.QueuedAt), CreatedAt: wholeSecond(t.CreatedAt), UpdatedAt: wholeSecond(t.UpdatedAt),
		StartedAt: optionalSecond(t.StartedAt), CompletedAt: optionalSecond(t.CompletedAt),
		ArchivedAt: optionalSecond(t.ArchivedAt), ResourceVersion: domain.ResourceVersion(storeEpoch, t.Version),
		Identifier: t.Identifier, IsEphemeral: t.Ephemeral, Autopilot: t.Autopilot, ProjectId: t.ProjectID,
		AssigneeAgentProfileId: t.AssigneeAgentProfileID, Blocked: true, BlockedReason: string(domain.BlockedUnknown),
	}
	for _, r := range t.Repositories {
		dto.Repositories = append(dto.Repositories, &pluginv1.TaskRepository{
			Id: r.ID, RepositoryId: r.RepositoryID, BaseBranch: r.BaseBranch, CheckoutBranch: r.CheckoutBranch, Position: r.Position,
		})
	}
	for i := range t.PullRequests {
		dto.PullRequests = append(dto.PullRequests, pullRequestDTO(&t.PullRequests[i]))
	}
	return dto
}

// visible are texts without system markup.
func visible(texts []string) []string {
	shown := make([]string, len(texts))
	for i, text := range texts {
		shown[i] = domain.StripMarkup(text)
	}
	return shown
}

// unknownActivity is what this Host knows of a task's activity: it runs no
// sessions, so nothing is known, and status_known stays false.
const unknownActivity = "unknown"

// showBlocked says what its predecessors make of a task, where that is known.
func showBlocked(task *pluginv1.Task, blocked domain.BlockedReason) {
	task.Blocked, task.BlockedReason = blocked != domain.BlockedNot, string(blocked)
}

func taskObservation(t *query.Task, storeEpoch uint64, observedAt string) *pluginv1.ExactTaskObservation {
	task := taskDTO(&t.Task, storeEpoch)
	showBlocked(task, t.Blocked)
	return &pluginv1.ExactTaskObservation{
		Task: task, CanonicalStatus: task.GetState(), SemanticActivity: unknownActivity,
		ExecutionState: unknownActivity, ResourceVersion: task.GetResourceVersion(), ObservedAt: observedAt,
	}
}

func workspaceObservation(w *domain.Workspace, storeEpoch uint64, observedAt string) *pluginv1.ExactWorkspaceObservation {
	return &pluginv1.ExactWorkspaceObservation{
		Workspace: workspaceDTO(w), ResourceVersion: domain.ResourceVersion(storeEpoch, w.Version), ObservedAt: observedAt,
	}
}

func workflowObservation(w *domain.Workflow, storeEpoch uint64, observedAt string) *pluginv1.ExactWorkflowObservation {
	return &pluginv1.ExactWorkflowObservation{
		Workflow: workflowDTO(w), ResourceVersion: domain.ResourceVersion(storeEpoch, w.Version), ObservedAt: observedAt,
	}
}

func stepObservation(s *domain.WorkflowStep, storeEpoch uint64, observedAt string) *pluginv1.ExactWorkflowStepObservation {
	return &pluginv1.ExactWorkflowStepObservation{
		Step: stepDTO(s), ResourceVersion: domain.ResourceVersion(storeEpoch, s.Version), ObservedAt: observedAt,
	}
}
