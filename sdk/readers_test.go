package sdk_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
	"github.com/kandev/plugin-host/sdk"
)

// ids are what a list yields, each item as id tells it, until it ends.
func ids[T any](list iter.Seq2[T, error], id func(T) string) (got []string, err error) {
	for item, err := range list {
		if err != nil {
			return got, err
		}
		got = append(got, id(item))
	}
	return got, nil
}

// Every reader asks what it was told to ask, page by page, and tells its caller when
// the snapshot is gone.
func TestReadersAskForEveryPageAndTellAStaleList(t *testing.T) {
	type page = pluginv1.ExactReadPage
	options := sdk.ListOptions{PageSize: 1}
	for _, c := range []struct {
		name    string
		request func(*page) proto.Message
		answer  func(id string, info *pluginv1.ExactReadPageInfo) proto.Message
		read    func(ctx context.Context, h *sdk.Host) ([]string, error)
	}{
		{
			"ListSessionsExact",
			func(p *page) proto.Message {
				return &pluginv1.ListSessionsExactRequest{WorkspaceId: "team-a", Page: p, Filter: &pluginv1.SessionFilter{States: []string{"RUNNING"}}}
			},
			func(id string, info *pluginv1.ExactReadPageInfo) proto.Message {
				return &pluginv1.ListSessionsExactResponse{PageInfo: info, Items: []*pluginv1.ExactSessionObservation{{Session: &pluginv1.Session{Id: id}}}}
			},
			func(ctx context.Context, h *sdk.Host) ([]string, error) {
				list := h.Sessions().List(ctx, "team-a", &pluginv1.SessionFilter{States: []string{"RUNNING"}}, options)
				return ids(list.Items(), func(o *pluginv1.ExactSessionObservation) string { return o.GetSession().GetId() })
			},
		},
		{
			"ListPendingInteractionsExact",
			func(p *page) proto.Message {
				return &pluginv1.ListPendingInteractionsExactRequest{WorkspaceId: "team-a", Page: p, Filter: &pluginv1.InteractionFilter{Kinds: []string{"permission"}}}
			},
			func(id string, info *pluginv1.ExactReadPageInfo) proto.Message {
				return &pluginv1.ListPendingInteractionsExactResponse{PageInfo: info, Items: []*pluginv1.ExactInteractionObservation{{Interaction: &pluginv1.Interaction{Id: id}}}}
			},
			func(ctx context.Context, h *sdk.Host) ([]string, error) {
				list := h.Interactions().ListPending(ctx, "team-a", &pluginv1.InteractionFilter{Kinds: []string{"permission"}}, options)
				return ids(list.Items(), func(o *pluginv1.ExactInteractionObservation) string { return o.GetInteraction().GetId() })
			},
		},
		{
			"ListSanitizedMessagesExact",
			func(p *page) proto.Message {
				return &pluginv1.ListSanitizedMessagesExactRequest{
					WorkspaceId: "team-a", Page: p, Filter: &pluginv1.MessageFilter{SessionIds: []string{"s"}}, Sanitization: "content_removed",
				}
			},
			func(id string, info *pluginv1.ExactReadPageInfo) proto.Message {
				return &pluginv1.ListSanitizedMessagesExactResponse{PageInfo: info, Items: []*pluginv1.ExactMessageObservation{{Message: &pluginv1.Message{Id: id}}}}
			},
			func(ctx context.Context, h *sdk.Host) ([]string, error) {
				list := h.Messages().ListSanitized(ctx, "team-a", &pluginv1.MessageFilter{SessionIds: []string{"s"}}, sdk.ContentRemoved, options)
				return ids(list.Items(), func(o *pluginv1.ExactMessageObservation) string { return o.GetMessage().GetId() })
			},
		},
		{
			"ListTaskInboxExact",
			func(p *page) proto.Message {
				return &pluginv1.ListTaskInboxExactRequest{WorkspaceId: "team-a", Page: p, TaskId: "t", SessionId: "s"}
			},
			func(id string, info *pluginv1.ExactReadPageInfo) proto.Message {
				return &pluginv1.ListTaskInboxExactResponse{PageInfo: info, Items: []*pluginv1.TaskInboxItem{{Id: id}}}
			},
			func(ctx context.Context, h *sdk.Host) ([]string, error) {
				list := h.TaskInbox().List(ctx, "team-a", sdk.InboxFilter{TaskID: "t", SessionID: "s"}, options)
				return ids(list.Items(), (*pluginv1.TaskInboxItem).GetId)
			},
		},
		{
			"GetTaskRelationsExact",
			func(p *page) proto.Message {
				return &pluginv1.GetTaskRelationsExactRequest{WorkspaceId: "team-a", Page: p, TaskId: "t"}
			},
			func(id string, info *pluginv1.ExactReadPageInfo) proto.Message {
				return &pluginv1.GetTaskRelationsExactResponse{PageInfo: info, Items: []*pluginv1.TaskRelation{{SourceTaskId: id}}}
			},
			func(ctx context.Context, h *sdk.Host) ([]string, error) {
				list := h.TaskRelations().Get(ctx, "team-a", "t", options)
				return ids(list.Items(), (*pluginv1.TaskRelation).GetSourceTaskId)
			},
		},
		{
			"ListTaskRelationsExact",
			func(p *page) proto.Message {
				return &pluginv1.ListTaskRelationsExactRequest{WorkspaceId: "team-a", Page: p, TaskId: "t"}
			},
			func(id string, info *pluginv1.ExactReadPageInfo) proto.Message {
				return &pluginv1.ListTaskRelationsExactResponse{PageInfo: info, Items: []*pluginv1.TaskRelation{{SourceTaskId: id}}}
			},
			func(ctx context.Context, h *sdk.Host) ([]string, error) {
				list := h.TaskRelations().List(ctx, "team-a", "t", options)
				return ids(list.Items(), (*pluginv1.TaskRelation).GetSourceTaskId)
			},
		},
		{
			"ListPendingTaskTransitionsExact",
			func(p *page) proto.Message {
				return &pluginv1.ListPendingTaskTransitionsExactRequest{WorkspaceId: "team-a", Page: p, TaskId: "t"}
			},
			func(id string, info *pluginv1.ExactReadPageInfo) proto.Message {
				return &pluginv1.ListPendingTaskTransitionsExactResponse{PageInfo: info, Items: []*pluginv1.PendingTaskTransition{{Id: id}}}
			},
			func(ctx context.Context, h *sdk.Host) ([]string, error) {
				list := h.TaskTransitions().ListPending(ctx, "team-a", "t", options)
				return ids(list.Items(), (*pluginv1.PendingTaskTransition).GetId)
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked []proto.Message
				var requestIDs []string
				gone := false
				p := &peer{onAny: func(method string, message proto.Message) (proto.Message, error) {
					if method != c.name {
						t.Errorf("%s is called", method)
					}
					message = proto.Clone(message)
					id := message.ProtoReflect().Descriptor().Fields().ByName("request_id")
					requestIDs = append(requestIDs, message.ProtoReflect().Get(id).String())
					message.ProtoReflect().Clear(id)
					asked = append(asked, message)
					info := &pluginv1.ExactReadPageInfo{SnapshotVersion: "s", Receipt: &pluginv1.HostReadReceipt{}}
					if len(asked) == 2 {
						if gone {
							return nil, fail(t, codes.FailedPrecondition, result(wireStates[contract.StateConflict], contract.ReasonStaleResourceVersion))
						}
						return c.answer("second", info), nil
					}
					info.HasMore, info.NextCursor = true, "next"
					return c.answer("first", info), nil
				}}
				host := start(t, p).connect(t)
				got, err := c.read(t.Context(), host)
				if err != nil || !slices.Equal(got, []string{"first", "second"}) {
					t.Fatalf("it yields %v, %v", got, err)
				}
				for i, want := range []proto.Message{c.request(&page{Limit: 1}), c.request(&page{Limit: 1, Cursor: "next", SnapshotVersion: "s"})} {
					if !proto.Equal(asked[i], want) || requestIDs[i] == "" {
						t.Errorf("request %d is %v under %q, not %v", i, asked[i], requestIDs[i], want)
					}
				}

				asked, gone = nil, true
				got, err = c.read(t.Context(), host)
				stale, ok := errors.AsType[*sdk.StaleListError](err)
				if !ok || stale.Answer.Method != c.name || !slices.Equal(got, []string{"first"}) || len(asked) != 2 {
					t.Errorf("a snapshot that is gone: %v, %v after %d requests", got, err, len(asked))
				}
			})
		})
	}
}

func TestGetInteraction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := &pluginv1.GetInteractionExactResponse{
			Item:    &pluginv1.ExactInteractionObservation{Interaction: &pluginv1.Interaction{Id: "i"}, ResourceVersion: "v"},
			Receipt: &pluginv1.HostReadReceipt{AuditId: "audit"},
		}
		p := &peer{onAny: func(_ string, message proto.Message) (proto.Message, error) {
			r, ok := message.(*pluginv1.GetInteractionExactRequest)
			if !ok || r.GetRequestId() == "" || r.GetWorkspaceId() != "team-a" || r.GetInteractionId() != "i" {
				t.Errorf("it asks %v", message)
			}
			return answer, nil
		}}
		host := start(t, p).connect(t)
		item, receipt, err := host.Interactions().Get(t.Context(), "team-a", "i")
		if err != nil || item.GetInteraction().GetId() != "i" || item.GetResourceVersion() != "v" || receipt.GetAuditId() != "audit" {
			t.Errorf("it returns %v, %v, %v", item, receipt, err)
		}
		answer.Receipt = nil
		_, _, err = host.Interactions().Get(t.Context(), "team-a", "i")
		if broken, ok := errors.AsType[*sdk.Error](err); !ok || broken.Reason != contract.ReasonUnknownResultValue {
			t.Errorf("without a receipt: %v", err)
		}
	})
}
