package sdk_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
	"github.com/kandev/plugin-host/sdk"
)

// Every row of the contract's table: what the SDK sends again by itself, and
// what the caller is told.
func TestEveryReasonOfTheTable(t *testing.T) {
	const boundary = 2 * time.Second
	for _, row := range contract.Reasons() {
		t.Run(string(row.Reason), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				refusal := result(wireStates[row.Parent], row.Reason)
				if row.Retry == contract.RetryAfter {
					refusal.RetryAfterMs = uint32(boundary / time.Millisecond)
				}
				script := &creations{answers: []*pluginv1.HostCommandResult{refusal}}
				p := &peer{onCreate: script.answer}
				host := start(t, p).connect(t, sdk.WithAttempts(3), sdk.WithPollInterval(time.Hour))

				_, err := create(t, host)
				answer, ok := errors.AsType[*sdk.Error](err)
				if !ok {
					t.Fatalf("error is %T (%v), not *sdk.Error", err, err)
				}
				if answer.State != row.Parent || answer.Reason != row.Reason || answer.Retry() != row.Retry {
					t.Errorf("answer is %s/%s, retry %s", answer.State, answer.Reason, answer.Retry())
				}
				if answer.AuditID != "audit-"+string(row.Reason) || answer.Field != "some.field" ||
					answer.Message != "because" || answer.Method != "CreateTaskExact" || answer.WorkspaceID != "team-a" ||
					answer.Local {
					t.Errorf("answer lost something: %+v", answer)
				}

				requests := script.asked()
				want := 1
				if row.Retry == contract.RetrySame || row.Retry == contract.RetryAfter {
					want = 3
				}
				if len(requests) != want {
					t.Fatalf("sent %d times, want %d", len(requests), want)
				}
				if got := answer.RequestID; got != requests[0].GetRequestId() {
					t.Errorf("request ID is %q, sent was %q", got, requests[0].GetRequestId())
				}
				for i, r := range requests[1:] {
					if r.GetRequestId() != requests[0].GetRequestId() || r.GetIdempotencyKey() != "key-1" {
						t.Errorf("repetition %d is another request: %v", i, r)
					}
					if wait := script.at[i+1].Sub(script.at[i]); row.Retry == contract.RetryAfter && wait < boundary {
						t.Errorf("repeated after %v, before the boundary", wait)
					}
				}
			})
		})
	}
}

func TestSuccessesCarryReadbackAndReceipt(t *testing.T) {
	for _, state := range []contract.State{
		contract.StateApplied, contract.StateAlreadyApplied, contract.StateNoChange,
	} {
		t.Run(string(state), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				done := &pluginv1.HostCommandResult{
					Status: wireStates[state], AuditId: "audit-1", ResultResourceVersion: "v9",
					Receipt: &pluginv1.HostCommandReceipt{ReceiptId: "receipt-1"},
				}
				script := &creations{answers: []*pluginv1.HostCommandResult{done}}
				p := &peer{onCreate: script.answer}
				got, err := create(t, start(t, p).connect(t))
				if err != nil {
					t.Fatal(err)
				}
				r := script.asked()[0]
				if got.State != state || got.Task.GetTitle() != "Write it" || got.ResourceVersion != "v9" ||
					got.AuditID != "audit-1" || got.Receipt.GetReceiptId() != "receipt-1" || got.RequestID != r.GetRequestId() {
					t.Errorf("result is %+v", got)
				}
				if r.GetWorkspaceId() != "team-a" || r.GetTask().GetWorkspaceId() != "team-a" ||
					r.GetCapabilityRevision() != 7 || r.GetExternalId() != "ext-1" ||
					r.GetTask().GetWorkflowId() != "wf" || r.GetExpectedWorkflowResourceVersion() != "v1" ||
					r.GetTask().GetWorkflowStepId() != "step" || r.GetExpectedWorkflowStepResourceVersion() != "v2" ||
					r.GetGuard().GetExpectNone() == nil || r.GetProvenance() != nil || r.GetTask().ParentId != nil {
					t.Errorf("request is %v", r)
				}
			})
		})
	}
}

// What the SDK doesn't know is never a success and never repeated.
func TestUnknownResultValuesAreUnsupported(t *testing.T) {
	applied := wireStates[contract.StateApplied]
	for name, response := range map[string]*pluginv1.CreateTaskExactResponse{
		"new state":               {Result: result(99, contract.ReasonDependencyUnavailable), Task: &pluginv1.Task{}},
		"new state, no reason":    {Result: result(99, ""), Task: &pluginv1.Task{}},
		"unspecified state":       {Result: result(0, ""), Task: &pluginv1.Task{}},
		"partial":                 {Result: result(pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_PARTIAL, ""), Task: &pluginv1.Task{}},
		"uncertain":               {Result: result(pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_UNCERTAIN, ""), Task: &pluginv1.Task{}},
		"new reason":              {Result: result(wireStates[contract.StateUnavailable], "MOON_TOO_LOW")},
		"no reason":               {Result: result(wireStates[contract.StateUnavailable], "")},
		"reason of another state": {Result: result(wireStates[contract.StateUnavailable], contract.ReasonCapabilityRevoked)},
		"success with a reason":   {Result: result(applied, contract.ReasonCapabilityRevoked), Task: &pluginv1.Task{}},
		"no result":               {Task: &pluginv1.Task{}},
		"success, no readback":    {Result: result(applied, "")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				p := &peer{onCreate: func(
					context.Context, *pluginv1.CreateTaskExactRequest,
				) (*pluginv1.CreateTaskExactResponse, error) {
					calls++
					return response, nil
				}}
				_, err := create(t, start(t, p).connect(t))
				answer, ok := errors.AsType[*sdk.Error](err)
				if !ok || answer.State != contract.StateUnsupported || answer.Reason != contract.ReasonUnknownResultValue {
					t.Errorf("error is %v", err)
				}
				if calls != 1 {
					t.Errorf("sent %d times", calls)
				}
			})
		})
	}
}

// What was applied stays applied when its task is deleted: there is none to show.
func TestARepeatedWriteWhoseTaskIsGoneSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{onCreate: func(context.Context, *pluginv1.CreateTaskExactRequest) (*pluginv1.CreateTaskExactResponse, error) {
			return &pluginv1.CreateTaskExactResponse{Result: result(wireStates[contract.StateAlreadyApplied], "")}, nil
		}}
		got, err := create(t, start(t, p).connect(t))
		if err != nil || got.State != contract.StateAlreadyApplied || got.Task != nil {
			t.Errorf("it is answered %+v, %v", got, err)
		}
	})
}

// A failed call is read by its one detail; the code decides only where the
// Host itself can't have answered.
func TestFailedCallsAreReadByTheirDetail(t *testing.T) {
	revoked := result(wireStates[contract.StateDenied], contract.ReasonCapabilityRevoked)
	type details = []*pluginv1.HostCommandResult
	for name, c := range map[string]struct {
		code    codes.Code
		details details
		state   contract.State
		reason  contract.Reason
		sent    int
	}{
		"detail beats code": {
			codes.Unavailable, details{revoked}, contract.StateDenied, contract.ReasonCapabilityRevoked, 1,
		},
		"two details": {
			codes.PermissionDenied, details{revoked, revoked},
			contract.StateUnsupported, contract.ReasonUnknownResultValue, 1,
		},
		"detail of a success": {
			codes.Internal, details{result(wireStates[contract.StateApplied], "")},
			contract.StateUnsupported, contract.ReasonUnknownResultValue, 1,
		},
		"no detail, denied": {
			codes.PermissionDenied, nil, contract.StateUnsupported, contract.ReasonUnknownResultValue, 1,
		},
		"no detail, unavailable": {
			codes.Unavailable, nil, contract.StateUnavailable, contract.ReasonDependencyUnavailable, 3,
		},
		"method not served": {
			codes.Unimplemented, nil, contract.StateUnsupported, contract.ReasonHostVersionUnsupported, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent := 0
				p := &peer{onGet: func(*pluginv1.GetTaskExactRequest) (*pluginv1.GetTaskExactResponse, error) {
					sent++
					return nil, fail(t, c.code, c.details...)
				}}
				_, _, err := start(t, p).connect(t, sdk.WithAttempts(3)).Tasks().Get(t.Context(), "team-a", "task-1")
				answer, ok := errors.AsType[*sdk.Error](err)
				if !ok || answer.State != c.state || answer.Reason != c.reason || sent != c.sent {
					t.Errorf("sent %d times, error is %v", sent, err)
				}
			})
		})
	}
}

func TestUnavailableIsRepeatedWithGrowingDelaysUntilItWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := result(wireStates[contract.StateUnavailable], contract.ReasonDependencyUnavailable)
		named := result(wireStates[contract.StateUnavailable], contract.ReasonDependencyUnavailable)
		named.RetryAfterMs = 9000
		script := &creations{answers: []*pluginv1.HostCommandResult{
			down, down, down, named, result(wireStates[contract.StateAlreadyApplied], ""),
		}}
		p := &peer{onCreate: script.answer}
		got, err := create(t, start(t, p).connect(t))
		if err != nil || got.State != contract.StateAlreadyApplied {
			t.Fatalf("%+v, %v", got, err)
		}
		for i, bounds := range [][2]int64{
			{50, 100}, {100, 200}, {200, 400}, {9000, 9000},
		} {
			wait := script.at[i+1].Sub(script.at[i])
			if wait.Milliseconds() < bounds[0] || wait.Milliseconds() > bounds[1] {
				t.Errorf("delay %d is %v, want %v ms", i, wait, bounds)
			}
		}
	})
}

func TestWaitsThatLeadNowhereAreNotSatOut(t *testing.T) {
	for name, c := range map[string]struct {
		reason  contract.Reason
		after   time.Duration
		timeout time.Duration
	}{
		"boundary beyond the caller's deadline": {contract.ReasonProviderRateLimited, 10 * time.Second, 5 * time.Second},
		"boundary too far":                      {contract.ReasonProviderRateLimited, time.Hour, 0},
		"limited without boundary":              {contract.ReasonProviderRateLimited, 0, 0},
		"unavailable for long":                  {contract.ReasonDependencyUnavailable, time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				refusal := result(wireStates[c.reason.Parent()], c.reason)
				refusal.RetryAfterMs = uint32(c.after / time.Millisecond)
				script := &creations{answers: []*pluginv1.HostCommandResult{refusal}}
				host := start(t, &peer{onCreate: script.answer}).connect(t)
				ctx := t.Context()
				if c.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.timeout)
					defer cancel()
				}
				began := time.Now()
				_, err := host.Tasks().Create(ctx, "team-a", sdk.NewOperation("k", sdk.ExpectNone()), aTask)
				answer, ok := errors.AsType[*sdk.Error](err)
				if !ok || answer.Reason != c.reason || answer.RetryAfter != c.after {
					t.Errorf("error is %v", err)
				}
				if len(script.asked()) != 1 || time.Since(began) != 0 {
					t.Errorf("sent %d times in %v", len(script.asked()), time.Since(began))
				}
			})
		})
	}
}

// An attempt that gets no answer is UNAVAILABLE: nobody knows whether it
// committed, and the same key finds out.
func TestSilenceIsRepeatedUnderTheSameKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := &creations{answers: []*pluginv1.HostCommandResult{result(wireStates[contract.StateAlreadyApplied], "")}}
		silent := true
		p := &peer{onCreate: func(
			ctx context.Context, r *pluginv1.CreateTaskExactRequest,
		) (*pluginv1.CreateTaskExactResponse, error) {
			response, err := script.answer(ctx, r)
			if silent {
				silent = false
				<-ctx.Done()
				return nil, status.FromContextError(ctx.Err()).Err()
			}
			return response, err
		}}
		got, err := create(t, start(t, p).connect(t, sdk.WithPollInterval(time.Hour)))
		if err != nil || got.State != contract.StateAlreadyApplied {
			t.Fatalf("%+v, %v", got, err)
		}
		requests := script.asked()
		if len(requests) != 2 || requests[0].GetIdempotencyKey() != requests[1].GetIdempotencyKey() {
			t.Errorf("requests are %v", requests)
		}
	})
}

func TestCallerThatGivesUpGetsItsOwnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := &creations{answers: []*pluginv1.HostCommandResult{
			result(wireStates[contract.StateUnavailable], contract.ReasonDependencyUnavailable),
		}}
		host := start(t, &peer{onCreate: script.answer}).connect(t, sdk.WithAttempts(1000))
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		time.AfterFunc(3*time.Second, func() { cancel(enough) })
		_, err := host.Tasks().Create(ctx, "team-a", sdk.NewOperation("k", sdk.ExpectNone()), aTask)
		if !errors.Is(err, enough) {
			t.Errorf("error is %v", err)
		}
		if answer, ok := errors.AsType[*sdk.Error](err); !ok || answer.State != contract.StateUnavailable {
			t.Errorf("the last answer is lost: %v", err)
		}
	})
}

func TestStaleRevisionMakesANewRequest(t *testing.T) {
	stale := result(wireStates[contract.StateDenied], contract.ReasonStaleCapabilityRevision)
	applied := result(wireStates[contract.StateApplied], "")
	for name, c := range map[string]struct {
		op      sdk.Operation
		answers []*pluginv1.HostCommandResult
		moves   bool
		keys    []string
		fails   bool
	}{
		"same operation": {
			sdk.NewOperation("key-1", sdk.ExpectNone()),
			[]*pluginv1.HostCommandResult{stale, applied}, true, []string{"key-1", "key-1"}, false,
		},
		"new operation": {
			sdk.NewOperation("key-1", sdk.ExpectNone()).WithKeyWhenStale("key-2"),
			[]*pluginv1.HostCommandResult{stale, applied}, true, []string{"key-1", "key-2"}, false,
		},
		"once": {
			sdk.NewOperation("key-1", sdk.ExpectNone()),
			[]*pluginv1.HostCommandResult{stale, stale, applied}, true, []string{"key-1", "key-1"}, true,
		},
		"not on the refused revision": {
			sdk.NewOperation("key-1", sdk.ExpectNone()),
			[]*pluginv1.HostCommandResult{stale, applied}, false, []string{"key-1"}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				script := &creations{answers: c.answers}
				p := &peer{onCreate: script.answer}
				host := start(t, p).connect(t, sdk.WithPollInterval(time.Hour))
				if c.moves {
					p.grant("team-a", 8, contract.WriteTasks)
				}
				_, err := host.Tasks().Create(t.Context(), "team-a", c.op, aTask)
				answer, _ := errors.AsType[*sdk.Error](err)
				if (err != nil) != c.fails || c.fails && answer.Reason != contract.ReasonStaleCapabilityRevision {
					t.Errorf("error is %v", err)
				}
				requests := script.asked()
				if len(requests) != len(c.keys) {
					t.Fatalf("sent %d requests, want %d", len(requests), len(c.keys))
				}
				for i, key := range c.keys {
					if requests[i].GetIdempotencyKey() != key || requests[i].GetCapabilityRevision() != uint64(7+i) {
						t.Errorf("request %d is %v", i, requests[i])
					}
				}
				if len(requests) == 2 && requests[0].GetRequestId() == requests[1].GetRequestId() {
					t.Error("the second request has the first one's ID: a retry, not a new request")
				}
			})
		})
	}
}

// The context may say, when it is fetched anew, that nothing is left to ask.
func TestStaleRevisionWithoutApprovalEndsLocally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := &creations{answers: []*pluginv1.HostCommandResult{
			result(wireStates[contract.StateDenied], contract.ReasonStaleCapabilityRevision),
		}}
		p := &peer{onCreate: script.answer}
		host := start(t, p).connect(t)
		p.grant("team-b", 1)
		_, err := create(t, host)
		answer, ok := errors.AsType[*sdk.Error](err)
		if !ok || answer.Reason != contract.ReasonMissingCapabilityApproval || !answer.Local || len(script.asked()) != 1 {
			t.Errorf("sent %d, error is %v", len(script.asked()), err)
		}
	})
}

func TestWritesAreCheckedBeforeTheyAreSent(t *testing.T) {
	long := string(make([]byte, contract.MaxIdentifierBytes+1))
	for name, c := range map[string]struct {
		workspaceID string
		op          sdk.Operation
		field       string
		reason      contract.Reason
	}{
		"no key":       {"team-a", sdk.NewOperation("", sdk.ExpectNone()), "idempotency_key", contract.ReasonMissingExactField},
		"long key":     {"team-a", sdk.NewOperation(long, sdk.ExpectNone()), "idempotency_key", contract.ReasonMalformedPrecondition},
		"spaced key":   {"team-a", sdk.NewOperation(" k", sdk.ExpectNone()), "idempotency_key", contract.ReasonMalformedPrecondition},
		"same new key": {"team-a", sdk.NewOperation("k", sdk.ExpectNone()).WithKeyWhenStale("k"), "idempotency_key", contract.ReasonMalformedPrecondition},
		"bad new key":  {"team-a", sdk.NewOperation("k", sdk.ExpectNone()).WithKeyWhenStale("k "), "idempotency_key", contract.ReasonMalformedPrecondition},
		"no guard":     {"team-a", sdk.NewOperation("k", sdk.Guard{}), "guard", contract.ReasonMissingExactField},
		"no operation": {"team-a", sdk.Operation{}, "idempotency_key", contract.ReasonMissingExactField},
		"no workspace": {"", sdk.NewOperation("k", sdk.ExpectNone()), "workspace_id", contract.ReasonMissingExactField},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				script := &creations{answers: []*pluginv1.HostCommandResult{result(wireStates[contract.StateApplied], "")}}
				host := start(t, &peer{onCreate: script.answer}).connect(t)
				_, err := host.Tasks().Create(t.Context(), c.workspaceID, c.op, aTask)
				answer, ok := errors.AsType[*sdk.Error](err)
				if !ok || answer.State != contract.StateInvalid || answer.Reason != c.reason ||
					answer.Field != c.field || !answer.Local {
					t.Errorf("error is %v", err)
				}
				if len(script.asked()) != 0 {
					t.Error("it was sent")
				}
			})
		})
	}
}

func TestGuardAndProvenanceTravel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got *pluginv1.UpdateTaskExactRequest
		p := &peer{onUpdate: func(r *pluginv1.UpdateTaskExactRequest) (*pluginv1.UpdateTaskExactResponse, error) {
			got = r
			return &pluginv1.UpdateTaskExactResponse{
				Result: result(wireStates[contract.StateNoChange], ""), Task: &pluginv1.Task{Id: r.GetTaskId()},
			}, nil
		}}
		op := sdk.NewOperation("k", sdk.ExpectTransition("move-1", "v3")).WithProvenance("conv", "session", "generation")
		answer, err := start(t, p).connect(t).Tasks().Update(t.Context(), "team-a", op, "task-1", "v5",
			sdk.TaskChange{State: new("REVIEW")})
		if err != nil || answer.State != contract.StateNoChange || answer.Task.GetId() != "task-1" {
			t.Fatalf("%+v, %v", answer, err)
		}
		named := got.GetGuard().GetPendingTransition()
		if named.GetPendingTransitionId() != "move-1" || named.GetResourceVersion() != "v3" ||
			got.GetProvenance().GetConversationId() != "conv" || got.GetProvenance().GetSessionId() != "session" ||
			got.GetProvenance().GetExecutionGenerationToken() != "generation" {
			t.Errorf("request is %v", got)
		}
		if got.GetExpectedResourceVersion() != "v5" || got.GetState() != "REVIEW" || got.Title != nil || got.Description != nil {
			t.Errorf("request is %v", got)
		}
	})
}

// A Host that was closed says so, whatever a call was doing, and at once.
func TestCloseEndsCalls(t *testing.T) {
	unavailable := result(wireStates[contract.StateUnavailable], contract.ReasonDependencyUnavailable)
	unavailable.RetryAfterMs = 20_000
	for name, answer := range map[string]func(context.Context) (*pluginv1.CreateTaskExactResponse, error){
		"waiting for an answer": func(ctx context.Context) (*pluginv1.CreateTaskExactResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"waiting to repeat": func(context.Context) (*pluginv1.CreateTaskExactResponse, error) {
			return &pluginv1.CreateTaskExactResponse{Result: unavailable}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{onCreate: func(
					ctx context.Context, _ *pluginv1.CreateTaskExactRequest,
				) (*pluginv1.CreateTaskExactResponse, error) {
					return answer(ctx)
				}}
				host := start(t, p).connect(t, sdk.WithPollInterval(time.Hour))
				ended := make(chan error, 1)
				go func() {
					_, err := create(t, host)
					ended <- err
				}()
				synctest.Wait()
				began := time.Now()
				if err := host.Close(); err != nil {
					t.Error(err)
				}
				closed(t, <-ended)
				if took := time.Since(began); took > time.Second {
					t.Errorf("the call ended %v after Close", took)
				}
			})
		})
	}
	t.Run("later", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			host := start(t, &peer{}).connect(t)
			for range 2 {
				if err := host.Close(); err != nil {
					t.Error(err)
				}
			}
			_, err := create(t, host)
			closed(t, err)
			_, _, err = host.Tasks().Get(t.Context(), "team-a", "task-1")
			closed(t, err)
			_, err = collect(host.Tasks().List(t.Context(), "team-a", nil, sdk.ListOptions{}))
			closed(t, err)
			_, err = host.Context(t.Context())
			closed(t, err)
		})
	})
}

func closed(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, sdk.ErrClosed) {
		t.Errorf("error is %v, want ErrClosed", err)
	}
}
