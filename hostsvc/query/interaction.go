package query

import (
	"context"
	"fmt"

	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/domain"
)

// InteractionSnapshot is what interaction queries need of a snapshot.
type InteractionSnapshot interface {
	// PendingInteractions lists at most limit interactions of a workspace that a
	// human owes an answer to, with a key above after, in the order of
	// InteractionKey, as they were at version asOf.
	PendingInteractions(workspaceID string, filter InteractionFilter, asOf domain.Version, after string, limit int) ([]domain.Interaction, error)
	// Interaction reads one, whatever its status.
	Interaction(workspaceID, id string) (interaction domain.Interaction, found bool, err error)
}

// InteractionFilter narrows a list of interactions. Every given part must match;
// an empty part matches everything.
type InteractionFilter struct {
	SessionIDs []string
	TaskIDs    []string
	Kinds      []string
}

// Check returns the first fault of the filter.
func (f InteractionFilter) Check() *admission.Refusal {
	if refusal := checkValues(
		filterValues{"filter.session_ids", f.SessionIDs}, filterValues{"filter.task_ids", f.TaskIDs},
		filterValues{"filter.kinds", f.Kinds},
	); refusal != nil {
		return refusal
	}
	for i, name := range f.Kinds {
		if !domain.InteractionKind(name).Known() {
			return malformedPage(fmt.Sprintf("filter.kinds[%d]", i), "is no kind of an interaction")
		}
	}
	return nil
}

// PendingInteractions lists what a human owes a workspace's sessions an answer to,
// snapshot-bound, oldest first (ListPendingInteractionsExact).
func (r *Reader) PendingInteractions(ctx context.Context, installationID string, m admission.Method, env admission.Envelope, filter InteractionFilter, page Page) (List[domain.Interaction], Receipt, *admission.Refusal) {
	return list(ctx, r, installationID, m, env, page, filter, filter.Check(), interactions,
		func(s Snapshot, asOf domain.Version, after string, limit int) ([]domain.Interaction, error) {
			if err := requireWithin(s, env.WorkspaceID, after, filter.SessionIDs, filter.TaskIDs); err != nil {
				return nil, err
			}
			return s.PendingInteractions(env.WorkspaceID, filter, asOf, after, limit)
		})
}

// Interaction reads one interaction of a workspace, terminal ones included
// (GetInteractionExact).
func (r *Reader) Interaction(ctx context.Context, installationID string, m admission.Method, env admission.Envelope, id string) (domain.Interaction, Receipt, *admission.Refusal) {
	digest, check := targetDigest("interaction_id", id)
	return read(ctx, r, installationID, m, env, check, digest, func(s Snapshot, _ *authority.Row) (domain.Interaction, domain.Version, error) {
		interaction, found, err := s.Interaction(env.WorkspaceID, id)
		if err != nil {
			return domain.Interaction{}, 0, fmt.Errorf("read the interaction: %w", err)
		}
		if !found {
			return domain.Interaction{}, 0, notHere("interaction_id")
		}
		return interaction, interaction.Version, nil
	})
}

var interactions = kind[domain.Interaction]{
	key: InteractionKey,
	size: func(i domain.Interaction) int {
		const perOption = 64
		n := len(i.ID) + len(i.TaskID) + len(i.SessionID) + len(i.TurnID) + len(i.Status) + len(i.Title) + len(i.Context) +
			len(i.ToolCallID) + len(i.ActionType)
		options := func(list []domain.InteractionOption) {
			for _, o := range list {
				n += len(o.ID) + len(o.Label) + len(o.Kind) + len(o.Description) + perOption
			}
		}
		options(i.Options)
		for _, q := range i.Questions {
			n += len(q.ID) + len(q.Title) + len(q.Prompt) + perOption
			options(q.Options)
		}
		return n
	},
}

// InteractionKey orders interactions from the oldest to the newest and then by ID,
// as a text that sorts the same.
func InteractionKey(i domain.Interaction) string { return InstantKey(i.CreatedAt) + "/" + i.ID }
