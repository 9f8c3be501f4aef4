package sdk

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// standing is what the plugin knows of its own authority. It informs; the Host
// decides every call.
type standing struct {
	// fetching holds one token: fetches run one after another, so that the last
	// answer is the newest.
	fetching chan struct{}

	mu      sync.Mutex
	context *pluginv1.GetCapabilityContextResponse
	// turn counts the changes of context.
	turn uint64
	// changed is closed at the next one.
	changed chan struct{}
	// parked holds the denials that stand until then.
	parked map[parkingSpace]*Error
}

type parkingSpace struct {
	workspaceID string
	capability  contract.Capability
}

// look returns the revision in force in a workspace, 0 for none known, and the
// turn it belongs to; or the denial under which the call is parked.
func (s *standing) look(space parkingSpace) (revision, turn uint64, parked *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.context.GetWorkspaces() {
		if w.GetWorkspaceId() == space.workspaceID {
			revision = w.GetCapabilityRevision()
		}
	}
	return revision, s.turn, s.parked[space]
}

// of returns what is known of a workspace, nil for nothing. It is not to be changed.
func (s *standing) of(workspaceID string) *pluginv1.WorkspaceCapabilityContext {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.context.GetWorkspaces() {
		if w.GetWorkspaceId() == workspaceID {
			return w
		}
	}
	return nil
}

// park keeps a denial of a call that began in the given turn. If the context
// has changed since, the denial may be older than the change and parks
// nothing: parked on the new context, the grant that came with it would never
// wake the caller.
func (s *standing) park(space parkingSpace, turn uint64, denial *Error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if turn != s.turn {
		return false
	}
	s.parked[space] = denial
	return true
}

// accept makes a fetched context the known one. Any difference wakes, not only
// context_revision: a plugin installed anew counts from the start.
func (s *standing) accept(fetched *pluginv1.GetCapabilityContextResponse) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.context != nil && proto.Equal(s.context, fetched) {
		return false
	}
	s.context = fetched
	s.turn++
	clear(s.parked)
	close(s.changed)
	s.changed = make(chan struct{})
	return true
}

func (s *standing) waitFor(space parkingSpace) (changed <-chan struct{}, parked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, parked = s.parked[space]
	return s.changed, parked
}

// Context fetches what the plugin may do in every workspace that approved it.
// An empty list of workspaces is a valid answer. The context grants nothing.
func (h *Host) Context(ctx context.Context) (*pluginv1.GetCapabilityContextResponse, error) {
	fetched, err := h.fetch(ctx, h.attempts)
	if err != nil {
		return nil, err
	}
	return proto.CloneOf(fetched), nil
}

// Wait returns nil once calls of the capability in the workspace are not parked
// (any more): at once when none was denied, else when the polled capability
// context changes. The next call may be denied and parked again: the change
// need not have been about this capability. Wait fails with ctx's error when ctx
// ends first, and with ErrClosed after Close.
func (h *Host) Wait(ctx context.Context, workspaceID string, capability contract.Capability) error {
	space := parkingSpace{workspaceID, capability}
	for {
		changed, parked := h.standing.waitFor(space)
		if !parked {
			return nil
		}
		select {
		case <-changed:
		case <-h.closed:
			return fmt.Errorf("wait for %s in workspace %q: %w", capability, workspaceID, ErrClosed)
		case <-ctx.Done():
			return fmt.Errorf("wait for %s in workspace %q: %w", capability, workspaceID, context.Cause(ctx))
		}
	}
}

// fetch reads the context and makes it the known one. The message is the known
// one itself: not to be changed.
func (h *Host) fetch(ctx context.Context, attempts int) (*pluginv1.GetCapabilityContextResponse, error) {
	select {
	case h.standing.fetching <- struct{}{}:
		defer func() { <-h.standing.fetching }()
	case <-h.closed:
		return nil, fmt.Errorf("wait to fetch the capability context: %w", ErrClosed)
	case <-ctx.Done():
		return nil, fmt.Errorf("wait to fetch the capability context: %w", context.Cause(ctx))
	}
	var fetched *pluginv1.GetCapabilityContextResponse
	c := call{method: "GetCapabilityContext"}
	_, err := h.repeat(ctx, c, newRequest("", 0), attempts,
		func(ctx context.Context, r request, opts ...grpc.CallOption) (*pluginv1.HostCommandResult, error) {
			var err error
			fetched, err = h.client.GetCapabilityContext(ctx, &pluginv1.GetCapabilityContextRequest{RequestId: r.id}, opts...)
			return nil, err
		})
	if err != nil {
		return nil, err
	}
	if err := checkVersion(fetched.GetContractVersion()); err != nil {
		return nil, err
	}
	if h.standing.accept(fetched) {
		h.log.Debug("The capability context changed.", "contextRevision", fetched.GetContextRevision())
	}
	return fetched, nil
}

// checkVersion refuses a Host that is older than the contract of this SDK, also
// one that doesn't name a version. Newer ones only add.
func checkVersion(version string) error {
	oldest, _ := strconv.Atoi(contract.ContractVersion)
	if got, err := strconv.Atoi(version); err == nil && got >= oldest {
		return nil
	}
	return &Error{
		Method: "GetCapabilityContext",
		State:  contract.StateUnsupported, Reason: contract.ReasonHostVersionUnsupported, Field: "contract_version",
		Message: fmt.Sprintf("the Host implements contract version %q, this SDK needs %s", version, contract.ContractVersion),
	}
}

// poll fetches the context until ctx ends. The interval is its backoff.
func (h *Host) poll(ctx context.Context) {
	ticker := time.NewTicker(h.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if _, err := h.fetch(ctx, 1); err != nil && ctx.Err() == nil {
			h.log.Warn("The capability context could not be polled; parked calls stay parked.", "error", err)
		}
	}
}
