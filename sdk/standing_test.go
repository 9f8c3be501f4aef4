package sdk_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
	"github.com/kandev/plugin-host/sdk"
)

func TestConnectLearnsTheStandingBeforeAnyCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{}
		host := start(t, p).connect(t)
		if p.contexts != 1 {
			t.Errorf("the context was fetched %d times before the first call", p.contexts)
		}
		got, err := host.Context(t.Context())
		if err != nil || len(got.GetWorkspaces()) != 1 || got.GetWorkspaces()[0].GetCapabilityRevision() != 7 {
			t.Errorf("context is %v, %v", got, err)
		}
		got.Workspaces[0].CapabilityRevision = 99
		again, err := host.Context(t.Context())
		if err != nil || again.GetWorkspaces()[0].GetCapabilityRevision() != 7 {
			t.Errorf("a caller changed the known context: %v, %v", again, err)
		}
	})
}

func TestConnectWaitsForAHostThatIsStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{down: status.Error(codes.Unavailable, "starting")}
		time.AfterFunc(2*time.Second, func() { p.set(func(p *peer) { p.down = nil }) })
		start(t, p).connect(t)
		if p.contexts < 3 {
			t.Errorf("the context was asked for %d times", p.contexts)
		}
	})
}

func TestConnectRefusesAnOlderContract(t *testing.T) {
	for _, version := range []string{"", "1", "two"} {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{standing: &pluginv1.GetCapabilityContextResponse{ContractVersion: version}}
			_, err := start(t, p).try(t)
			answer, ok := errors.AsType[*sdk.Error](err)
			if !ok || answer.Reason != contract.ReasonHostVersionUnsupported || answer.Field != "contract_version" {
				t.Errorf("contract version %q: error is %v", version, err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		start(t, &peer{standing: &pluginv1.GetCapabilityContextResponse{ContractVersion: "10"}}).connect(t)
	})
}

func TestDeniedCapabilityIsParkedUntilTheContextChanges(t *testing.T) {
	for _, reason := range []contract.Reason{
		contract.ReasonMissingCapabilityApproval, contract.ReasonCapabilityRevoked, contract.ReasonHumanReserved,
	} {
		t.Run(string(reason), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				script := &creations{answers: []*pluginv1.HostCommandResult{
					result(wireStates[contract.StateDenied], reason), result(wireStates[contract.StateApplied], ""),
				}}
				reads := 0
				p := &peer{onCreate: script.answer, onGet: func(
					r *pluginv1.GetTaskExactRequest,
				) (*pluginv1.GetTaskExactResponse, error) {
					reads++
					return taskAnswer(r.GetRequestId()), nil
				}}
				host := start(t, p).connect(t, sdk.WithPollInterval(10*time.Second))

				for i := range 3 {
					_, err := create(t, host)
					answer, ok := errors.AsType[*sdk.Error](err)
					if !ok || answer.State != contract.StateDenied || answer.Reason != reason ||
						answer.AuditID != "audit-"+string(reason) || answer.Local != (i > 0) {
						t.Fatalf("call %d: %v", i, err)
					}
				}
				if n := len(script.asked()); n != 1 {
					t.Errorf("a parked call was sent: %d requests", n)
				}
				// Other capabilities and other workspaces aren't parked with it.
				if _, _, err := host.Tasks().Get(t.Context(), "team-a", "task-1"); err != nil || reads != 1 {
					t.Errorf("reading is parked too: %v", err)
				}
				if err := host.Wait(t.Context(), "team-b", contract.WriteTasks); err != nil {
					t.Error(err)
				}

				began := time.Now()
				woken := make(chan error, 1)
				go func() { woken <- host.Wait(t.Context(), "team-a", contract.WriteTasks) }()
				// Polls that bring nothing new don't wake.
				pass(35 * time.Second)
				synctest.Wait()
				select {
				case err := <-woken:
					t.Fatalf("woken without a change: %v", err)
				default:
				}
				p.grant("team-a", 8, contract.ReadTasks, contract.WriteTasks)
				if err := <-woken; err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took != 40*time.Second {
					t.Errorf("woken after %v, not by the next poll", took)
				}
				if _, err := create(t, host); err != nil {
					t.Errorf("after the grant: %v", err)
				}
				if r := script.asked()[1]; r.GetCapabilityRevision() != 8 {
					t.Errorf("the new request is built on revision %d", r.GetCapabilityRevision())
				}
			})
		})
	}
}

// A denial that overtakes a grant must not park the caller on the context that
// came with the grant: nothing would ever wake it.
func TestDenialOlderThanTheContextParksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := &creations{answers: []*pluginv1.HostCommandResult{
			result(wireStates[contract.StateDenied], contract.ReasonMissingCapabilityApproval),
			result(wireStates[contract.StateApplied], ""),
		}}
		var host *sdk.Host
		p := &peer{}
		p.onCreate = func(
			ctx context.Context, r *pluginv1.CreateTaskExactRequest,
		) (*pluginv1.CreateTaskExactResponse, error) {
			response, err := script.answer(ctx, r)
			if len(script.asked()) == 1 { // the grant arrives while the denial is on its way
				p.grant("team-a", 8, contract.WriteTasks)
				if _, err := host.Context(ctx); err != nil {
					t.Error(err)
				}
			}
			return response, err
		}
		host = start(t, p).connect(t, sdk.WithPollInterval(time.Hour))
		if _, err := create(t, host); err == nil {
			t.Fatal("the denial is lost")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour) // or it would wait for ever
		defer cancel()
		if err := host.Wait(ctx, "team-a", contract.WriteTasks); err != nil {
			t.Error(err)
		}
		if _, err := create(t, host); err != nil {
			t.Errorf("after the grant: %v", err)
		}
	})
}

func TestAgentsDenialParksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := &creations{answers: []*pluginv1.HostCommandResult{
			result(wireStates[contract.StateDenied], contract.ReasonProvenanceRejected),
			result(wireStates[contract.StateApplied], ""),
		}}
		host := start(t, &peer{onCreate: script.answer}).connect(t)
		op := sdk.NewOperation("k", sdk.ExpectNone()).WithProvenance("c", "s", "g")
		if _, err := host.Tasks().Create(t.Context(), "team-a", op, aTask); err == nil {
			t.Fatal("not denied")
		}
		if _, err := create(t, host); err != nil {
			t.Errorf("the plugin's own write is parked: %v", err)
		}
	})
}

// A writer must state a revision. Where none is known there is nothing to send.
func TestWriterWithoutApprovalIsDeniedLocally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := &creations{answers: []*pluginv1.HostCommandResult{result(wireStates[contract.StateApplied], "")}}
		p := &peer{
			onCreate: script.answer,
			standing: &pluginv1.GetCapabilityContextResponse{ContractVersion: contract.ContractVersion},
		}
		host := start(t, p).connect(t)
		_, err := create(t, host)
		answer, ok := errors.AsType[*sdk.Error](err)
		if !ok || answer.Reason != contract.ReasonMissingCapabilityApproval || !answer.Local || answer.AuditID != "" {
			t.Fatalf("error is %v", err)
		}
		if len(script.asked()) != 0 {
			t.Error("it was sent")
		}
		p.grant("team-a", 1, contract.WriteTasks)
		if err := host.Wait(t.Context(), "team-a", contract.WriteTasks); err != nil {
			t.Fatal(err)
		}
		if _, err := create(t, host); err != nil {
			t.Errorf("after the grant: %v", err)
		}
	})
}

func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{standing: &pluginv1.GetCapabilityContextResponse{ContractVersion: contract.ContractVersion}}
		host, err := start(t, p).try(t)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := create(t, host); err == nil {
			t.Fatal("not denied")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := host.Wait(ctx, "team-a", contract.WriteTasks); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error is %v", err)
		}
		closed := make(chan error, 1)
		go func() { closed <- host.Wait(context.Background(), "team-a", contract.WriteTasks) }()
		synctest.Wait()
		if err := host.Close(); err != nil {
			t.Error(err)
		}
		if err := <-closed; !errors.Is(err, sdk.ErrClosed) {
			t.Errorf("error is %v", err)
		}
	})
}

// A poll that fails leaves everything as it was.
func TestPollSurvivesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{}
		var log strings.Builder
		host := start(t, p).connect(t, sdk.WithLogger(newLog(&log)))
		p.set(func(p *peer) { p.down = status.Error(codes.Unavailable, "gone") })
		pass(12 * time.Second)
		synctest.Wait()
		if n := strings.Count(log.String(), "could not be polled"); n != 2 {
			t.Errorf("two polls failed, %d were told:\n%s", n, log.String())
		}
		p.set(func(p *peer) { p.down = nil })
		p.grant("team-a", 9, contract.WriteTasks)
		pass(5 * time.Second)
		synctest.Wait()
		script := &creations{answers: []*pluginv1.HostCommandResult{result(wireStates[contract.StateApplied], "")}}
		p.onCreate = script.answer
		if _, err := create(t, host); err != nil || script.asked()[0].GetCapabilityRevision() != 9 {
			t.Errorf("%v, %v", err, script.asked())
		}
	})
}
