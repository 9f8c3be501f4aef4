package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kandev/plugin-host/hostsvc/journal"
)

const (
	// cutLines is how many cuts one segment records.
	cutLines = 256
	// cutPage is how many segments are in memory at a time: each may have
	// megabytes.
	cutPage = 16
	// cutStep is how many records one transaction removes, so that a fence never
	// waits long.
	cutStep = 512
	// cutsLock orders the cuts of all replicas.
	cutsLock = "cuts"
)

// errCutOvertaken: another process has cut since the cuts were read, or a chain
// has gone on since it was.
var errCutOvertaken = errors.New("the chain was cut or continued meanwhile")

// PruneReceipts removes the segments of receipts, and the roots, that were
// written before olderThan, and returns how many receipts. Every cut is durable
// in journal.CutsChain before anything is gone, which proves what is left; what
// a crash leaves behind, or another replica does at the same time, goes the next
// time. It is for once an hour or a day: each call records a cut for each chain
// that it shortens.
//
// Only what is whole, and named by a root, is removed. The error wraps a
// *journal.ChainError for each chain that is not whole: it is left as it is, for
// whoever has to find out, and all others are cut.
func (s *Store) PruneReceipts(ctx context.Context, olderThan time.Time) (receipts uint64, err error) {
	c := &cutter{store: s, olderThan: olderThan}
	err = c.begin(ctx)
	if err == nil {
		err = c.cutReceipts(ctx)
	}
	if err == nil {
		err = c.cutRoots(ctx)
	}
	if errors.Is(err, errCutOvertaken) {
		err = nil
	}
	if err == nil {
		err = s.removeCut(ctx)
	}
	return c.receipts, errors.Join(append(c.broken, err)...)
}

// cutter is one call of PruneReceipts.
type cutter struct {
	store     *Store
	olderThan time.Time
	// cuts are the newest of each chain, and end is the end of their own.
	cuts map[string]journal.Cut
	end  journal.Head
	// receipts is how many were cut, broken what was found.
	receipts uint64
	broken   []error
}

const selectChain = `SELECT idx, hash FROM chains WHERE chain = $1`

func scanChain(end *journal.Head) func(Row) error {
	return func(r Row) error {
		end.Position, end.Hash = uint64(r.Int(0)), r.Text(1)
		return nil
	}
}

// begin reads the cuts. The end comes first: a cut of another process between
// the two reads is found when this one records its own.
func (c *cutter) begin(ctx context.Context) error {
	err := c.store.read(ctx, "read the end of the cuts", func(conn Conn) error {
		return conn.Query(selectChain, scanChain(&c.end), journal.CutsChain)
	})
	if err != nil {
		return err
	}
	if c.cuts, err = journal.Cuts(ctx, c.store); err != nil {
		return fmt.Errorf("prune the receipts: %w", err)
	}
	return nil
}

// planned is a cut that is due. whole: nothing is left of its chain.
type planned struct {
	journal.Cut
	whole bool
}

// plan is the cut that removes nothing yet.
func (c *cutter) plan(chain string) planned {
	last := c.cuts[chain]
	return planned{Cut: journal.Cut{Chain: chain, Position: last.Position, Hash: last.Hash, At: c.store.now().UTC()}}
}

func (c *cutter) due(p planned) bool { return p.Position > c.cuts[p.Chain].Position }

// receiptChain is a chain of receipts and what the roots name of it.
type receiptChain struct {
	name        string
	end, rooted journal.Head
}

// cutReceipts records the cuts of the chains of receipts.
func (c *cutter) cutReceipts(ctx context.Context) error {
	var chains []receiptChain
	err := c.store.read(ctx, "list the chains of receipts", func(conn Conn) error {
		return conn.Query(`SELECT e.chain, e.idx, e.hash, r.position, r.hash FROM chains e
			JOIN rooted r ON r.kind = $1 AND r.chain = e.chain WHERE e.chain <> $2 ORDER BY e.chain`, func(r Row) error {
			chains = append(chains, receiptChain{
				name: r.Text(0), end: journal.Head{Position: uint64(r.Int(1)), Hash: r.Text(2)},
				rooted: journal.Head{Position: uint64(r.Int(3)), Hash: r.Text(4)},
			})
			return nil
		}, string(journal.HeadOfReceipts), journal.CutsChain)
	})
	if err != nil {
		return err
	}
	var due []planned
	for _, chain := range chains {
		cut, err := c.walk(ctx, chain)
		switch {
		case err != nil:
			if err := c.found(ctx, err); err != nil {
				return fmt.Errorf("prune chain %s: %w", chain.name, err)
			}
		case c.due(cut):
			due = append(due, cut)
		}
		if len(due) == cutLines {
			if err := c.record(ctx, due); err != nil {
				return err
			}
			due = due[:0]
		}
	}
	return c.record(ctx, due)
}

// walk goes from the newest cut of a chain to where it can be cut now. The
// record that the roots name last stays unless everything goes: the next root
// is compared with it.
func (c *cutter) walk(ctx context.Context, chain receiptChain) (planned, error) {
	last := c.plan(chain.name)
	before := last
	for last.Position < chain.rooted.Position {
		segments, err := c.store.Segments(ctx, chain.name, last.Position, cutPage)
		if err != nil {
			return last, err
		}
		if len(segments) == 0 {
			return last, &journal.ChainError{Chain: chain.name, At: last.Position + 1, Detail: "missing"}
		}
		for _, segment := range segments {
			if last.Position == chain.rooted.Position {
				break
			}
			if err := segment.Follows(last.Position, last.Hash); err != nil {
				return last, err
			}
			if !segment.At.Before(c.olderThan) {
				return last, nil
			}
			before = last
			last.Position, last.Hash, last.Removed = segment.Index, segment.Hash, last.Removed+uint64(segment.Count)
		}
	}
	switch {
	case last.Position > chain.rooted.Position: // cut already
		return last, nil
	case last.Hash != chain.rooted.Hash:
		return last, &journal.ChainError{Chain: chain.name, At: last.Position, Detail: "changed"}
	case last.Position < chain.end.Position:
		return before, nil
	default:
		last.whole = true
		return last, nil
	}
}

// found takes an error of a walk down if it is a *journal.ChainError and none of
// what another process's cut removed.
func (c *cutter) found(ctx context.Context, err error) error {
	var broken *journal.ChainError
	if !errors.As(err, &broken) {
		return err
	}
	var end journal.Head
	failure := c.store.read(ctx, "read the end of the cuts", func(conn Conn) error {
		return conn.Query(selectChain, scanChain(&end), journal.CutsChain)
	})
	switch {
	case failure != nil:
		return failure
	case end != c.end:
		return errCutOvertaken
	}
	c.broken = append(c.broken, err)
	return nil
}

// record makes cuts durable. A chain of which nothing is left is forgotten: its
// cut is what proves it, also where its process goes on with it.
func (c *cutter) record(ctx context.Context, due []planned) error {
	if len(due) == 0 {
		return nil
	}
	cuts := make([]journal.Cut, len(due))
	receipts := uint64(0)
	for i, p := range due {
		cuts[i] = p.Cut
		if p.Chain != journal.RootsChain {
			receipts += p.Removed
		}
	}
	segment, err := journal.NewCuts(c.end.Position+1, c.store.now(), cuts)
	if err != nil {
		return err
	}
	segment = segment.Link(c.end.Hash)
	err = c.store.run(ctx, lockName{name: cutsLock}, false, func(t *tx) error {
		var end journal.Head
		if err := t.query("read the end of the cuts", selectChain, scanChain(&end), journal.CutsChain); err != nil {
			return err
		}
		if end != c.end {
			return errCutOvertaken
		}
		if err := t.insertSegment(segment); err != nil {
			return err
		}
		for _, p := range due {
			if err := t.cut(p); err != nil {
				return fmt.Errorf("cut chain %s: %w", p.Chain, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.receipts += receipts
	c.end = journal.Head{Position: segment.Index, Hash: segment.Hash}
	for _, cut := range cuts {
		c.cuts[cut.Chain] = cut
	}
	return nil
}

func (t *tx) cut(p planned) error {
	_, err := t.exec("record where a chain was cut", `INSERT INTO cuts (chain, position) VALUES ($1, $2)
		ON CONFLICT (chain) DO UPDATE SET position = excluded.position`, p.Chain, int64(p.Position))
	if err != nil || !p.whole {
		return err
	}
	n, err := t.exec("forget a chain", `DELETE FROM chains WHERE chain = $1 AND idx = $2`, p.Chain, int64(p.Position))
	if err != nil {
		return err
	}
	if n == 0 {
		return errCutOvertaken // its process has gone on with it
	}
	_, err = t.exec("forget what the roots name", `DELETE FROM rooted WHERE kind = $1 AND chain = $2`,
		string(journal.HeadOfReceipts), p.Chain)
	return err
}

// cutRoots records the cut of the roots. What only they name is named again
// first, so that the roots that stay name every chain.
func (c *cutter) cutRoots(ctx context.Context) error {
	newest, _, err := c.store.RootEnd(ctx)
	if err != nil {
		return err
	}
	last := c.plan(journal.RootsChain)
	for last.Position+1 < newest {
		roots, err := c.store.Roots(ctx, last.Position, 1)
		if err != nil {
			return err
		}
		if len(roots) == 0 {
			return c.found(ctx, &journal.ChainError{Chain: journal.RootsChain, At: last.Position + 1, Detail: "missing"})
		}
		root := roots[0]
		if err := root.Follows(last.Position, last.Hash); err != nil {
			return c.found(ctx, err)
		}
		if !root.At.Before(c.olderThan) {
			break
		}
		last.Position, last.Hash, last.Removed = root.Number, root.Hash, last.Removed+1
	}
	if !c.due(last) {
		return nil
	}
	if err := c.store.rootAgain(ctx, last.Position); err != nil {
		return fmt.Errorf("name again what roots up to %d name: %w", last.Position, err)
	}
	return c.record(ctx, []planned{last})
}

// rootAgain appends roots that name the heads that no root above number names,
// as they were named: what has changed since stays found.
func (s *Store) rootAgain(ctx context.Context, number uint64) error {
	for {
		var end journal.Head
		var heads []journal.Head
		err := s.read(ctx, "list the heads of old roots", func(c Conn) error {
			if err := c.Query(selectRootEnd, scanRootEnd(&end), rootedRoot); err != nil {
				return err
			}
			return c.Query(`SELECT kind, chain, position, hash FROM rooted WHERE kind <> $1 AND root <= $2
				ORDER BY kind, chain LIMIT $3`, func(r Row) error {
				heads = append(heads, journal.Head{
					Kind: journal.HeadKind(r.Text(0)), Chain: r.Text(1), Position: uint64(r.Int(2)), Hash: r.Text(3),
				})
				return nil
			}, rootedRoot, int64(number), int64(maxRootHeads))
		})
		if err != nil || len(heads) == 0 {
			return err
		}
		if _, err := s.appendRoot(ctx, end, heads, (*tx).nameAgain); err != nil && !errors.Is(err, errRootOvertaken) {
			return err
		}
	}
}

// nameAgain records that a newer root names a head. One that is forgotten or has
// moved meanwhile must not be named as it was.
func (t *tx) nameAgain(head journal.Head, root uint64) error {
	n, err := t.exec("record what the roots name", `UPDATE rooted SET root = $4 WHERE kind = $1 AND chain = $2 AND position = $3`,
		string(head.Kind), head.Chain, int64(head.Position), int64(root))
	if err == nil && n == 0 {
		return errRootOvertaken
	}
	return err
}

// removeCut removes what the cuts cover, in steps.
func (s *Store) removeCut(ctx context.Context) error {
	type left struct {
		chain              string
		position, lowest   int64
		roots, chainIsGone bool
	}
	var all []left
	err := s.read(ctx, "list what was cut", func(c Conn) error {
		err := c.Query(`SELECT k.chain, k.position, COALESCE((SELECT min(s.idx) FROM segments s WHERE s.chain = k.chain), 0),
			CAST(CASE WHEN e.chain IS NULL THEN 1 ELSE 0 END AS bigint)
			FROM cuts k LEFT JOIN chains e ON e.chain = k.chain WHERE k.chain <> $1`, func(r Row) error {
			all = append(all, left{chain: r.Text(0), position: r.Int(1), lowest: r.Int(2), chainIsGone: r.Int(3) != 0})
			return nil
		}, journal.RootsChain)
		if err != nil {
			return err
		}
		return c.Query(`SELECT k.position, COALESCE((SELECT min(r.number) FROM roots r), 0) FROM cuts k WHERE k.chain = $1`,
			func(r Row) error {
				all = append(all, left{chain: journal.RootsChain, position: r.Int(0), lowest: r.Int(1), roots: true})
				return nil
			}, journal.RootsChain)
	})
	if err != nil {
		return err
	}
	for _, l := range all {
		for from := l.lowest; from > 0 && from <= l.position; from += cutStep {
			to := min(l.position, from+cutStep-1)
			err := s.run(ctx, lockName{name: cutsLock}, false, func(t *tx) error {
				if l.roots {
					_, err := t.exec("remove roots", `DELETE FROM roots WHERE number >= $1 AND number <= $2`, from, to)
					return err
				}
				_, err := t.exec("remove segments", `DELETE FROM segments WHERE chain = $1 AND idx >= $2 AND idx <= $3`, l.chain, from, to)
				return err
			})
			if err != nil {
				return fmt.Errorf("remove what was cut of chain %s: %w", l.chain, err)
			}
		}
		if !l.chainIsGone {
			continue
		}
		err := s.run(ctx, lockName{name: cutsLock}, false, func(t *tx) error {
			_, err := t.exec("forget where a chain was cut", `DELETE FROM cuts WHERE chain = $1 AND position = $2
				AND NOT EXISTS (SELECT 1 FROM chains WHERE chain = $1)`, l.chain, l.position)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
