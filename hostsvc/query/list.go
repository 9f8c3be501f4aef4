package query

import (
	"context"
	"fmt"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/domain"
)

// Page is the part of a list that is asked for.
type Page struct {
	// Limit is in items: 0 is contract.DefaultPageSize, the most is
	// contract.MaxPageSize.
	Limit  int32
	Cursor string
	// SnapshotVersion is required with a cursor and must be the cursor's own.
	SnapshotVersion string
}

// List is one page of a list.
type List[T any] struct {
	Items []T
	// NextCursor is "" on the last page.
	NextCursor      string
	SnapshotVersion string
}

// list reads one page. The first page takes the newest version as the list's
// snapshot; the cursor seals it, so that all pages show one world (I10).
func list[T any](ctx context.Context, r *Reader, installationID string, m admission.Method, env admission.Envelope, page Page, filter any, check *admission.Refusal, fetch func(s Snapshot, asOf domain.Version, after string, limit int) ([]T, error), key func(T) string) (List[T], Receipt, *admission.Refusal) {
	limit, position, digest, refusal := r.openPage(installationID, m, env, page, filter)
	if check == nil {
		check = refusal
	}
	return read(ctx, r, installationID, m, env, check, digest.String(), func(s Snapshot, row *authority.Row) (List[T], domain.Version, error) {
		if position != nil && (position.Revision != row.Revision || position.StoreEpoch != s.StoreEpoch()) {
			return List[T]{}, 0, staleCursor("the approval has changed since the list began; start again")
		}
		newest, oldest, err := s.Head(env.WorkspaceID)
		if err != nil {
			return List[T]{}, 0, fmt.Errorf("read the head of the workspace: %w", err)
		}
		next := Position{StoreEpoch: s.StoreEpoch(), Revision: row.Revision, Snapshot: newest}
		if position != nil {
			next = *position
		}
		if next.Snapshot < oldest || next.Snapshot > newest {
			return List[T]{}, 0, staleCursor("the list's snapshot is no longer kept; start again")
		}
		items, err := fetch(s, next.Snapshot, next.After, limit+1)
		if err != nil {
			return List[T]{}, 0, fmt.Errorf("list: %w", err)
		}
		out := List[T]{Items: items, SnapshotVersion: domain.ResourceVersion(s.StoreEpoch(), next.Snapshot)}
		if len(items) > limit {
			out.Items = items[:limit]
			next.After = key(items[limit-1])
			if out.NextCursor, err = r.Cursors.Seal(binding(installationID, m, env, digest), next); err != nil {
				return List[T]{}, 0, err
			}
		}
		return out, next.Snapshot, nil
	})
}

// openPage checks a page and opens its cursor; position is nil for a first
// page.
func (r *Reader) openPage(installationID string, m admission.Method, env admission.Envelope, page Page, filter any) (limit int, position *Position, digest contract.Digest, refusal *admission.Refusal) {
	digest, err := contract.CanonicalDigest(filter)
	if err != nil {
		return 0, nil, digest, malformedPage("filter", "has no canonical form")
	}
	switch {
	case page.Limit < 0:
		return 0, nil, digest, malformedPage("page.limit", "is negative")
	case page.Limit == 0:
		limit = contract.DefaultPageSize
	default:
		limit = min(int(page.Limit), contract.MaxPageSize)
	}
	if page.Cursor == "" {
		if page.SnapshotVersion != "" {
			return 0, nil, digest, malformedPage("page.snapshot_version", "is given without a cursor")
		}
		return limit, nil, digest, nil
	}
	if len(page.Cursor) > contract.MaxCursorBytes {
		return 0, nil, digest, malformedPage("page.cursor", fmt.Sprintf("is longer than %d bytes", contract.MaxCursorBytes))
	}
	if page.SnapshotVersion == "" {
		return 0, nil, digest, admission.RefuseField(&contract.FieldError{
			Field: "page.snapshot_version", Reason: contract.ReasonMissingExactField, Detail: "is required with a cursor",
		})
	}
	opened, err := r.Cursors.Open(binding(installationID, m, env, digest), page.Cursor)
	if err != nil {
		return 0, nil, digest, malformedPage("page.cursor", "was not issued for this list")
	}
	if page.SnapshotVersion != domain.ResourceVersion(opened.StoreEpoch, opened.Snapshot) {
		return 0, nil, digest, malformedPage("page.snapshot_version", "is not the cursor's")
	}
	return limit, &opened, digest, nil
}

// binding is what a cursor is good for, besides what it seals itself.
func binding(installationID string, m admission.Method, env admission.Envelope, filter contract.Digest) Binding {
	return Binding{InstallationID: installationID, WorkspaceID: env.WorkspaceID, Method: m.Name, Filter: filter}
}

func malformedPage(field, detail string) *admission.Refusal {
	return admission.RefuseField(&contract.FieldError{
		Field: field, Reason: contract.ReasonMalformedPrecondition, Detail: detail,
	})
}

func staleCursor(message string) *admission.Refusal {
	refusal := admission.Refuse(contract.ReasonStaleResourceVersion, message)
	refusal.Field = "page.cursor"
	return refusal
}
