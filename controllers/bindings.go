package controllers

import (
	"context"
	"fmt"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
)

// bindings looks bindings up. One that is known never changes; one that isn't
// may have been made by another process.
type bindings struct {
	store Store
	view  *view.View
}

func (b *bindings) lookUp(ctx context.Context, workspaceID string) (authority.Workspace, bool, error) {
	if bound, ok := b.view.Binding(workspaceID); ok {
		return bound, true, nil
	}
	if err := b.load(ctx); err != nil {
		return authority.Workspace{}, false, err
	}
	bound, ok := b.view.Binding(workspaceID)
	return bound, ok, nil
}

func (b *bindings) load(ctx context.Context) error {
	all, err := b.store.Bindings(ctx)
	if err != nil {
		return fmt.Errorf("list the bindings: %w", err)
	}
	for _, bound := range all {
		b.view.SetBinding(bound)
	}
	return nil
}

func (b *bindings) bind(ctx context.Context, workspaceID, namespace, uid string) (authority.Workspace, error) {
	bound, err := b.store.Bind(ctx, workspaceID, namespace, uid)
	if err != nil {
		return authority.Workspace{}, fmt.Errorf("bind workspace %s to namespace %s: %w", workspaceID, namespace, err)
	}
	b.view.SetBinding(bound)
	return bound, nil
}
