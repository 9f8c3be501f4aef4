package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/journal"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
	"github.com/kandev/plugin-host/sdk"
	"github.com/kandev/plugin-host/test/world"
)

const (
	// revokeRounds is how often each way to revoke is measured.
	revokeRounds = 100
	// revokeWriters write without pause, each a task of its own.
	revokeWriters = 4
	// revokeWarm is how many writes of each writer are answered before the human
	// revokes.
	revokeWarm = 5
)

// measureRevocation runs the demo's world, revokes under writers that never pause,
// and measures from the API server's answer to the revocation until the last write
// that was answered APPLIED. It fails when a write commits that must not (I5).
func measureRevocation(ctx context.Context, m *measurement) (err error) {
	w, err := world.Start(ctx, world.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Stop()) }()
	r := &revocation{world: w, applied: map[uint64]int{}}
	latencies, err := r.run(ctx)
	if err != nil {
		return errors.Join(err, w.Host.LastWords())
	}
	// The file may be read once the Host has ended.
	if err := w.Host.Stop(); err != nil {
		return err
	}
	if err := r.checkJournal(); err != nil {
		return err
	}
	for i, way := range waysToRevoke {
		fmt.Printf("%s on sqlite, %d writers in flight, %d rounds: %s\n", way.what, revokeWriters, revokeRounds, spread(latencies[i]))
		p99 := milliseconds(quantile(latencies[i], 0.99))
		m.report(figure{name: way.figure, value: p99, unit: "ms", atMost: way.atMost})
	}
	// What is in flight at the revocation may still commit. Where this is slow, other
	// work on the machine has moved the figures.
	fmt.Printf("one of the %d writes, for comparison: %s\n", len(r.took), spread(r.took))
	return nil
}

// waysToRevoke are measured in turn. The last look of a way returns the act that the
// next grant supersedes, once the fence is done.
var waysToRevoke = []struct {
	what, figure string
	atMost       *float64
	revoke       func(*revocation, context.Context, *v1alpha1.PluginCapabilityApproval) error
	fenced       func(*revocation, context.Context, *v1alpha1.PluginCapabilityApproval) (act string, err error)
}{
	{"revoke by edit", "revoke_to_denied_p99", bar(20), (*revocation).edit, (*revocation).fencedByEdit},
	{"revoke by deletion", "revoke_by_delete_p99", nil, (*revocation).remove, (*revocation).fencedByRemoval},
}

// revocation is the installed plugin, its writers, and what they were told.
type revocation struct {
	world     *world.World
	installed *v1alpha1.PluginInstallation
	client    pluginv1.HostClient
	writers   [revokeWriters]taskWriter
	// applied counts the writes answered APPLIED under each revision.
	applied map[uint64]int
	// took is how long each of them was in flight.
	took []time.Duration
}

// taskWriter is what one writer knows of its task.
type taskWriter struct {
	// workspace is the one that its task is in.
	id, workspace, taskID, version string
	calls                          int
}

// run returns the latencies of each way to revoke.
func (r *revocation) run(ctx context.Context) ([][]time.Duration, error) {
	if err := r.world.Kube(ctx, "apply", "--server-side", "-f", "test/demo/manifests/installation.yaml"); err != nil {
		return nil, err
	}
	var err error
	if r.installed, err = r.world.Installation(ctx); err != nil {
		return nil, err
	}
	granted, err := r.grant(ctx, "")
	if err != nil {
		return nil, err
	}
	if err := r.createTasks(ctx, uint64(granted.Status.Revision)); err != nil {
		return nil, err
	}
	token, err := os.ReadFile(r.world.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("read the plugin's token: %w", err)
	}
	conn, err := dialHost(r.world, strings.TrimSpace(string(token)))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // every answer has come
	r.client = pluginv1.NewHostClient(conn)
	latencies := make([][]time.Duration, len(waysToRevoke))
	for round := range revokeRounds * len(waysToRevoke) {
		at := round % len(waysToRevoke)
		latency, act, err := r.round(ctx, at, granted)
		if err != nil {
			return nil, fmt.Errorf("round %d, %s: %w", round+1, waysToRevoke[at].what, err)
		}
		latencies[at] = append(latencies[at], latency)
		if granted, err = r.grant(ctx, act); err != nil {
			return nil, err
		}
	}
	return latencies, nil
}

// grant approves, whether or not there is an approval object, and waits until the
// grant is in force.
func (r *revocation) grant(ctx context.Context, act string) (*v1alpha1.PluginCapabilityApproval, error) {
	approval := v1alpha1.PluginCapabilityApproval{ObjectMeta: metav1.ObjectMeta{Namespace: world.Workspace, Name: world.Plugin}}
	err := r.world.API.Get(ctx, client.ObjectKeyFromObject(&approval), &approval)
	approval.Spec = world.Draft(r.installed, act, "To be measured.",
		"host.v2.read:tasks", "host.v2.read:workflows", "host.v2.write:tasks")
	switch {
	case apierrors.IsNotFound(err):
		err = r.world.Approver.Create(ctx, &approval)
	case err == nil:
		err = r.world.Approver.Update(ctx, &approval)
	}
	if err != nil {
		return nil, fmt.Errorf("grant: %w", err)
	}
	return r.world.Settled(ctx, "the grant is in force", world.InForce("3/3"))
}

// createTasks makes a task for each writer, as a plugin does.
func (r *revocation) createTasks(ctx context.Context, revision uint64) (err error) {
	var host *sdk.Host
	if err := world.Await(ctx, "the plugin is known", func() (bool, string, error) {
		var err error
		host, err = sdk.Connect(ctx, sdk.WithAddress(r.world.Address), sdk.WithCAFile(r.world.CAFile), sdk.WithTokenFile(r.world.TokenFile))
		if _, unknown := errors.AsType[*sdk.UnauthenticatedError](err); unknown {
			return false, err.Error(), nil
		}
		return err == nil, "", err
	}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	task := sdk.NewTask{Title: "Is written without pause"}
	for workflow, err := range host.Workflows().List(ctx, world.Workspace, sdk.ListOptions{}).Items() {
		if err != nil {
			return err
		}
		task.WorkflowID, task.WorkflowVersion = workflow.GetWorkflow().GetId(), workflow.GetResourceVersion()
	}
	for step, err := range host.Workflows().Steps(ctx, world.Workspace, task.WorkflowID, sdk.ListOptions{}).Items() {
		if err != nil {
			return err
		}
		if step.GetStep().GetIsStartStep() {
			task.StepID, task.StepVersion = step.GetStep().GetId(), step.GetResourceVersion()
		}
	}
	for i := range r.writers {
		id := "writer-" + strconv.Itoa(i)
		task.ExternalID = id
		done, err := host.Tasks().Create(ctx, world.Workspace, sdk.NewOperation(id, sdk.ExpectNone()), task)
		if err != nil {
			return err
		}
		r.writers[i] = taskWriter{id: id, workspace: world.Workspace, taskID: done.Task.GetId(), version: done.ResourceVersion}
		r.applied[revision]++
	}
	return nil
}

// dialHost connects as a plugin's pod would. The writers use the protocol itself: the
// SDK would park them at the first denial.
func dialHost(w *world.World, token string) (*grpc.ClientConn, error) {
	ca, err := os.ReadFile(w.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read the CA of the Host: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("read the CA of the Host: %s holds no PEM certificate", w.CAFile)
	}
	conn, err := grpc.NewClient(w.Address,
		grpc.WithPerRPCCredentials(bearer(token)),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13})))
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return conn, nil
}

// round revokes what is granted, under writers, and returns the time from the answer
// to that until the last APPLIED, and the act that the next grant supersedes.
func (r *revocation) round(
	ctx context.Context, at int, granted *v1alpha1.PluginCapabilityApproval,
) (latency time.Duration, act string, err error) {
	revision := uint64(granted.Status.Revision)
	writing := r.startWriting(ctx, revision)
	defer writing.end()
	way := waysToRevoke[at]
	if err := writing.await(ctx, "every writer writes", func(w wrote) bool { return w.applied >= revokeWarm }); err != nil {
		return 0, "", err
	}
	asked := time.Now()
	if err := way.revoke(r, ctx, granted); err != nil {
		return 0, "", fmt.Errorf("revoke: %w", err)
	}
	answered := time.Now()
	if err := writing.await(ctx, "every writer is refused", func(w wrote) bool { return w.refused.After(asked) }); err != nil {
		return 0, "", err
	}
	if act, err = way.fenced(r, ctx, granted); err != nil {
		return 0, "", err
	}
	fenced := time.Now()
	if err := writing.await(ctx, "every writer is refused after the fence", func(w wrote) bool { return w.refused.After(fenced) }); err != nil {
		return 0, "", err
	}
	writing.end()
	if writing.err != nil {
		return 0, "", writing.err
	}
	r.took = append(r.took, writing.took...)
	for _, w := range writing.wrote {
		r.applied[revision] += w.applied
		latency = max(latency, w.last.Sub(answered))
		if w.lastBegun.After(fenced) {
			return 0, "", fmt.Errorf("a write was begun %v after the fence of revision %d was seen, and committed",
				w.lastBegun.Sub(fenced), revision)
		}
	}
	return latency, act, nil
}

// edit revokes as kubectl patch does.
func (r *revocation) edit(ctx context.Context, granted *v1alpha1.PluginCapabilityApproval) error {
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"state":"Revoked"}}`))
	return r.world.Approver.Patch(ctx, granted.DeepCopy(), patch)
}

func (r *revocation) fencedByEdit(ctx context.Context, _ *v1alpha1.PluginCapabilityApproval) (string, error) {
	revoked, err := r.world.Settled(ctx, "the revocation is fenced", func(o *v1alpha1.PluginCapabilityApproval) bool {
		return o.Status.State == v1alpha1.StateRevoked
	})
	return revoked.Status.Act, err
}

func (r *revocation) remove(ctx context.Context, granted *v1alpha1.PluginCapabilityApproval) error {
	return r.world.Approver.Delete(ctx, granted.DeepCopy())
}

// fencedByRemoval waits for the event. Its fence may still be on its way, and no
// status is left to tell; what was held at the deletion denies meanwhile.
func (r *revocation) fencedByRemoval(ctx context.Context, granted *v1alpha1.PluginCapabilityApproval) (string, error) {
	key := authority.Key{InstallationID: granted.Spec.InstallationID, WorkspaceID: granted.Spec.WorkspaceID}
	name := authority.EventName(key, uint64(granted.Status.Revision)+1)
	var event v1alpha1.PluginCapabilityApprovalEvent
	err := world.Await(ctx, "the deletion is recorded", func() (bool, string, error) {
		err := r.world.API.Get(ctx, client.ObjectKey{Name: name}, &event)
		if apierrors.IsNotFound(err) {
			return false, "no event " + name, nil
		}
		return err == nil, "", err
	})
	return event.Spec.Act, err
}

// writing is the writers at work under one revision.
type writing struct {
	stop context.CancelFunc
	join sync.WaitGroup

	mu    sync.Mutex
	wrote [revokeWriters]wrote
	took  []time.Duration
	err   error
}

// wrote is what one writer was answered.
type wrote struct {
	applied int
	// last is when the last APPLIED arrived, lastBegun when its call was made.
	last, lastBegun time.Time
	// refused is when the last refused call was made.
	refused time.Time
}

func (r *revocation) startWriting(ctx context.Context, revision uint64) *writing {
	stopped, stop := context.WithCancel(ctx)
	w := &writing{stop: stop}
	for i := range r.writers {
		w.join.Go(func() {
			for stopped.Err() == nil {
				begun := time.Now()
				// A call is never cancelled: what it did has to be known.
				applied, err := r.writers[i].write(ctx, r.client, revision)
				w.note(i, begun, time.Now(), applied, err)
				if err != nil {
					return
				}
			}
		})
	}
	return w
}

func (w *writing) note(i int, begun, answered time.Time, applied bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch wrote := &w.wrote[i]; {
	case err != nil:
		w.err = errors.Join(w.err, err)
	case applied:
		wrote.applied++
		wrote.last, wrote.lastBegun = answered, begun
		w.took = append(w.took, answered.Sub(begun))
	default:
		wrote.refused = begun
	}
}

// await waits until holds is true of every writer.
func (w *writing) await(ctx context.Context, what string, holds func(wrote) bool) error {
	return world.Await(ctx, what, func() (bool, string, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, one := range w.wrote {
			if !holds(one) {
				return false, fmt.Sprintf("%+v", w.wrote), w.err
			}
		}
		return true, "", w.err
	})
}

// end stops the writers after the calls in flight. It may be called again.
func (w *writing) end() {
	w.stop()
	w.join.Wait()
}

// write makes one exact write. Only what is no typed answer is an error.
func (t *taskWriter) write(ctx context.Context, host pluginv1.HostClient, revision uint64) (applied bool, err error) {
	t.calls++
	unique := t.id + "-" + strconv.Itoa(t.calls)
	response, err := host.UpdateTaskExact(ctx, &pluginv1.UpdateTaskExactRequest{
		RequestId: unique, WorkspaceId: t.workspace, TaskId: t.taskID, IdempotencyKey: unique,
		ExpectedResourceVersion: t.version, Description: &unique, CapabilityRevision: revision,
		Guard: &pluginv1.PendingTransitionGuard{Expectation: &pluginv1.PendingTransitionGuard_ExpectNone{
			ExpectNone: &pluginv1.PendingTransitionGuard_NoTransition{},
		}},
	})
	if err != nil {
		return false, fmt.Errorf("update task %s: %w", t.taskID, err)
	}
	result := response.GetResult()
	switch result.GetStatus() {
	case pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_APPLIED:
		t.version = result.GetResultResourceVersion()
		if under := result.GetReceipt().GetApprovalRevision(); under != revision {
			return false, fmt.Errorf("a write under revision %d was committed under %d", revision, under)
		}
		return true, nil
	case pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_DENIED, pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_UNAVAILABLE,
		pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_CONFLICT:
		return false, nil
	default:
		return false, fmt.Errorf("a write was neither applied nor refused: %v", result)
	}
}

// checkJournal reads the workspace's commits in their order: every command is under
// the revision that the last fence put in force, none follows a hold, and as many
// were committed under each revision as were answered APPLIED.
func (r *revocation) checkJournal() error {
	conn, err := sqlite.OpenConn(r.world.Database, sqlite.OpenReadOnly)
	if err != nil {
		return fmt.Errorf("open the Host's database: %w", err)
	}
	committed, inForce, held := map[uint64]int{}, uint64(0), false
	err = sqlitex.ExecuteTransient(conn, "SELECT version, kind, revision FROM journal WHERE workspace_id = ? ORDER BY version",
		&sqlitex.ExecOptions{Args: []any{world.Workspace}, ResultFunc: func(row *sqlite.Stmt) error {
			version, revision := row.ColumnInt64(0), uint64(row.ColumnInt64(2))
			switch journal.Kind(row.ColumnText(1)) {
			case journal.KindFence:
				inForce, held = revision, false
			case journal.KindHold:
				held = true
			case journal.KindCommand:
				if held || revision != inForce {
					return fmt.Errorf("commit %d is of revision %d, after the fence to %d (held: %t)", version, revision, inForce, held)
				}
				committed[revision]++
			default: // a binding or an import, before the first grant
			}
			return nil
		}})
	if err := errors.Join(err, conn.Close()); err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	for revision, n := range committed {
		if r.applied[revision] != n {
			return fmt.Errorf("under revision %d %d writes were committed and %d answered APPLIED", revision, n, r.applied[revision])
		}
	}
	if len(committed) != len(r.applied) {
		return fmt.Errorf("writes were committed under %d revisions and answered APPLIED under %d", len(committed), len(r.applied))
	}
	return nil
}

// spread tells values in one line.
func spread(values []time.Duration) string {
	return fmt.Sprintf("p50 %.1f ms, p99 %.1f ms, max %.1f ms", milliseconds(quantile(values, 0.5)),
		milliseconds(quantile(values, 0.99)), milliseconds(slices.Max(values)))
}

// quantile is the smallest value that the share q of the values doesn't exceed.
func quantile(values []time.Duration, q float64) time.Duration {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return sorted[int(math.Ceil(q*float64(len(sorted))))-1]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
