package rpc_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/store"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// clientBytes is what a gRPC client takes of one answer unless it says otherwise.
const clientBytes = 4 << 20

// TestV1PagesEndAtTheirBytes: whatever a plugin or an agent writes, every list can be
// read to its end by a client that sets nothing, each item once.
func TestV1PagesEndAtTheirBytes(t *testing.T) {
	w := board(t)
	const most = 12
	long := strings.Repeat("long ", 140_000)
	var want []string
	for i := range most {
		task, err := w.create(func(r *pluginv1.CreateTaskRequest) {
			r.Title = fmt.Sprint("T", i)
			switch i % 3 {
			case 0:
				r.Description = long
			case 1:
				r.Title = long
			default:
				r.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"text": structpb.NewStringValue(long)}}
			}
		})
		w.must(err)
		want = append(want, task.GetId())
	}
	w.converse("one")
	w.must(w.talk("one", func(tx talkTx) error {
		for i := range most {
			at := talkStart.Add(time.Duration(i) * time.Hour)
			err := errors.Join(
				tx.InsertMessage(domain.Message{
					ID: fmt.Sprintf("long-%02d", i), WorkspaceID: "one", SessionID: "one-session", TaskID: taskID("one", 0), AuthorType: domain.AuthorUser,
					Type: domain.MessagePlain, Content: long, CreatedAt: at, UpdatedAt: at, Version: tx.Version(),
				}),
				tx.InsertSession(domain.Session{
					ID: fmt.Sprintf("long-%02d", i), WorkspaceID: "one", TaskID: taskID("one", 0), State: domain.SessionCompleted, StartedAt: at,
					ProfileSnapshot: domain.Object{"model": long}, UpdatedAt: at, Version: tx.Version(),
				}),
			)
			if err != nil {
				return err
			}
		}
		return nil
	}))
	small := grpc.MaxCallRecvMsgSize(clientBytes)
	for name, c := range map[string]struct {
		least int
		read  func(page *pluginv1.Page) (ids []string, info *pluginv1.PageInfo, err error)
	}{
		"tasks": {most, func(page *pluginv1.Page) (ids []string, info *pluginv1.PageInfo, err error) {
			r, err := w.host.ListTasks(w.as(alpha), &pluginv1.ListTasksRequest{Page: page}, small)
			for _, item := range r.GetTasks() {
				ids = append(ids, item.GetId())
			}
			return ids, r.GetPageInfo(), err
		}},
		"messages": {most, func(page *pluginv1.Page) (ids []string, info *pluginv1.PageInfo, err error) {
			r, err := w.host.ListMessages(w.as(alpha), &pluginv1.ListMessagesRequest{Page: page}, small)
			for _, item := range r.GetMessages() {
				ids = append(ids, item.GetId())
			}
			return ids, r.GetPageInfo(), err
		}},
		"sessions": {most, func(page *pluginv1.Page) (ids []string, info *pluginv1.PageInfo, err error) {
			r, err := w.host.ListSessions(w.as(alpha), &pluginv1.ListSessionsRequest{Page: page}, small)
			for _, item := range r.GetSessions() {
				ids = append(ids, item.GetId())
			}
			return ids, r.GetPageInfo(), err
		}},
		"code stats": {most, func(page *pluginv1.Page) (ids []string, info *pluginv1.PageInfo, err error) {
			r, err := w.host.ListSessionCodeStats(w.as(alpha), &pluginv1.ListSessionCodeStatsRequest{Page: page}, small)
			for _, item := range r.GetStats() {
				ids = append(ids, item.GetSessionId())
			}
			return ids, r.GetPageInfo(), err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			seen := map[string]bool{}
			for cursor, pages := "", 0; ; pages++ {
				ids, info, err := c.read(&pluginv1.Page{Limit: 200, Cursor: cursor})
				if err != nil || len(ids) == 0 || pages > 100 {
					t.Fatalf("page %d has %d items: %v", pages, len(ids), err)
				}
				for _, id := range ids {
					if seen[id] {
						t.Errorf("%s is there twice", id)
					}
					seen[id] = true
				}
				if cursor = info.GetNextCursor(); (cursor != "") != info.GetHasMore() {
					t.Fatalf("what follows is %v", info)
				}
				if cursor == "" {
					break
				}
			}
			if len(seen) < c.least {
				t.Errorf("%d items in all", len(seen))
			}
			for _, id := range want {
				if name == "tasks" && !seen[id] {
					t.Errorf("task %s is in no page", id)
				}
			}
		})
	}
}

// TestV1MetadataIsNotTooDeep: one plugin's task must not be a message that other
// languages refuse, and with it every list that has it.
func TestV1MetadataIsNotTooDeep(t *testing.T) {
	w := board(t)
	objects := func(n int) *structpb.Struct {
		s := &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewNumberValue(1)}}
		for range n - 1 {
			s = &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewStructValue(s)}}
		}
		return s
	}
	lists := func(n int) *structpb.Struct {
		v := structpb.NewListValue(&structpb.ListValue{})
		for range n - 2 {
			v = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{v}})
		}
		return &structpb.Struct{Fields: map[string]*structpb.Value{"x": v}}
	}
	const text = "metadata has more than 31 objects and lists in each other"
	for _, nested := range []func(int) *structpb.Struct{objects, lists} {
		task, err := w.create(func(r *pluginv1.CreateTaskRequest) { r.Metadata = nested(31) })
		w.must(err)
		answer, err := proto.Marshal(&pluginv1.ListTasksResponse{Tasks: []*pluginv1.Task{task}})
		w.must(err)
		w.must(proto.UnmarshalOptions{RecursionLimit: 100}.Unmarshal(answer, &pluginv1.ListTasksResponse{}))
		for _, n := range []int{32, 500} {
			_, err = w.create(func(r *pluginv1.CreateTaskRequest) { r.Metadata = nested(n) })
			wants(t, fmt.Sprint("metadata ", n, " deep"), err, codes.InvalidArgument, text)
		}
	}
}

// TestV1TreesAreBounded: what a plugin lays under one root, or others do, is never held
// at once without a bound.
func TestV1TreesAreBounded(t *testing.T) {
	w := board(t)
	const text = "the task tree has more than 2000 tasks or 33554432 bytes"
	tree := func(root string) (shown, deleted int, err error) {
		preview, err := w.host.PreviewPluginOwnedTaskTree(w.as(alpha), &pluginv1.PreviewPluginOwnedTaskTreeRequest{RootTaskId: root}, grpc.MaxCallRecvMsgSize(64<<20))
		if err != nil {
			_, also := w.host.DeletePluginOwnedTaskTree(w.as(alpha), &pluginv1.DeletePluginOwnedTaskTreeRequest{RootTaskId: root})
			wants(t, "to delete the tree of "+root, also, codes.ResourceExhausted, text)
			return 0, 0, err
		}
		removed, err := w.host.DeletePluginOwnedTaskTree(w.as(alpha), &pluginv1.DeletePluginOwnedTaskTreeRequest{RootTaskId: root})
		return len(preview.GetTasks()), len(removed.GetDeletedTaskIds()), err
	}
	plant := func(root string, n int, description string) {
		w.must(w.store.Seed(t.Context(), "one", func(tx store.SeedTx) (err error) {
			for i := range n {
				task := domain.Task{
					ID: fmt.Sprintf("%s-%04d", root, i), ParentID: root, WorkflowID: "one-flow", WorkflowStepID: "one-todo", Title: "T",
					State: domain.TaskTodo, Description: description, CreatorInstallationID: alpha,
					Source: domain.PluginSource("plugin-of-" + alpha), CreatedAt: w.clock.Now(),
				}
				if i == 0 {
					task.ID, task.ParentID = root, ""
				} else if i > 1000 {
					task.ParentID = fmt.Sprintf("%s-%04d", root, i-1000)
				}
				err = errors.Join(err, tx.Task(task))
			}
			return err
		}))
	}
	plant("many", 2000, "")
	if shown, deleted, err := tree("many"); shown != 2000 || deleted != 2000 || err != nil {
		t.Errorf("of a tree of 2000, %d are shown and %d deleted: %v", shown, deleted, err)
	}
	plant("more", 2001, "")
	_, _, err := tree("more")
	wants(t, "to see a tree of 2001", err, codes.ResourceExhausted, text)
	plant("long", 33, strings.Repeat("x", 1<<20))
	_, _, err = tree("long")
	wants(t, "to see a tree of 33 MiB", err, codes.ResourceExhausted, text)
	plant("within", 30, strings.Repeat("x", 1<<20))
	if shown, deleted, err := tree("within"); shown != 30 || deleted != 30 || err != nil {
		t.Errorf("of a tree of 30 MiB, %d are shown and %d deleted: %v", shown, deleted, err)
	}
}

// TestV1LongTitlesAreShownOnce: a title of any length must not be in the answers about
// all tasks that have to do with it.
func TestV1LongTitlesAreShownOnce(t *testing.T) {
	w := board(t)
	long := strings.Repeat("long ", 140_000)
	w.must(w.store.Seed(t.Context(), "one", func(tx store.SeedTx) (err error) {
		for i := range 10 {
			id := fmt.Sprint("before-", i)
			err = errors.Join(err, tx.Task(domain.Task{ID: id, WorkflowID: "one-flow", Title: long, State: domain.TaskFailed, CreatedAt: w.clock.Now()}),
				tx.Relation(domain.TaskRelation{Kind: domain.RelationDependency, SourceTaskID: id, TargetTaskID: taskID("one", 0)}))
		}
		return err
	}))
	got, err := w.host.GetTask(w.as(alpha), &pluginv1.GetTaskRequest{Id: taskID("one", 0)}, grpc.MaxCallRecvMsgSize(clientBytes))
	w.must(err)
	if n := len(got.GetTask().GetDependsOn()); n != 10 || got.GetTask().GetBlockedReason() != "failed" {
		t.Fatalf("%d predecessors are shown, which make it %q", n, got.GetTask().GetBlockedReason())
	}
	for _, ref := range got.GetTask().GetDependsOn() {
		if ref.GetTitle() != "" || ref.GetState() != "FAILED" || ref.GetStatus() != "failed" {
			t.Errorf("a predecessor is shown as %v", ref)
		}
	}
}
