package legacy

import (
	"strconv"

	"github.com/kandev/plugin-host/contract"
)

// Page is what a v1 list is asked for (host-v1 facts, section 2.2).
type Page struct {
	Limit  int32
	Cursor string
}

// PageInfo is what a v1 list says of the page after.
type PageInfo struct {
	// NextCursor is "" where there is none.
	NextCursor string
	HasMore    bool
}

// window is the part of a list that a page shows.
type window struct{ offset, limit int }

// window reads a page: no limit is the default one, and a cursor that isn't a
// number of items begins anew, as shipped.
func (p Page) window() window {
	w := window{limit: int(p.Limit)}
	if w.limit <= 0 {
		w.limit = contract.DefaultPageSize
	}
	w.limit = min(w.limit, contract.MaxPageSize)
	if offset, err := strconv.Atoi(p.Cursor); err == nil && offset > 0 {
		w.offset = offset
	}
	return w
}

// strict is window for the lists that refuse a malformed cursor.
func (p Page) strict() (window, *Failure) {
	if p.Cursor != "" {
		if offset, err := strconv.Atoi(p.Cursor); err != nil || offset < 0 {
			return window{}, fail(InvalidArgument, "invalid transition cursor")
		}
	}
	return p.window(), nil
}

// cut makes a page of what was read at a window: one more than its limit, where
// there is more.
func cut[T any](items []T, w window) ([]T, PageInfo) {
	if len(items) <= w.limit {
		return items, PageInfo{}
	}
	return items[:w.limit], PageInfo{HasMore: true, NextCursor: strconv.Itoa(w.offset + w.limit)}
}
