package domain

import "time"

// RelationKind is what an edge between two tasks means.
type RelationKind string

// The relation kinds.
const (
	// RelationParent: the target is part of the source.
	RelationParent RelationKind = "parent"
	// RelationDependency: the target waits until the source is resolved.
	RelationDependency RelationKind = "dependency"
)

// TaskRelation is an edge between two tasks of one workspace. Kind, source and
// target name it.
type TaskRelation struct {
	WorkspaceID  string
	Kind         RelationKind
	SourceTaskID string
	TargetTaskID string
	CreatedAt    time.Time
	Version      Version
}
