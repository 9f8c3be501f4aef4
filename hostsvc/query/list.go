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

const (
	// pageBytes bounds the items of one page as they are sent: a client takes
	// 4 MB of one answer unless it says otherwise, and a page in the making is
	// held in memory several times. A page that reaches it ends early, with a
	// cursor; it has one item at least.
	pageBytes = 1 << 20
	// fetchStep is how many items are read from the store at a time.
	fetchStep = 64
	// itemBytes is what an item takes beside its long texts, at most.
	itemBytes = 1 << 10
)

// kind is what a list needs to know of its items.
type kind[T any] struct {
	// key is the one that the list is ordered by.
	key func(T) string
	// size is the length of the texts of an item that have no small bound.
	size func(T) int
	// complete adds to the items of a page what others make of them, as of a
	// version; nil for nothing.
	complete func(s Snapshot, workspaceID string, asOf domain.Version, items []T) error
}

// source lists at most limit items above after, as of a version.
type source[T any] func(s Snapshot, asOf domain.Version, after string, limit int) ([]T, error)

// list reads one page. The first page takes the newest version as the list's
// snapshot; the cursor seals it, so that all pages show one world (I10).
func list[T any](ctx context.Context, r *Reader, installationID string, m admission.Method, env admission.Envelope, page Page, filter any, check *admission.Refusal, of kind[T], from source[T]) (List[T], Receipt, *admission.Refusal) {
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
		items, more, err := of.collect(s, from, next.Snapshot, next.After, limit)
		if err != nil {
			return List[T]{}, 0, fmt.Errorf("list: %w", err)
		}
		if of.complete != nil {
			if err := of.complete(s, env.WorkspaceID, next.Snapshot, items); err != nil {
				return List[T]{}, 0, fmt.Errorf("complete the page: %w", err)
			}
		}
		out := List[T]{Items: items, SnapshotVersion: domain.ResourceVersion(s.StoreEpoch(), next.Snapshot)}
		if more {
			next.After = of.key(items[len(items)-1])
			if out.NextCursor, err = r.Cursors.Seal(binding(installationID, m, env, digest), next); err != nil {
				return List[T]{}, 0, err
			}
		}
		return out, next.Snapshot, nil
	})
}

// collect returns the items of one page, and whether there are more.
func (k kind[T]) collect(s Snapshot, from source[T], asOf domain.Version, after string, limit int) (items []T, more bool, err error) {
	bytes := 0
	for {
		// One beyond the page tells whether there is a next one.
		step := min(limit+1-len(items), fetchStep)
		fetched, err := from(s, asOf, after, step)
		if err != nil {
			return nil, false, err
		}
		for _, item := range fetched {
			bytes += itemBytes + k.size(item)
			if len(items) == limit || len(items) > 0 && bytes > pageBytes {
				return items, true, nil
			}
			items = append(items, item)
			after = k.key(item)
		}
		if len(fetched) < step {
			return items, false, nil
		}
	}
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
