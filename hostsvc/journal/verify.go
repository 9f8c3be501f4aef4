package journal

import (
	"context"
	"fmt"

	"github.com/kandev/plugin-host/hostsvc/domain"
)

// History is the part of the store that verification reads.
type History interface {
	// Entries lists at most limit entries of a workspace above after, in
	// order.
	Entries(ctx context.Context, workspaceID string, after domain.Version, limit int) ([]Entry, error)
	// Head is the end of a workspace's chain; zero for an unknown workspace.
	Head(ctx context.Context, workspaceID string) (version domain.Version, hash string, err error)
	// Chains lists the ends of the chains of receipts, by name.
	Chains(ctx context.Context) ([]Chain, error)
	// Segments lists at most limit segments of a chain above after, in order.
	Segments(ctx context.Context, chain string, after uint64, limit int) ([]Segment, error)
}

// Chain is the end of a chain of receipts.
type Chain struct {
	Name  string
	Index uint64
	Hash  string
}

// ChainError says where a chain is broken.
type ChainError struct {
	// Chain is the workspace of entries, the name of a chain of receipts, or
	// RootsChain.
	Chain string
	// At is the first version, index or number that is not what was written, as
	// far as the check can tell.
	At uint64
	// Detail is "missing" or "changed".
	Detail string
}

func (e *ChainError) Error() string {
	return fmt.Sprintf("chain %s is broken at %d: %s", e.Chain, e.At, e.Detail)
}

// verifyPage is how many records are read at a time.
const verifyPage = 256

// VerifyWorkspace walks the chain of a workspace from its first entry to its
// head and returns the number of entries. The error is a *ChainError when an
// entry was changed, removed or added; whoever rewrites the whole chain and
// its head is not found by this walk but by VerifyRoots.
func VerifyWorkspace(ctx context.Context, history History, workspaceID string) (uint64, error) {
	end, endHash, err := history.Head(ctx, workspaceID)
	if err != nil {
		return 0, fmt.Errorf("verify workspace %s: %w", workspaceID, err)
	}
	broken := func(at domain.Version, detail string) error {
		return &ChainError{Chain: workspaceID, At: uint64(at), Detail: detail}
	}
	var last domain.Version
	hash := ""
	for last < end {
		entries, err := history.Entries(ctx, workspaceID, last, verifyPage)
		if err != nil {
			return uint64(last), fmt.Errorf("verify workspace %s: %w", workspaceID, err)
		}
		if len(entries) == 0 {
			return uint64(last), broken(last+1, "missing")
		}
		for _, entry := range entries {
			if last == end {
				break // committed since the head was read
			}
			if entry.Version != last+1 {
				return uint64(last), broken(last+1, "missing")
			}
			if entry.PreviousHash != hash || entry.Hash != entry.Link(hash).Hash {
				return uint64(last), broken(entry.Version, "changed")
			}
			last, hash = entry.Version, entry.Hash
		}
	}
	if hash != endHash {
		return uint64(last), broken(end, "changed")
	}
	return uint64(last), nil
}

// VerifyReceipts walks a chain of receipts from its newest cut, or its first
// segment, to its end and returns the number of receipts. The error is as of
// VerifyWorkspace; a gap that no cut accounts for is missing.
func VerifyReceipts(ctx context.Context, history History, chain Chain) (int, error) {
	return besideCuts(ctx, history, func(cuts map[string]Cut) (int, error) {
		return verifyReceipts(ctx, history, chain, cuts[chain.Name])
	})
}

func verifyReceipts(ctx context.Context, history History, chain Chain, cut Cut) (int, error) {
	receipts, last, hash := 0, cut.Position, cut.Hash
	if chain.Index < last {
		return 0, &ChainError{Chain: chain.Name, At: last, Detail: "missing"}
	}
	for last < chain.Index {
		segments, err := history.Segments(ctx, chain.Name, last, verifyPage)
		if err != nil {
			return receipts, fmt.Errorf("verify chain %s: %w", chain.Name, err)
		}
		if len(segments) == 0 {
			return receipts, &ChainError{Chain: chain.Name, At: last + 1, Detail: "missing"}
		}
		for _, segment := range segments {
			if last == chain.Index {
				break // appended since the end was read
			}
			if err := segment.Follows(last, hash); err != nil {
				return receipts, err
			}
			last, hash = segment.Index, segment.Hash
			receipts += segment.Count
		}
	}
	if hash != chain.Hash {
		return receipts, &ChainError{Chain: chain.Name, At: chain.Index, Detail: "changed"}
	}
	return receipts, nil
}
