package query

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/domain"
)

// RelationSnapshot is what relation queries need of a snapshot.
type RelationSnapshot interface {
	// Relations lists at most limit edges of a workspace in RelationOrder, behind the
	// one with the key after, "" for none, as they were at version asOf. An edge may
	// have an end that isn't there.
	Relations(workspaceID string, asOf domain.Version, after string, limit int) ([]domain.TaskRelation, error)
	// RelationsOf lists the edges that have one of the tasks at either end, each
	// once and in RelationOrder, as they were at version asOf.
	RelationsOf(workspaceID string, taskIDs []string, asOf domain.Version) ([]domain.TaskRelation, error)
	// TaskVersions returns the versions of those of the tasks that were there at
	// version asOf.
	TaskVersions(workspaceID string, ids []string, asOf domain.Version) (map[string]domain.Version, error)
}

// RelationOrder orders edges by kind, source and target, as a text that sorts the
// same: no ID has a NUL.
func RelationOrder(r domain.TaskRelation) string {
	return string(r.Kind) + "\x00" + r.SourceTaskID + "\x00" + r.TargetTaskID
}

// RelationKey names an edge within its workspace and fits a cursor, however long
// the IDs of its ends are. It is no order.
func RelationKey(r domain.TaskRelation) string {
	if r.Kind == domain.RelationParent {
		return parentKey + r.TargetTaskID // a child has one parent
	}
	sum := sha256.Sum256([]byte(RelationOrder(r)))
	return dependencyKey + hex.EncodeToString(sum[:])
}

const (
	dependencyKey = "d"
	parentKey     = "p"
)

// ChildOfKey returns the child of a parent edge by its key; ok is false for another
// edge's.
func ChildOfKey(key string) (childID string, ok bool) { return strings.CutPrefix(key, parentKey) }

// Relation is an edge with the versions of its ends in the same snapshot.
type Relation struct {
	domain.TaskRelation

	SourceVersion, TargetVersion domain.Version
}

// maxRelated is how many tasks the graph around one may hold.
const maxRelated = 1000

type relationFilter struct{ TaskID string }

// Relations lists the edges of a workspace, or those that touch one task
// (ListTaskRelationsExact).
func (r *Reader) Relations(ctx context.Context, installationID string, m admission.Method, env admission.Envelope, taskID string, page Page) (List[Relation], Receipt, *admission.Refusal) {
	if taskID == "" {
		return list(ctx, r, installationID, m, env, page, relationFilter{}, nil, relations,
			func(s Snapshot, asOf domain.Version, after string, limit int) ([]Relation, error) {
				return relationPage(s, env.WorkspaceID, asOf, after, limit)
			})
	}
	return list(ctx, r, installationID, m, env, page, relationFilter{taskID}, checkTaskID(taskID), relations,
		func(s Snapshot, asOf domain.Version, after string, limit int) ([]Relation, error) {
			return touching(s, env.WorkspaceID, taskID, asOf, after, limit, func() ([]domain.TaskRelation, error) {
				return s.RelationsOf(env.WorkspaceID, []string{taskID}, asOf)
			})
		})
}

// TaskRelations lists the graph around one task: its edges, and those among its
// descendants and among what it waits for, however far (GetTaskRelationsExact). Each
// page makes the graph again, as it was.
func (r *Reader) TaskRelations(ctx context.Context, installationID string, m admission.Method, env admission.Envelope, taskID string, page Page) (List[Relation], Receipt, *admission.Refusal) {
	return list(ctx, r, installationID, m, env, page, relationFilter{taskID}, checkTaskID(taskID), relations,
		func(s Snapshot, asOf domain.Version, after string, limit int) ([]Relation, error) {
			return touching(s, env.WorkspaceID, taskID, asOf, after, limit, func() ([]domain.TaskRelation, error) {
				edges, err := domain.RelationClosure(taskID, maxRelated, func(ids []string) ([]domain.TaskRelation, error) {
					return s.RelationsOf(env.WorkspaceID, ids, asOf)
				})
				if errors.Is(err, domain.ErrRelationSearch) {
					refusal := admission.Refuse(contract.ReasonProviderRateLimited,
						fmt.Sprintf("names a task with more than %d related tasks", maxRelated))
					refusal.Field = "task_id"
					return nil, refusal
				}
				return edges, err
			})
		})
}

// touching makes a page of the edges that find finds for a task that must be there.
func touching(s Snapshot, workspaceID, taskID string, asOf domain.Version, after string, limit int, find func() ([]domain.TaskRelation, error)) ([]Relation, error) {
	if err := requireTask(s, workspaceID, taskID, asOf); err != nil {
		return nil, err
	}
	edges, err := find()
	if err != nil {
		return nil, fmt.Errorf("find the relations of the task: %w", err)
	}
	whole, err := versioned(s, workspaceID, asOf, edges)
	if err != nil {
		return nil, err
	}
	if after != "" {
		last := slices.IndexFunc(whole, func(e Relation) bool { return RelationKey(e.TaskRelation) == after })
		whole = whole[last+1:]
	}
	return whole[:min(limit, len(whole))], nil
}

var relations = kind[Relation]{
	key:  func(r Relation) string { return RelationKey(r.TaskRelation) },
	size: func(r Relation) int { return len(r.WorkspaceID) + len(r.SourceTaskID) + len(r.TargetTaskID) },
}

// relationPage lists edges whose both ends are there.
func relationPage(s Snapshot, workspaceID string, asOf domain.Version, after string, limit int) ([]Relation, error) {
	var page []Relation
	for len(page) < limit {
		edges, err := s.Relations(workspaceID, asOf, after, limit)
		if err != nil {
			return nil, fmt.Errorf("list the relations of the workspace: %w", err)
		}
		whole, err := versioned(s, workspaceID, asOf, edges)
		if err != nil {
			return nil, err
		}
		page = append(page, whole[:min(len(whole), limit-len(page))]...)
		if len(edges) < limit {
			break
		}
		after = RelationKey(edges[len(edges)-1])
	}
	return page, nil
}

// versioned adds the versions of the ends. An edge with an end that isn't there is
// none (domain facts, section 9).
func versioned(s Snapshot, workspaceID string, asOf domain.Version, edges []domain.TaskRelation) ([]Relation, error) {
	if len(edges) == 0 {
		return nil, nil
	}
	ids := make([]string, 0, 2*len(edges))
	for _, e := range edges {
		ids = append(ids, e.SourceTaskID, e.TargetTaskID)
	}
	slices.Sort(ids)
	versions, err := s.TaskVersions(workspaceID, slices.Compact(ids), asOf)
	if err != nil {
		return nil, fmt.Errorf("read the versions of related tasks: %w", err)
	}
	whole := make([]Relation, 0, len(edges))
	for _, e := range edges {
		source, target := versions[e.SourceTaskID], versions[e.TargetTaskID]
		if source != 0 && target != 0 {
			whole = append(whole, Relation{TaskRelation: e, SourceVersion: source, TargetVersion: target})
		}
	}
	return whole, nil
}

func checkTaskID(id string) *admission.Refusal {
	if fault := contract.CheckIdentifier("task_id", id); fault != nil {
		return admission.RefuseField(fault)
	}
	return nil
}

// requireTask refuses a task that wasn't in the workspace.
func requireTask(s Snapshot, workspaceID, id string, asOf domain.Version) error {
	versions, err := s.TaskVersions(workspaceID, []string{id}, asOf)
	if err != nil {
		return fmt.Errorf("look for the task: %w", err)
	}
	if versions[id] == 0 {
		return notHere("task_id")
	}
	return nil
}
