package legacy

import (
	"context"
	"fmt"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
)

// InteractionSnapshot is what v1 reads of interactions, in all workspaces.
type InteractionSnapshot interface {
	// AllPending lists at most limit interactions that a human owes an answer to behind
	// the first offset ones, oldest first and then by ID.
	AllPending(filter InteractionFilter, offset, limit int) ([]domain.Interaction, error)
	// AnyInteraction finds the interaction of an ID, whatever its status.
	AnyInteraction(id string) (interaction domain.Interaction, found bool, err error)
}

// InteractionFilter narrows a list of interactions: values of one field are
// alternatives, and every field that has any must match.
type InteractionFilter struct {
	SessionIDs []string
	TaskIDs    []string
	Kinds      []string
}

// ListPendingInteractions lists what humans owe the instance's agents.
func (h *Host) ListPendingInteractions(ctx context.Context, _ Caller, filter InteractionFilter, page Page) (pending []domain.Interaction, info PageInfo, err error) {
	for _, kind := range filter.Kinds {
		if !domain.InteractionKind(kind).Known() {
			return nil, PageInfo{}, fail(InvalidArgument, "unknown interaction kind %q", kind)
		}
	}
	if n := len(filter.SessionIDs) + len(filter.TaskIDs) + len(filter.Kinds); n > contract.MaxFilterValues {
		return nil, PageInfo{}, fail(InvalidArgument, "interaction filter has %d session/task/kind values, max %d", n, contract.MaxFilterValues)
	}
	w := page.window()
	err = h.Store.Read(ctx, func(s Snapshot) error {
		pending, info, err = paged(w, sizeOfInteraction, func(offset, limit int) ([]domain.Interaction, error) {
			return s.AllPending(filter, offset, limit)
		})
		return err
	})
	if err != nil {
		return nil, PageInfo{}, fmt.Errorf("list pending interactions: %w", err)
	}
	return pending, info, nil
}

// sizeOfInteraction counts what an agent wrote.
func sizeOfInteraction(i *domain.Interaction) int {
	n := contract.MaxIdentifierBytes + len(i.Title) + len(i.Context) + sizeOfOptions(i.Options)
	for _, q := range i.Questions {
		n += len(q.ID) + len(q.Title) + len(q.Prompt) + sizeOfOptions(q.Options)
	}
	return n
}

func sizeOfOptions(options []domain.InteractionOption) (n int) {
	for _, o := range options {
		n += len(o.ID) + len(o.Label) + len(o.Kind) + len(o.Description)
	}
	return n
}

// GetInteraction reads one interaction, terminal ones included, so that whoever missed
// how it ended finds out.
func (h *Host) GetInteraction(ctx context.Context, _ Caller, id string) (interaction domain.Interaction, err error) {
	if id == "" {
		return domain.Interaction{}, fail(InvalidArgument, "id is required")
	}
	found := false
	err = h.Store.Read(ctx, func(s Snapshot) error {
		interaction, found, err = s.AnyInteraction(id)
		return err
	})
	if err != nil {
		return domain.Interaction{}, fmt.Errorf("read an interaction: %w", err)
	}
	if !found {
		return domain.Interaction{}, fail(NotFound, "interaction %q not found", id)
	}
	return interaction, nil
}
