package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"
)

// CutsChain is the chain of receipts that the cuts are written to. No process's
// chain has this name, and it is never cut itself.
const CutsChain = "cuts/"

// Cut records that the beginning of a chain was removed when its retention was
// over. What is left of the chain follows on Position and Hash, so that it is
// proven as before, and a gap that no cut accounts for is found.
type Cut struct {
	// Chain is the name of a chain of receipts, or RootsChain.
	Chain string `json:"chain"`
	// Position and Hash are the index or number, and the hash, of the last
	// record that was removed.
	Position uint64 `json:"position"`
	Hash     string `json:"hash"`
	// Removed is how many receipts or roots this cut removed. They were whole.
	Removed uint64    `json:"removed"`
	At      time.Time `json:"at"`
}

// NewCuts returns the segment of CutsChain that records cuts. It is not linked.
func NewCuts(index uint64, at time.Time, cuts []Cut) (Segment, error) {
	var body bytes.Buffer
	lines := json.NewEncoder(&body)
	for _, cut := range cuts {
		if err := lines.Encode(cut); err != nil {
			return Segment{}, fmt.Errorf("encode the cut of chain %s: %w", cut.Chain, err)
		}
	}
	return Segment{Chain: CutsChain, Index: index, Count: len(cuts), Body: body.Bytes(), At: at}, nil
}

// Cuts walks CutsChain from its first segment and returns the newest cut of each
// chain. The error is a *ChainError when a segment was changed or removed; that
// the last ones were, is found by VerifyReceipts of the chains that they cut.
func Cuts(ctx context.Context, history History) (map[string]Cut, error) {
	cuts := map[string]Cut{}
	last, hash := uint64(0), ""
	for {
		segments, err := history.Segments(ctx, CutsChain, last, verifyPage)
		if err != nil {
			return nil, fmt.Errorf("read the cuts: %w", err)
		}
		if len(segments) == 0 {
			return cuts, nil
		}
		for _, segment := range segments {
			if err := segment.Follows(last, hash); err != nil {
				return nil, err
			}
			for line := range bytes.Lines(segment.Body) {
				var cut Cut
				if err := json.Unmarshal(line, &cut); err != nil || cut.Position <= cuts[cut.Chain].Position {
					return nil, &ChainError{Chain: CutsChain, At: segment.Index, Detail: "changed"}
				}
				cuts[cut.Chain] = cut
			}
			last, hash = segment.Index, segment.Hash
		}
	}
}

// Follows checks that a segment is whole and the one after the record of its
// chain with this index and hash, 0 and "" for the first. The error is a
// *ChainError.
func (s Segment) Follows(index uint64, hash string) error {
	if s.Index != index+1 {
		return &ChainError{Chain: s.Chain, At: index + 1, Detail: "missing"}
	}
	if s.Previous != hash || s.Hash != s.Link(hash).Hash || bytes.Count(s.Body, []byte{'\n'}) != s.Count {
		return &ChainError{Chain: s.Chain, At: s.Index, Detail: "changed"}
	}
	return nil
}

// Follows checks that a root is whole and the one after the root with this
// number and hash, 0 and "" for the first. The error is a *ChainError.
func (r Root) Follows(number uint64, hash string) error {
	if r.Number != number+1 {
		return &ChainError{Chain: RootsChain, At: number + 1, Detail: "missing"}
	}
	if r.Previous != hash || r.Hash != r.Link(hash).Hash {
		return &ChainError{Chain: RootsChain, At: r.Number, Detail: "changed"}
	}
	return nil
}

// besideCuts verifies with the cuts of now, and again where what was found may
// come of a cut that was made meanwhile.
func besideCuts[T any](ctx context.Context, history History, verify func(map[string]Cut) (T, error)) (T, error) {
	cuts, err := Cuts(ctx, history)
	for err == nil {
		result, found := verify(cuts)
		var broken *ChainError
		if !errors.As(found, &broken) {
			return result, found
		}
		before := cuts
		if cuts, err = Cuts(ctx, history); err == nil && maps.EqualFunc(before, cuts, sameCut) {
			return result, found
		}
	}
	var none T
	return none, fmt.Errorf("verify beside the cuts: %w", err)
}

func sameCut(a, b Cut) bool { return a.Position == b.Position && a.Hash == b.Hash }
