package importer

import (
	"context"
	"errors"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
)

// ErrMoved tells that the import has come further, or was begun with other content, since this
// process read how far it is. Another process imports the same.
var ErrMoved = errors.New("another process goes on with this import")

// Store is the port to the store.
type Store interface {
	// ImportProgress tells how far an import is, the zero Progress for one that was
	// never begun.
	ImportProgress(ctx context.Context, id string) (Progress, error)
	// Import runs fn in one transaction under the lock of a workspace, or of the
	// instance's profiles for "". Together with what fn writes, the progress goes
	// from before to after; where it isn't at before, the error wraps ErrMoved and
	// nothing happens. When fn wrote, the workspace's order gets one entry of kind
	// import, without an event, that names the import and digest. fn may run more
	// than once.
	Import(ctx context.Context, workspaceID string, before, after Progress, digest contract.Digest, fn func(Tx) error) error
	// Look runs fn on one snapshot of a workspace, or of the profiles for "".
	Look(ctx context.Context, workspaceID string, fn func(Lookup) error) error
}

// Progress is how far an import is.
type Progress struct {
	ID string
	// Source is the digest of what is imported.
	Source string
	// Offset is where the next document begins, in bytes, and Line on which line,
	// from 1.
	Offset, Line int64
	// Documents is how many there were before it.
	Documents int64
	Complete  bool
}

// Space is a kind of things with IDs that are unique in a workspace, or in the
// instance for profiles.
type Space string

// The spaces. An ID of SpaceExternal is of ExternalID. One of SpacePending is the
// pending ID of request rows, one of SpaceWaiting the session that a pending
// transition waits for, one of SpaceSlot the task that is queued for another step, one
// of SpacePrimary the task that has a primary session.
const (
	SpaceWorkspace       Space = "workspace"
	SpaceWorkflow        Space = "workflow"
	SpaceStep            Space = "step"
	SpaceTask            Space = "task"
	SpaceExternal        Space = "external"
	SpaceRelation        Space = "relation"
	SpaceTransition      Space = "transition"
	SpaceWaiting         Space = "waiting"
	SpaceSlot            Space = "slot"
	SpaceRepository      Space = "repository"
	SpaceSession         Space = "session"
	SpacePrimary         Space = "primary"
	SpaceTurn            Space = "turn"
	SpaceMessage         Space = "message"
	SpacePending         Space = "pending"
	SpaceStats           Space = "stats"
	SpaceAgentProfile    Space = "agent_profile"
	SpaceExecutorProfile Space = "executor_profile"
)

// Known is what is to be known of a thing that is there.
type Known struct {
	// In is the ID of what it belongs to: the workflow of a step, the step of a task,
	// the task of a session, the session of a turn and of a pending ID, the step that a
	// task is queued for.
	In string `json:"in,omitempty"`
	// As says more: the workflow of a task, the state of a session, the message type of
	// a pending ID, the slot move of a queued task; of a workspace, Described unless it
	// is only bound.
	As string `json:"as,omitempty"`
}

// Described is the As of a workspace that has more than its binding made.
const Described = "described"

// ExternalID is the ID in SpaceExternal of a task.
func ExternalID(source, externalID string) string { return source + "\x00" + externalID }

// Lookup answers what is there.
type Lookup interface {
	// Find returns those of ids that are there.
	Find(space Space, ids []string) (map[string]Known, error)
	// Predecessors returns the dependencies that have one of the tasks as target.
	Predecessors(taskIDs []string) ([]domain.TaskRelation, error)
}

// Tx inserts. It sets the workspace ID and the version of everything itself, and of
// messages what follows from the rows before them. A task that is queued for another
// step gets its slot move, with the task's ID; one that is inserted for it takes its
// place, and has the task's QueuedAt unless it has its own.
type Tx interface {
	Lookup
	// LastPosition is the highest position among a step's tasks, -1 for none.
	LastPosition(stepID string) (int32, error)

	Workspace(workspace domain.Workspace) error
	Workflow(workflow domain.Workflow) error
	WorkflowStep(step domain.WorkflowStep) error
	Task(task domain.Task) error
	Relation(relation domain.TaskRelation) error
	PendingTransition(pending domain.PendingTransition) error
	StepTransition(transition domain.StepTransition) error
	Repository(repository domain.Repository) error
	Session(session domain.Session) error
	Turn(turn domain.Turn) error
	Message(message domain.Message) error
	CodeStats(stats domain.CodeStats) error
	AgentProfile(profile domain.AgentProfile) error
	ExecutorProfile(profile domain.ExecutorProfile) error
}
