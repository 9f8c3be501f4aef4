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

const (
	// pageBytes bounds what a page has of long texts, so that neither this Host nor
	// the plugin holds a list of any length at once, and what one plugin wrote keeps
	// no other one from its lists: a client takes 4 MiB unless it says otherwise. A
	// page that reaches it ends early, with a cursor; it has one item at least.
	pageBytes = 1 << 20
	// fetchStep is how many items are read from the store at a time: what a page of
	// the default size needs at once.
	fetchStep = contract.DefaultPageSize + 1
)

// paged reads one page of a list. Of an item, size is the length of the texts that
// have no small bound.
func paged[T any](w window, size func(*T) int, list func(offset, limit int) ([]T, error)) ([]T, PageInfo, error) {
	var items []T
	for {
		// One beyond the page tells whether there is a next one.
		step := min(w.limit+1-len(items), fetchStep)
		found, err := list(w.offset+len(items), step)
		if err != nil {
			return nil, PageInfo{}, err
		}
		items = append(items, found...)
		shown, info := cut(items, w, size)
		if info.HasMore || len(found) < step {
			return shown, info, nil
		}
	}
}

// cut makes a page of the items at a window and behind it.
func cut[T any](items []T, w window, size func(*T) int) ([]T, PageInfo) {
	bytes := 0
	for i := range items {
		bytes += size(&items[i])
		if i == w.limit || i > 0 && bytes > pageBytes {
			return items[:i], PageInfo{HasMore: true, NextCursor: strconv.Itoa(w.offset + i)}
		}
	}
	return items, PageInfo{}
}
