package store

import (
	"context"

	"github.com/kandev/plugin-host/hostsvc/domain"
)

// profilesLock orders the writers of profiles, which are in no workspace.
const profilesLock = "profiles"

var (
	saveAgentProfile = upsert("agent_profiles", []string{
		"id", "agent_id", "display_name", "name", "model", "mode", "created_at", "updated_at",
	}, 1, "", "")
	saveExecutorProfile = upsert("executor_profiles", []string{"id", "display_name", "executor_type", "created_at", "updated_at"}, 1, "", "")
)

const (
	agentProfileColumns    = `id, agent_id, display_name, name, model, mode, created_at, updated_at`
	executorProfileColumns = `id, display_name, executor_type, created_at, updated_at`
)

func scanAgentProfile(r Row) domain.AgentProfile {
	return domain.AgentProfile{
		ID: r.Text(0), AgentID: r.Text(1), DisplayName: r.Text(2), Name: r.Text(3), Model: r.Text(4), Mode: r.Text(5),
		CreatedAt: nanoTime(r, 6), UpdatedAt: nanoTime(r, 7),
	}
}

func scanExecutorProfile(r Row) domain.ExecutorProfile {
	return domain.ExecutorProfile{
		ID: r.Text(0), DisplayName: r.Text(1), ExecutorType: r.Text(2), CreatedAt: nanoTime(r, 3), UpdatedAt: nanoTime(r, 4),
	}
}

// SaveProfiles writes profiles of the instance, new ones and those that there are
// by their IDs, in one transaction.
func (s *Store) SaveProfiles(ctx context.Context, agents []domain.AgentProfile, executors []domain.ExecutorProfile) error {
	return s.run(ctx, lockName{name: profilesLock}, false, func(t *tx) error {
		for _, p := range agents {
			if err := t.saveAgentProfile(p); err != nil {
				return err
			}
		}
		for _, p := range executors {
			if err := t.saveExecutorProfile(p); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t *tx) saveAgentProfile(p domain.AgentProfile) error {
	return t.later(nil, "save an agent profile", saveAgentProfile,
		p.ID, p.AgentID, p.DisplayName, p.Name, p.Model, p.Mode, nanos(p.CreatedAt), nanos(p.UpdatedAt))
}

func (t *tx) saveExecutorProfile(p domain.ExecutorProfile) error {
	return t.later(nil, "save an executor profile", saveExecutorProfile,
		p.ID, p.DisplayName, p.ExecutorType, nanos(p.CreatedAt), nanos(p.UpdatedAt))
}

// AgentProfiles implements legacy.ProfileSnapshot.
func (s *snapshot) AgentProfiles(offset, limit int) (profiles []domain.AgentProfile, err error) {
	err = s.query("list agent profiles", `SELECT `+agentProfileColumns+` FROM agent_profiles
		ORDER BY COALESCE(created_at, 0), id LIMIT $1 OFFSET $2`,
		func(r Row) error { profiles = append(profiles, scanAgentProfile(r)); return nil }, int64(limit), int64(offset))
	return profiles, err
}

// ExecutorProfiles implements legacy.ProfileSnapshot.
func (s *snapshot) ExecutorProfiles(offset, limit int) (profiles []domain.ExecutorProfile, err error) {
	err = s.query("list executor profiles", `SELECT `+executorProfileColumns+` FROM executor_profiles
		ORDER BY COALESCE(created_at, 0), id LIMIT $1 OFFSET $2`,
		func(r Row) error { profiles = append(profiles, scanExecutorProfile(r)); return nil }, int64(limit), int64(offset))
	return profiles, err
}

// HasAgentProfile implements legacy.ProfileSnapshot.
func (s *snapshot) HasAgentProfile(id string) (has bool, err error) {
	err = s.query("look for an agent profile", `SELECT 1 FROM agent_profiles WHERE id = $1`, func(Row) error { has = true; return nil }, clean(id))
	return has, err
}

// HasExecutorProfile implements legacy.ProfileSnapshot.
func (s *snapshot) HasExecutorProfile(id string) (has bool, err error) {
	err = s.query("look for an executor profile", `SELECT 1 FROM executor_profiles WHERE id = $1`, func(Row) error { has = true; return nil }, clean(id))
	return has, err
}
