package legacy

import (
	"context"

	"github.com/kandev/plugin-host/hostsvc/domain"
)

// ProfileSnapshot is what v1 reads of the instance's profiles, the oldest first.
type ProfileSnapshot interface {
	AgentProfiles(offset, limit int) ([]domain.AgentProfile, error)
	ExecutorProfiles(offset, limit int) ([]domain.ExecutorProfile, error)
	HasAgentProfile(id string) (bool, error)
	HasExecutorProfile(id string) (bool, error)
}

// ListAgentProfiles lists the agent profiles of the instance.
func (h *Host) ListAgentProfiles(ctx context.Context, _ Caller, page Page) ([]domain.AgentProfile, PageInfo, error) {
	return listed(ctx, h, "list agent profiles", page.window(), small[domain.AgentProfile], func(s Snapshot, offset, limit int) ([]domain.AgentProfile, error) {
		return s.AgentProfiles(offset, limit)
	})
}

// ListExecutorProfiles lists the executor profiles of the instance.
func (h *Host) ListExecutorProfiles(ctx context.Context, _ Caller, page Page) ([]domain.ExecutorProfile, PageInfo, error) {
	return listed(ctx, h, "list executor profiles", page.window(), small[domain.ExecutorProfile], func(s Snapshot, offset, limit int) ([]domain.ExecutorProfile, error) {
		return s.ExecutorProfiles(offset, limit)
	})
}
