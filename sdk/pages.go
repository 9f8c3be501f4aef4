package sdk

import (
	"context"
	"iter"

	"google.golang.org/grpc"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// ListOptions change how a list is read, not what it holds.
type ListOptions struct {
	// PageSize is the most items of one page. 0: contract.DefaultPageSize; the
	// Host caps it at contract.MaxPageSize.
	PageSize int
}

// Page is one page of a list.
type Page[T any] struct {
	Items []T
	// Receipt says under which authority and of which snapshot it was read.
	Receipt *pluginv1.HostReadReceipt
}

// Pages yields the pages of a list, each fetched when it is asked for. All pages
// show the workspace at one snapshot, whatever is written meanwhile. Ranging
// over it again starts a new list at a new snapshot.
//
// An error ends the list. A *StaleListError means that what was yielded so far
// is of a snapshot that can't be continued.
type Pages[T any] iter.Seq2[Page[T], error]

// Items yields the items of all pages.
func (p Pages[T]) Items() iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for page, err := range p {
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
		}
	}
}

// StaleListError says that a list can't be continued: its snapshot is older than
// the Host keeps, or authority has changed since it began. The items so far and
// those of a new list may not be mixed: forget them and range again. The SDK
// doesn't restart by itself, it can't take items back.
type StaleListError struct {
	// Answer is the Host's, CONFLICT/STALE_RESOURCE_VERSION.
	Answer *Error
}

func (e *StaleListError) Error() string {
	return "the list can't be continued, start it again: " + e.Answer.Error()
}

// Unwrap returns the Host's answer.
func (e *StaleListError) Unwrap() error { return e.Answer }

// fetchPage sends one list request.
type fetchPage[T any] func(
	ctx context.Context, requestID string, page *pluginv1.ExactReadPage, opts ...grpc.CallOption,
) ([]T, *pluginv1.ExactReadPageInfo, error)

func pages[T any](ctx context.Context, h *Host, c call, options ListOptions, fetch fetchPage[T]) Pages[T] {
	return func(yield func(Page[T], error) bool) {
		want := &pluginv1.ExactReadPage{Limit: int32(min(max(options.PageSize, 0), contract.MaxPageSize))}
		for {
			items, info, err := readPage(ctx, h, c, want, fetch)
			if err != nil {
				yield(Page[T]{}, err)
				return
			}
			if !yield(Page[T]{Items: items, Receipt: info.GetReceipt()}, nil) || !info.GetHasMore() {
				return
			}
			want.Cursor, want.SnapshotVersion = info.GetNextCursor(), info.GetSnapshotVersion()
		}
	}
}

func readPage[T any](
	ctx context.Context, h *Host, c call, want *pluginv1.ExactReadPage, fetch fetchPage[T],
) (items []T, info *pluginv1.ExactReadPageInfo, err error) {
	answer, err := h.exact(ctx, c,
		func(ctx context.Context, r request, opts ...grpc.CallOption) (*pluginv1.HostCommandResult, error) {
			var err error
			items, info, err = fetch(ctx, r.id, want, opts...)
			return nil, err
		})
	if answer, ok := err.(*Error); ok && want.GetCursor() != "" && //nolint:errorlint // exact returns it unwrapped
		answer.Reason == contract.ReasonStaleResourceVersion {
		return nil, nil, &StaleListError{Answer: answer}
	}
	if err != nil {
		return nil, nil, err
	}
	broken := ""
	switch {
	case info.GetReceipt() == nil:
		broken = "a page without a read receipt"
	case want.GetCursor() != "" && info.GetSnapshotVersion() != want.GetSnapshotVersion():
		broken = "a page of another snapshot than the one before"
	case info.GetHasMore() && (info.GetNextCursor() == "" || info.GetNextCursor() == want.GetCursor()):
		broken = "a page that leads no further"
	}
	if broken != "" {
		return nil, nil, c.denied(unknownResult("the Host answered with %s", broken), answer.request)
	}
	return items, info, nil
}
