package sdk_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
	"github.com/kandev/plugin-host/sdk"
)

func taskAnswer(requestID string) *pluginv1.GetTaskExactResponse {
	return &pluginv1.GetTaskExactResponse{
		Item:    &pluginv1.ExactTaskObservation{Task: &pluginv1.Task{Id: "task-1"}, ResourceVersion: "v5"},
		Receipt: &pluginv1.HostReadReceipt{RequestId: requestID},
	}
}

// shelf serves five tasks, two a page, at a snapshot of its own for each list.
type shelf struct {
	t         *testing.T
	requests  []*pluginv1.ListTasksExactRequest
	snapshots int
	// spoil changes an answer before it leaves; page counts from 0.
	spoil func(page int, info *pluginv1.ExactReadPageInfo) error
}

func (s *shelf) list(r *pluginv1.ListTasksExactRequest) (*pluginv1.ListTasksExactResponse, error) {
	s.requests = append(s.requests, r)
	first, snapshot := 0, r.GetPage().GetSnapshotVersion()
	if cursor := r.GetPage().GetCursor(); cursor == "" {
		s.snapshots++
		snapshot = fmt.Sprintf("s%d", s.snapshots)
	} else if _, err := fmt.Sscanf(cursor, snapshot+"-%d", &first); err != nil {
		return nil, fail(s.t, codes.InvalidArgument,
			result(wireStates[contract.StateInvalid], contract.ReasonMalformedPrecondition))
	}
	answer := &pluginv1.ListTasksExactResponse{PageInfo: &pluginv1.ExactReadPageInfo{
		SnapshotVersion: snapshot, Receipt: &pluginv1.HostReadReceipt{RequestId: r.GetRequestId(), SnapshotVersion: snapshot},
	}}
	last := min(first+2, 5)
	for i := first; i < last; i++ {
		answer.Items = append(answer.Items, &pluginv1.ExactTaskObservation{Task: &pluginv1.Task{Id: fmt.Sprint("t", i)}})
	}
	if last < 5 {
		answer.PageInfo.HasMore, answer.PageInfo.NextCursor = true, fmt.Sprintf("%s-%d", snapshot, last)
	}
	if s.spoil != nil {
		if err := s.spoil(first/2, answer.PageInfo); err != nil {
			return nil, err
		}
	}
	return answer, nil
}

func collect(list sdk.Pages[*pluginv1.ExactTaskObservation]) (ids []string, err error) {
	for item, itemErr := range list.Items() {
		if itemErr != nil {
			return ids, itemErr
		}
		ids = append(ids, item.GetTask().GetId())
	}
	return ids, nil
}

func TestListYieldsEveryItemOfOneSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{t: t}
		host := start(t, &peer{onTasks: s.list}).connect(t)
		filter := &pluginv1.TaskFilter{States: []string{"TODO"}}
		list := host.Tasks().List(t.Context(), "team-a", filter, sdk.ListOptions{PageSize: 2})

		ids, err := collect(list)
		if err != nil || !slices.Equal(ids, []string{"t0", "t1", "t2", "t3", "t4"}) {
			t.Fatalf("%v, %v", ids, err)
		}
		for i, r := range s.requests {
			if r.GetWorkspaceId() != "team-a" || r.GetPage().GetLimit() != 2 || r.GetCapabilityRevision() != 0 ||
				!slices.Equal(r.GetFilter().GetStates(), filter.States) {
				t.Errorf("request %d is %v", i, r)
			}
			if want := map[bool]string{true: "s1"}[i > 0]; r.GetPage().GetSnapshotVersion() != want {
				t.Errorf("request %d is of snapshot %q", i, r.GetPage().GetSnapshotVersion())
			}
		}

		// Again is a new list; stopping early asks for no further page.
		s.requests = nil
		for page, err := range list {
			if err != nil || len(page.Items) != 2 || page.Receipt.GetSnapshotVersion() != "s2" {
				t.Errorf("page is %+v, %v", page, err)
			}
			break
		}
		if len(s.requests) != 1 {
			t.Errorf("%d pages were fetched for one", len(s.requests))
		}
	})
}

func TestPageSizeStaysInBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{t: t}
		host := start(t, &peer{onTasks: s.list}).connect(t)
		for size, want := range map[int]int32{-3: 0, 0: 0, 7: 7, 1 << 40: contract.MaxPageSize} {
			s.requests = nil
			if _, err := collect(host.Tasks().List(t.Context(), "team-a", nil, sdk.ListOptions{PageSize: size})); err != nil {
				t.Fatal(err)
			}
			if got := s.requests[0].GetPage().GetLimit(); got != want {
				t.Errorf("size %d asks for %d", size, got)
			}
		}
	})
}

// A list whose snapshot is gone ends: what was yielded can't be taken back.
func TestStaleListEndsAndIsStartedAgainByTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{t: t}
		s.spoil = func(page int, _ *pluginv1.ExactReadPageInfo) error {
			if page != 1 || s.snapshots > 1 {
				return nil
			}
			return fail(t, codes.FailedPrecondition,
				result(wireStates[contract.StateConflict], contract.ReasonStaleResourceVersion))
		}
		host := start(t, &peer{onTasks: s.list}).connect(t)
		list := host.Tasks().List(t.Context(), "team-a", nil, sdk.ListOptions{})
		ids, err := collect(list)
		stale, ok := errors.AsType[*sdk.StaleListError](err)
		if !ok || stale.Answer.State != contract.StateConflict || len(ids) != 2 || len(s.requests) != 2 {
			t.Fatalf("%d requests, %v, %v", len(s.requests), ids, err)
		}
		if answer, ok := errors.AsType[*sdk.Error](err); !ok || answer.Reason != contract.ReasonStaleResourceVersion {
			t.Errorf("the answer is lost: %v", err)
		}
		if ids, err = collect(list); err != nil || len(ids) != 5 {
			t.Errorf("started again: %v, %v", ids, err)
		}
	})
}

func TestUnavailablePageIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{t: t}
		failed := false
		s.spoil = func(page int, _ *pluginv1.ExactReadPageInfo) error {
			if page != 1 || failed {
				return nil
			}
			failed = true
			return fail(t, codes.Unavailable,
				result(wireStates[contract.StateUnavailable], contract.ReasonDependencyUnavailable))
		}
		host := start(t, &peer{onTasks: s.list}).connect(t)
		ids, err := collect(host.Tasks().List(t.Context(), "team-a", nil, sdk.ListOptions{}))
		if err != nil || len(ids) != 5 || len(s.requests) != 4 {
			t.Errorf("%d requests, %v, %v", len(s.requests), ids, err)
		}
	})
}

func TestListThatBreaksItsPromiseEnds(t *testing.T) {
	for name, spoil := range map[string]func(*pluginv1.ExactReadPageInfo){
		"another snapshot": func(i *pluginv1.ExactReadPageInfo) { i.SnapshotVersion = "s9" },
		"no receipt":       func(i *pluginv1.ExactReadPageInfo) { i.Receipt = nil },
		"no cursor":        func(i *pluginv1.ExactReadPageInfo) { i.NextCursor = "" },
		"same cursor":      func(i *pluginv1.ExactReadPageInfo) { i.NextCursor = "s1-2" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &shelf{t: t, spoil: func(page int, info *pluginv1.ExactReadPageInfo) error {
					if page == 1 {
						spoil(info)
					}
					return nil
				}}
				host := start(t, &peer{onTasks: s.list}).connect(t)
				ids, err := collect(host.Tasks().List(t.Context(), "team-a", nil, sdk.ListOptions{}))
				answer, ok := errors.AsType[*sdk.Error](err)
				if !ok || answer.Reason != contract.ReasonUnknownResultValue || len(ids) != 2 || len(s.requests) != 2 {
					t.Errorf("%d requests, %v, %v", len(s.requests), ids, err)
				}
			})
		})
	}
}

func TestReadersOfEveryNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		info := &pluginv1.ExactReadPageInfo{SnapshotVersion: "s1", Receipt: &pluginv1.HostReadReceipt{}}
		p := &peer{
			onWorkspaces: func(r *pluginv1.ListWorkspacesExactRequest) (*pluginv1.ListWorkspacesExactResponse, error) {
				return &pluginv1.ListWorkspacesExactResponse{PageInfo: info, Items: []*pluginv1.ExactWorkspaceObservation{
					{Workspace: &pluginv1.Workspace{Id: r.GetWorkspaceId()}},
				}}, nil
			},
			onWorkflows: func(r *pluginv1.ListWorkflowsExactRequest) (*pluginv1.ListWorkflowsExactResponse, error) {
				return &pluginv1.ListWorkflowsExactResponse{PageInfo: info, Items: []*pluginv1.ExactWorkflowObservation{
					{Workflow: &pluginv1.Workflow{Id: "wf", WorkspaceId: r.GetWorkspaceId()}},
				}}, nil
			},
			onSteps: func(r *pluginv1.ListWorkflowStepsExactRequest) (*pluginv1.ListWorkflowStepsExactResponse, error) {
				return &pluginv1.ListWorkflowStepsExactResponse{PageInfo: info, Items: []*pluginv1.ExactWorkflowStepObservation{
					{Step: &pluginv1.WorkflowStep{Id: "step", WorkflowId: r.GetWorkflowId()}},
				}}, nil
			},
			onGet: func(r *pluginv1.GetTaskExactRequest) (*pluginv1.GetTaskExactResponse, error) {
				return taskAnswer(r.GetRequestId()), nil
			},
		}
		host := start(t, p).connect(t)
		for item, err := range host.Workspaces().List(t.Context(), "team-a", sdk.ListOptions{}).Items() {
			if err != nil || item.GetWorkspace().GetId() != "team-a" {
				t.Errorf("%v, %v", item, err)
			}
		}
		for item, err := range host.Workflows().List(t.Context(), "team-a", sdk.ListOptions{}).Items() {
			if err != nil || item.GetWorkflow().GetWorkspaceId() != "team-a" {
				t.Errorf("%v, %v", item, err)
			}
		}
		for item, err := range host.Workflows().Steps(t.Context(), "team-a", "wf", sdk.ListOptions{}).Items() {
			if err != nil || item.GetStep().GetWorkflowId() != "wf" {
				t.Errorf("%v, %v", item, err)
			}
		}
		item, receipt, err := host.Tasks().Get(t.Context(), "team-a", "task-1")
		if err != nil || item.GetResourceVersion() != "v5" || receipt.GetRequestId() == "" {
			t.Errorf("%v, %v, %v", item, receipt, err)
		}
		p.onGet = func(*pluginv1.GetTaskExactRequest) (*pluginv1.GetTaskExactResponse, error) {
			return &pluginv1.GetTaskExactResponse{}, nil
		}
		if _, _, err := host.Tasks().Get(t.Context(), "team-a", "task-1"); err == nil {
			t.Error("a read without item and receipt succeeded")
		}
	})
}
