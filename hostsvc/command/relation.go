package command

import "github.com/kandev/plugin-host/hostsvc/domain"

// RelationTx is what relation commands need of a transaction.
type RelationTx interface {
	// Relations lists the edges that have one of the tasks at either end, each once.
	Relations(taskIDs []string) ([]domain.TaskRelation, error)
	// Dependents and Predecessors are board.Tx's.
	Dependents(taskID string) ([]domain.Task, error)
	Predecessors(taskIDs []string) (map[string][]domain.Task, error)
	// InsertRelation adds a dependency edge at the transaction's version. Edges of
	// parents are written with their child.
	InsertRelation(relation domain.TaskRelation) error
	// DeleteRelation ends a dependency edge.
	DeleteRelation(relation domain.TaskRelation) error
}
