package controllers

import (
	"context"
	"errors"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kandev/plugin-host/hostsvc/authority"
)

const (
	// stormHolds within stormWindow are a storm.
	stormHolds  = 16
	stormWindow = 500 * time.Millisecond
	// stormShare is how many holds of one workspace within stormWindow count in
	// the storm of the whole cluster: one of many workspaces is everyone's, and
	// whoever edits in one delays nobody in another.
	stormShare = 2
	// stormPatience is how long one pass waits for the end of a storm.
	stormPatience = 20 * time.Second
)

// storm keeps passes from running while many holds are set at once, in a workspace
// those of that workspace, and in many workspaces all. A hold has taken authority
// away; the pass behind it only writes that down. Meanwhile the next revocations
// need the API server, its watch and the store for their own holds, and each pass
// takes more of those than ten holds do.
//
// The workspace is what is counted by, not the installation: it is where one
// tenant's rights end.
type storm struct {
	mu      sync.Mutex
	cluster gale
	// workspaces are those with a hold not long ago, by ID.
	workspaces map[string]*local
	// waiting is since when each pass that was put off waits, until it has succeeded.
	waiting map[authority.Key]time.Time
}

func newStorm() *storm {
	return &storm{workspaces: map[string]*local{}, waiting: map[authority.Key]time.Time{}}
}

// gale is a ring of when the newest holds of one place were set; next is the
// oldest.
type gale struct {
	holds [stormHolds]time.Time
	next  int
}

func (g *gale) held(now time.Time) {
	g.holds[g.next] = now
	g.next = (g.next + 1) % stormHolds
}

// left is how long there are at least so many holds in the window that it is a
// storm; nothing in calm.
func (g *gale) left(now time.Time) time.Duration { return stormWindow - now.Sub(g.holds[g.next]) }

// local is the gale of one workspace.
type local struct {
	gale
	// shared is a ring of when its newest holds counted in the cluster's; oldest is
	// the next one.
	shared [stormShare]time.Time
	oldest int
	newest time.Time
}

// held records that a hold was set now.
func (s *storm) held(workspaceID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	of := s.workspaces[workspaceID]
	if of == nil {
		for id, other := range s.workspaces {
			if now.Sub(other.newest) >= stormWindow {
				delete(s.workspaces, id)
			}
		}
		of = &local{}
		s.workspaces[workspaceID] = of
	}
	of.newest = now
	of.held(now)
	if now.Sub(of.shared[of.oldest]) >= stormWindow {
		of.shared[of.oldest] = now
		of.oldest = (of.oldest + 1) % stormShare
		s.cluster.held(now)
	}
}

// wait returns how long the pass of a key has to be put off, zero in calm or once
// it has been for long enough. A pass that then fails has waited for its next try
// as well.
func (s *storm) wait(key authority.Key) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	left := s.cluster.left(now)
	if of := s.workspaces[key.WorkspaceID]; of != nil {
		left = max(left, of.left(now))
	}
	since, waits := s.waiting[key]
	if !waits {
		since = now
	}
	left = min(left, stormPatience-now.Sub(since))
	if left <= 0 {
		return 0
	}
	s.waiting[key] = since
	return left
}

// ran records that the pass of a key waits no more.
func (s *storm) ran(key authority.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, key)
}

// calmPasses puts passes off in a storm. They wait in the queue: in a worker, those
// of one workspace could take every worker from all others.
type calmPasses struct {
	reconcile.TypedReconciler[authority.Key]

	storm *storm
}

// Reconcile implements reconcile.TypedReconciler.
func (c calmPasses) Reconcile(ctx context.Context, key authority.Key) (reconcile.Result, error) {
	if left := c.storm.wait(key); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	result, err := c.TypedReconciler.Reconcile(ctx, key)
	if err == nil || errors.Is(err, reconcile.TerminalError(nil)) {
		c.storm.ran(key)
	}
	return result, err //nolint:wrapcheck // it is the one that was put off
}
