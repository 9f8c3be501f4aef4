package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
	"github.com/kandev/plugin-host/test/world"
)

const (
	// A fleet of scalePlugins installations, each approved in scaleWorkspaces.
	scalePlugins    = 100
	scaleWorkspaces = 100
	scaleApprovals  = scalePlugins * scaleWorkspaces
	// moreWorkspaces are added to learn what one more approval weighs.
	moreWorkspaces = 40
	// stormRevocations are revoked at once, while stormWriters write without
	// pause: by stormClients at a time, as a controller that applies Git does, and
	// by floodClients, more than an API server on two cores keeps up with.
	stormRevocations = 1000
	stormClients     = 8
	floodClients     = 32
	stormWriters     = 16
	// scaleClients create the objects.
	scaleClients = 16
	// restFor is how long the memory of an idle Host is looked at.
	restFor = 2 * time.Minute
	// scalePatience bounds what is waited for.
	scalePatience = 10 * time.Minute
)

// measureScale runs the demo's world with 10,000 approvals: how long a Host that
// finds them all new takes until each says Ready, what one more weighs, and how
// long a storm of revocations lets writers go on.
func measureScale(ctx context.Context, m *measurement) (err error) {
	dir, err := os.MkdirTemp("", "plugin-host-bench-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	seed := filepath.Join(dir, "seed.jsonl")
	if err := writeScaleSeed(seed); err != nil {
		return err
	}
	w, err := world.Start(ctx, world.Options{Seed: seed, TokenLife: 2 * time.Hour})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Stop()) }()
	f := &fleet{world: w, plugins: make([]*v1alpha1.PluginInstallation, scalePlugins)}
	if err := f.run(ctx, m); err != nil {
		return errors.Join(err, w.Host.LastWords())
	}
	return nil
}

// fleet is the installations with their approvals.
type fleet struct {
	world   *world.World
	plugins []*v1alpha1.PluginInstallation
}

func pluginName(i int) string    { return fmt.Sprintf("fleet-%03d", i) }
func workspaceName(i int) string { return fmt.Sprintf("fleet-team-%03d", i) }

// The storm's workspaces come first, so that each has one approval at least.
func (f *fleet) run(ctx context.Context, m *measurement) error {
	if err := f.install(ctx); err != nil {
		return err
	}
	if err := f.workspaces(ctx, 0, scaleWorkspaces); err != nil {
		return err
	}
	if err := f.world.Host.Stop(); err != nil {
		return err
	}
	if err := f.approve(ctx, 0, scaleWorkspaces); err != nil {
		return err
	}
	took, err := f.cold(ctx, scaleApprovals)
	if err != nil {
		return err
	}
	fmt.Printf("%d approvals, cold start to all Ready: %.1f s\n", scaleApprovals, took.Seconds())
	m.report(figure{name: "reconcile_10k_cold_s", value: took.Seconds(), unit: "s", atMost: bar(90)})
	p99, err := f.storm(ctx, 0, stormClients)
	if err != nil {
		return fmt.Errorf("revoke %d at once: %w", stormRevocations, err)
	}
	m.report(figure{name: "revoke_storm_1k_p99", value: p99, unit: "ms", atMost: bar(250)})
	// Here the watch itself lags, whoever watches: a figure without a bar.
	if p99, err = f.storm(ctx, stormRevocations/scaleWorkspaces, floodClients); err != nil {
		return fmt.Errorf("revoke %d by %d clients: %w", stormRevocations, floodClients, err)
	}
	m.report(figure{name: "revoke_storm_1k_32_clients_p99", value: p99, unit: "ms"})
	return f.weigh(ctx, m)
}

// each runs fn for 0 to n-1, scaleClients at a time.
func each(ctx context.Context, n int, fn func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(scaleClients)
	for i := range n {
		group.Go(func() error { return fn(ctx, i) })
	}
	return group.Wait()
}

func (f *fleet) install(ctx context.Context) error {
	err := each(ctx, scalePlugins, func(ctx context.Context, i int) error {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: pluginName(i)}}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: pluginName(i), Name: "plugin"}}
		installation := &v1alpha1.PluginInstallation{
			ObjectMeta: metav1.ObjectMeta{Name: pluginName(i)},
			Spec: v1alpha1.PluginInstallationSpec{
				PluginID: "kandev.fleet", Version: "1.0.0",
				ServiceAccountRef: v1alpha1.ServiceAccountReference{Namespace: pluginName(i), Name: "plugin"},
			},
		}
		for _, id := range []v1alpha1.CapabilityID{"host.v2.read:tasks", "host.v2.read:workflows", "host.v2.write:tasks"} {
			installation.Spec.Manifest.Capabilities = append(installation.Spec.Manifest.Capabilities,
				v1alpha1.ManifestCapability{ID: id, Reason: "To be measured."})
		}
		for _, o := range []client.Object{namespace, account, installation} {
			if err := f.world.API.Create(ctx, o); err != nil {
				return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := range f.plugins {
		err := world.Await(ctx, "the installation has its ID", func() (bool, string, error) {
			var o v1alpha1.PluginInstallation
			err := f.world.API.Get(ctx, client.ObjectKey{Name: pluginName(i)}, &o)
			f.plugins[i] = &o
			return o.Status.ManifestDigest != "", world.Describe(o.Status.Conditions), err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) workspaces(ctx context.Context, from, to int) error {
	return each(ctx, to-from, func(ctx context.Context, i int) error {
		name := workspaceName(from + i)
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{v1alpha1.LabelWorkspaceID: name},
		}}
		if err := f.world.API.Create(ctx, namespace); err != nil {
			return fmt.Errorf("create workspace %s: %w", name, err)
		}
		return f.world.AllowApprover(ctx, name)
	})
}

// draft is the approval of a plugin in a workspace.
func (f *fleet) draft(plugin, workspace int) *v1alpha1.PluginCapabilityApproval {
	o := f.plugins[plugin]
	return &v1alpha1.PluginCapabilityApproval{
		ObjectMeta: metav1.ObjectMeta{Namespace: workspaceName(workspace), Name: o.Name},
		Spec: v1alpha1.PluginCapabilityApprovalSpec{
			InstallationName: o.Name, InstallationID: o.Status.InstallationID, ManifestDigest: o.Status.ManifestDigest,
			WorkspaceID:  workspaceName(workspace),
			Capabilities: []v1alpha1.CapabilityID{"host.v2.read:tasks", "host.v2.read:workflows", "host.v2.write:tasks"},
			State:        v1alpha1.StateActive, ApprovedBy: world.Ada, Reason: "To be measured.",
		},
	}
}

func (f *fleet) approve(ctx context.Context, from, to int) error {
	began := time.Now()
	err := each(ctx, (to-from)*scalePlugins, func(ctx context.Context, i int) error {
		o := f.draft(i%scalePlugins, from+i/scalePlugins)
		if err := f.world.Approver.Create(ctx, o); err != nil {
			return fmt.Errorf("approve %s in %s: %w", o.Name, o.Namespace, err)
		}
		return nil
	})
	fmt.Printf("%d approvals created in %.1f s\n", (to-from)*scalePlugins, time.Since(began).Seconds())
	return err
}

// cold starts the Host and returns how long it takes until n approvals of the
// fleet are Ready.
func (f *fleet) cold(ctx context.Context, n int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, scalePatience)
	defer cancel()
	var list v1alpha1.PluginCapabilityApprovalList
	if err := f.world.API.List(ctx, &list); err != nil {
		return 0, fmt.Errorf("list the approvals: %w", err)
	}
	ready := map[types.UID]bool{}
	see := func(o *v1alpha1.PluginCapabilityApproval) {
		if world.Condition(o.Status.Conditions, v1alpha1.ConditionReady, o.Generation).Status == metav1.ConditionTrue {
			ready[o.UID] = true
		}
	}
	for i := range list.Items {
		see(&list.Items[i])
	}
	began := time.Now()
	if err := f.world.StartHost(ctx); err != nil {
		return 0, err
	}
	for version := list.ResourceVersion; len(ready) < n; {
		events, err := f.world.API.Watch(ctx, &list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})
		if err != nil {
			return 0, fmt.Errorf("watch the approvals: %w", err)
		}
		for event := range events.ResultChan() {
			o, ok := event.Object.(*v1alpha1.PluginCapabilityApproval)
			if !ok || event.Type == watch.Error {
				break
			}
			version = o.ResourceVersion
			see(o)
			if len(ready) == n {
				break
			}
		}
		events.Stop()
		if ctx.Err() != nil {
			return 0, fmt.Errorf("%d of %d approvals are Ready: %w", len(ready), n, ctx.Err())
		}
	}
	return time.Since(began), nil
}

// weigh compares the resident memory of a Host that has nothing to do, before
// and after there are more approvals.
func (f *fleet) weigh(ctx context.Context, m *measurement) error {
	before, err := f.resident(ctx)
	if err != nil {
		return err
	}
	if err := f.workspaces(ctx, scaleWorkspaces, scaleWorkspaces+moreWorkspaces); err != nil {
		return err
	}
	if err := f.world.Host.Stop(); err != nil {
		return err
	}
	if err := f.approve(ctx, scaleWorkspaces, scaleWorkspaces+moreWorkspaces); err != nil {
		return err
	}
	if _, err := f.cold(ctx, scaleApprovals-2*stormRevocations+moreWorkspaces*scalePlugins); err != nil {
		return err
	}
	after, err := f.resident(ctx)
	if err != nil {
		return err
	}
	one := float64(after-before) / (moreWorkspaces * scalePlugins)
	fmt.Printf("resident memory at %d approvals %.1f MB, with %d more %.1f MB\n",
		scaleApprovals, float64(before)/1e6, moreWorkspaces*scalePlugins, float64(after)/1e6)
	m.report(figure{name: "approval_bytes", value: one, unit: "bytes", atMost: bar(12_000)})
	return nil
}

// resident starts the Host anew and returns the least memory that it gets by with
// for a while: rounds come and go, and what counts is what an approval needs. The
// collector is told to leave little garbage.
func (f *fleet) resident(ctx context.Context) (int64, error) {
	if err := f.world.Host.Stop(); err != nil {
		return 0, err
	}
	if err := f.world.StartHost(ctx, "GOGC=5"); err != nil {
		return 0, err
	}
	least := int64(math.MaxInt64)
	ctx, cancel := context.WithTimeout(ctx, restFor)
	defer cancel()
	for samples := time.Tick(time.Second); ; {
		select {
		case <-samples:
			now, err := residentBytes(f.world.Host.PID())
			if err != nil {
				return 0, err
			}
			least = min(least, now)
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return least, nil
			}
			return 0, fmt.Errorf("wait until the memory of the Host rests: %w", ctx.Err())
		}
	}
}

func residentBytes(pid int) (int64, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0, fmt.Errorf("read the memory of the Host: %w", err)
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("read the memory of the Host: %q", text)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the memory of the Host: %w", err)
	}
	return pages * int64(os.Getpagesize()), nil
}

// storm revokes the approvals of some installations at once, from the first of
// them on, and returns the p99 of how long writers go on, in milliseconds: plugins
// of the first installation that write in stormWriters of the workspaces.
func (f *fleet) storm(ctx context.Context, first, clients int) (p99 float64, err error) {
	token, err := f.world.TokenFor(ctx, pluginName(first), "plugin")
	if err != nil {
		return 0, err
	}
	conn, err := dialHost(f.world, token)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }() // every answer has come
	host := pluginv1.NewHostClient(conn)
	writers := make([]*stormWriter, stormWriters)
	for i := range writers {
		if writers[i], err = newStormWriter(ctx, f.world, host, pluginName(first), i); err != nil {
			return 0, err
		}
	}
	writing, stop := context.WithCancel(ctx)
	defer stop()
	group, writing := errgroup.WithContext(writing)
	for _, w := range writers {
		group.Go(func() error { return w.run(writing) })
	}
	if err := awaitAll(ctx, writers, "every writer writes", func(w *stormWriter) bool { return w.applied.Load() >= revokeWarm }); err != nil {
		return 0, err
	}
	answered := make([]atomic.Int64, stormWriters)
	revoking, ctxOfAll := errgroup.WithContext(ctx)
	revoking.SetLimit(clients)
	began := time.Now()
	for i := range stormRevocations {
		revoking.Go(func() error {
			// A stride that is prime to their number spreads the writers' own
			// approvals over the storm.
			at := i * 617 % stormRevocations
			plugin, workspace := first+at/scaleWorkspaces, at%scaleWorkspaces
			o := f.draft(plugin, workspace)
			patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"state":"Revoked"}}`))
			if err := f.world.Approver.Patch(ctxOfAll, o, patch); err != nil {
				return fmt.Errorf("revoke %s in %s: %w", o.Name, o.Namespace, err)
			}
			if plugin == first && workspace < stormWriters {
				answered[workspace].Store(time.Now().UnixNano())
			}
			return nil
		})
	}
	if err := revoking.Wait(); err != nil {
		return 0, err
	}
	took := time.Since(began)
	if err := awaitAll(ctx, writers, "every writer is refused", func(w *stormWriter) bool { return w.refused.Load() > revokeWarm }); err != nil {
		return 0, err
	}
	stop()
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return 0, err
	}
	latencies := make([]time.Duration, stormWriters)
	for i, w := range writers {
		latencies[i] = max(0, time.Duration(w.last.Load()-answered[i].Load()))
	}
	// The passes behind the holds are no part of what comes next.
	if err := f.awaitRevoked(ctx, first); err != nil {
		return 0, err
	}
	fmt.Printf("%d revocations by %d clients in %.1f s, %d writers: %s\n", stormRevocations, clients, took.Seconds(), stormWriters, spread(latencies))
	return milliseconds(quantile(latencies, 0.99)), nil
}

// awaitRevoked waits until the status of what a storm revoked says so. It looks
// rarely: a list of all approvals is work.
func (f *fleet) awaitRevoked(ctx context.Context, first int) error {
	err := wait.PollUntilContextTimeout(ctx, time.Second, scalePatience, false, func(ctx context.Context) (bool, error) {
		var list v1alpha1.PluginCapabilityApprovalList
		if err := f.world.API.List(ctx, &list); err != nil {
			return false, fmt.Errorf("list the approvals: %w", err)
		}
		published := 0
		for i := range list.Items {
			o := &list.Items[i]
			if o.Name >= pluginName(first) && o.Name < pluginName(first+stormRevocations/scaleWorkspaces) && o.Status.State == v1alpha1.StateRevoked {
				published++
			}
		}
		return published == stormRevocations, nil
	})
	if err != nil {
		return fmt.Errorf("wait until every revocation is published: %w", err)
	}
	return nil
}

// stormWriter writes one task of one workspace without pause.
type stormWriter struct {
	host      pluginv1.HostClient
	workspace string
	task      taskWriter
	revision  uint64

	applied, refused atomic.Int64
	// last is when the last APPLIED arrived.
	last atomic.Int64
}

func newStormWriter(ctx context.Context, w *world.World, host pluginv1.HostClient, installation string, i int) (*stormWriter, error) {
	s := &stormWriter{host: host, workspace: workspaceName(i)}
	var o v1alpha1.PluginCapabilityApproval
	if err := w.API.Get(ctx, client.ObjectKey{Namespace: s.workspace, Name: installation}, &o); err != nil {
		return nil, fmt.Errorf("read the approval of a writer: %w", err)
	}
	s.revision = uint64(o.Status.Revision)
	read, err := host.ListTasksExact(ctx, &pluginv1.ListTasksExactRequest{
		RequestId: "find-" + s.workspace, WorkspaceId: s.workspace,
	})
	if err != nil {
		return nil, fmt.Errorf("find a task: %w", err)
	}
	if len(read.GetItems()) == 0 {
		return nil, fmt.Errorf("no task in workspace %s: %v", s.workspace, read)
	}
	task := read.GetItems()[0]
	s.task = taskWriter{id: installation + "-" + strconv.Itoa(i), workspace: s.workspace, taskID: task.GetTask().GetId(), version: task.GetResourceVersion()}
	return s, nil
}

func (s *stormWriter) run(ctx context.Context) error {
	for ctx.Err() == nil {
		// A call is never cancelled: what it did has to be known.
		applied, err := s.task.write(context.WithoutCancel(ctx), s.host, s.revision)
		switch {
		case err != nil:
			return err
		case applied:
			s.last.Store(time.Now().UnixNano())
			s.applied.Add(1)
		default:
			s.refused.Add(1)
		}
	}
	return nil
}

func awaitAll(ctx context.Context, writers []*stormWriter, what string, holds func(*stormWriter) bool) error {
	return world.Await(ctx, what, func() (bool, string, error) {
		for _, w := range writers {
			if !holds(w) {
				return false, fmt.Sprintf("%s: %d applied, %d refused", w.workspace, w.applied.Load(), w.refused.Load()), nil
			}
		}
		return true, "", nil
	})
}

// writeScaleSeed gives each workspace of a writer a task.
func writeScaleSeed(path string) error {
	var seed bytes.Buffer
	lines := json.NewEncoder(&seed)
	for i := range stormWriters {
		workspace, flow, step := workspaceName(i), fmt.Sprintf("flow-%d", i), fmt.Sprintf("todo-%d", i)
		for _, document := range []map[string]any{
			{"kind": "workspace", "id": workspace, "name": workspace},
			{"kind": "workflow", "workspace_id": workspace, "id": flow, "name": "Flow"},
			{"kind": "step", "workspace_id": workspace, "workflow_id": flow, "id": step, "name": "To do", "is_start_step": true},
			{"kind": "task", "workspace_id": workspace, "workflow_step_id": step, "id": fmt.Sprintf("task-%d", i), "title": "Is written without pause"},
		} {
			if err := lines.Encode(document); err != nil {
				return fmt.Errorf("encode the seed: %w", err)
			}
		}
	}
	if err := os.WriteFile(path, seed.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write the seed: %w", err)
	}
	return nil
}
