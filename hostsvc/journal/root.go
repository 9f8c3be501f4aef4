package journal

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// HeadKind says what a chain is a chain of.
type HeadKind string

// The kinds of chain.
const (
	HeadOfEntries  HeadKind = "entries"
	HeadOfReceipts HeadKind = "receipts"
)

// RootsChain is what errors call the chain of the roots themselves. No
// workspace and no chain of receipts has this name.
const RootsChain = "roots/"

// Head is the end of a chain at some time: the version and the hash of an
// entry, or the index and the hash of a segment.
type Head struct {
	Kind HeadKind `json:"kind"`
	// Chain is the workspace of entries, or the name of a chain of receipts.
	Chain    string `json:"chain"`
	Position uint64 `json:"position"`
	Hash     string `json:"hash"`
}

// Root names the heads of all chains, as of one moment, that moved since the
// root before it: together the roots up to one name every chain. So a root
// costs what happened since the last one, however many chains there are. Before
// old roots are cut, what only they name is named again.
type Root struct {
	// Number is the root's place in the chain of roots, from 1 without gaps.
	Number uint64
	At     time.Time
	// Body is the heads as JSON lines, in the order of their kind and chain.
	Body     []byte
	Previous string
	Hash     string
}

// NewRoot returns the root that names heads, which it sorts. It is not linked.
func NewRoot(number uint64, at time.Time, heads []Head) (Root, error) {
	slices.SortFunc(heads, func(a, b Head) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Chain, b.Chain))
	})
	var body bytes.Buffer
	lines := json.NewEncoder(&body)
	for _, head := range heads {
		if err := lines.Encode(head); err != nil {
			return Root{}, fmt.Errorf("encode the head of chain %s: %w", head.Chain, err)
		}
	}
	return Root{Number: number, At: at, Body: body.Bytes()}, nil
}

// Link returns the root chained after the root with hash previous. Its hash is
// SHA-256 over previous, number, time and body, each with its length.
func (r Root) Link(previous string) Root {
	r.Previous = previous
	sum := digester{sha256.New()}
	sum.text(previous)
	sum.number(r.Number)
	sum.number(uint64(r.At.UnixNano())) // any bijection will do
	sum.number(uint64(len(r.Body)))
	sum.Write(r.Body)
	r.Hash = sum.hex()
	return r
}

// Heads decodes the body.
func (r Root) Heads() ([]Head, error) {
	var heads []Head
	for line := range bytes.Lines(r.Body) {
		var head Head
		if err := json.Unmarshal(line, &head); err != nil {
			return nil, fmt.Errorf("decode line %d of root %d: %w", len(heads)+1, r.Number, err)
		}
		heads = append(heads, head)
	}
	return heads, nil
}

// Rooted is the part of the store that the verification of roots reads.
type Rooted interface {
	History
	// RootEnd is the number and the hash of the newest root, zero for none.
	RootEnd(ctx context.Context) (number uint64, hash string, err error)
	// Roots lists at most limit roots above after, in order.
	Roots(ctx context.Context, after uint64, limit int) ([]Root, error)
	// Hashes returns for each head the hash that its chain holds at its
	// position now; "" where the chain is gone or ends before it.
	Hashes(ctx context.Context, heads []Head) ([]string, error)
}

// VerifyRoots walks the roots from their newest cut, or the first, to the
// newest, which it returns, and looks up every head that any of them names. The
// error is a *ChainError when a root was changed or removed, or when a chain no
// longer holds what a root names and no cut accounts for it: it was deleted,
// cut, or rewritten together with its head. Changes between two heads of a chain
// are found by VerifyWorkspace and VerifyReceipts, and those after the newest
// root by nobody. Who can rewrite the whole store, roots included, is found by
// comparing a root with its hash kept elsewhere.
func VerifyRoots(ctx context.Context, store Rooted) (Root, error) {
	return besideCuts(ctx, store, func(cuts map[string]Cut) (Root, error) { return verifyRoots(ctx, store, cuts) })
}

func verifyRoots(ctx context.Context, store Rooted, cuts map[string]Cut) (Root, error) {
	end, endHash, err := store.RootEnd(ctx)
	if err != nil {
		return Root{}, fmt.Errorf("verify the roots: %w", err)
	}
	type chain struct {
		kind HeadKind
		name string
	}
	last := Root{Number: cuts[RootsChain].Position, Hash: cuts[RootsChain].Hash}
	named := map[chain]Head{}
	for {
		roots, err := store.Roots(ctx, last.Number, verifyPage)
		if err != nil {
			return last, fmt.Errorf("verify the roots after %d: %w", last.Number, err)
		}
		if len(roots) == 0 {
			break
		}
		for _, root := range roots {
			if err := root.Follows(last.Number, last.Hash); err != nil {
				return last, err
			}
			heads, err := root.Heads()
			if err != nil || (root.Number == end && root.Hash != endHash) {
				return last, &ChainError{Chain: RootsChain, At: root.Number, Detail: "changed"}
			}
			for _, head := range heads {
				c := chain{head.Kind, head.Chain}
				before := named[c]
				if head.Position < before.Position || (head.Position == before.Position && head.Hash != before.Hash) {
					return last, head.broken(false)
				}
				named[c] = head
			}
			if err := verifyHeads(ctx, store, heads, cuts); err != nil {
				return last, err
			}
			last = root
		}
	}
	if last.Number < end {
		return last, &ChainError{Chain: RootsChain, At: last.Number + 1, Detail: "missing"}
	}
	return last, nil
}

// verifyHeads checks that the chains still hold what heads says, as far as they
// have not been cut.
func verifyHeads(ctx context.Context, store Rooted, heads []Head, cuts map[string]Cut) error {
	for page := range slices.Chunk(heads, verifyPage) {
		hashes, err := store.Hashes(ctx, page)
		if err != nil {
			return fmt.Errorf("verify what the roots name: %w", err)
		}
		for i, head := range page {
			if cut := cuts[head.Chain]; head.Kind == HeadOfReceipts && head.Position <= cut.Position {
				if head.Position == cut.Position && head.Hash != cut.Hash {
					return head.broken(false)
				}
				continue
			}
			if hashes[i] != head.Hash {
				return head.broken(hashes[i] == "")
			}
		}
	}
	return nil
}

func (h Head) broken(missing bool) *ChainError {
	detail := "changed"
	if missing {
		detail = "missing"
	}
	return &ChainError{Chain: h.Chain, At: h.Position, Detail: detail}
}
