package domain

import "time"

// AgentProfile is a configured agent. Profiles belong to the instance, not to a
// workspace, and have no resource version.
type AgentProfile struct {
	ID          string
	AgentID     string
	DisplayName string
	Name        string
	Model       string
	Mode        string
	CreatedAt   time.Time
	UpdatedAt   time.Time
}

// ExecutorProfile is a configured place where agents run. It belongs to the
// instance, like an AgentProfile.
type ExecutorProfile struct {
	ID           string
	DisplayName  string
	ExecutorType string
	CreatedAt    time.Time
	UpdatedAt    time.Time
}
