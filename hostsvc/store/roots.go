package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/kandev/plugin-host/hostsvc/journal"
)

// maxRootHeads is how many heads one root names, so that the transaction that
// appends it keeps a fence waiting no longer than a batch of commands does.
const maxRootHeads = 256

// rootedRoot is the kind under which the table rooted keeps the newest root.
const rootedRoot = "roots"

// errRootOvertaken: another process has appended a root since the heads were
// read.
var errRootOvertaken = errors.New("another root was appended")

// rootedChains are the kinds of chain with the statements that compare them
// with what the roots name. All look records up by their key.
var rootedChains = []rootedChain{
	rootedBy(journal.HeadOfEntries, "heads", "journal", "workspace_id", "version"),
	rootedBy(journal.HeadOfReceipts, "chains", "segments", "chain", "idx"),
}

type rootedChain struct {
	kind journal.HeadKind
	// moved lists, by name, the heads that no root names and those that went on
	// from what the roots name. A chain that did not is never rooted again: the
	// roots keep what it was.
	moved string
	// broken lists what the roots name and the chains don't hold.
	broken string
	// held is the hash at a position of a chain that reaches it.
	held string
}

func rootedBy(kind journal.HeadKind, ends, records, name, position string) rootedChain {
	return rootedChain{
		kind: kind,
		moved: `SELECT e.` + name + `, e.` + position + `, e.hash FROM ` + ends + ` e
			LEFT JOIN rooted r ON r.kind = '` + string(kind) + `' AND r.chain = e.` + name + `
			WHERE e.` + name + ` > $1 AND (r.chain IS NULL OR (e.` + position + ` > r.position AND r.hash =
				(SELECT c.hash FROM ` + records + ` c WHERE c.` + name + ` = r.chain AND c.` + position + ` = r.position)))
			ORDER BY e.` + name + ` LIMIT $2`,
		broken: `SELECT r.chain, r.position, COALESCE(e.` + position + `, 0), COALESCE(c.hash, '') FROM rooted r
			LEFT JOIN ` + ends + ` e ON e.` + name + ` = r.chain
			LEFT JOIN ` + records + ` c ON c.` + name + ` = r.chain AND c.` + position + ` = r.position
			WHERE r.kind = '` + string(kind) + `' AND (e.` + name + ` IS NULL OR e.` + position + ` < r.position
				OR (e.` + position + ` = r.position AND e.hash <> r.hash) OR c.hash IS NULL OR c.hash <> r.hash)
			ORDER BY r.chain`,
		held: `SELECT c.hash FROM ` + ends + ` e JOIN ` + records + ` c ON c.` + name + ` = e.` + name + `
			WHERE e.` + name + ` = $1 AND e.` + position + ` >= $2 AND c.` + position + ` = $2`,
	}
}

// AppendRoot appends a root that names the head of every chain that moved since
// the root before; several where very many did, none where none did. It returns
// the newest that it appended, zero for none.
//
// The error wraps a *journal.ChainError for each chain that no longer holds
// what the roots name. Such a chain is left out, whatever it holds now, and all
// others are rooted.
//
// Heads are read on snapshots, so that no writer waits; a root is appended, in
// one transaction under its own lock, only behind the root that its snapshot
// had as the newest.
func (s *Store) AppendRoot(ctx context.Context) (newest journal.Root, err error) {
	broken, err := s.brokenChains(ctx)
	if err != nil {
		return newest, err
	}
	for from := (rootCursor{}); from.kind < len(rootedChains); {
		end, heads, next, err := s.movedHeads(ctx, from)
		if err != nil {
			return newest, errors.Join(err, broken)
		}
		if len(heads) == 0 {
			break // only the last page of a walk has none
		}
		root, err := s.appendRoot(ctx, end, heads, (*tx).name)
		switch {
		case errors.Is(err, errRootOvertaken): // read the page again
		case err != nil:
			return newest, errors.Join(fmt.Errorf("append root %d: %w", end.Position+1, err), broken)
		default:
			newest, from = root, next
		}
	}
	return newest, broken
}

// brokenChains joins a *journal.ChainError for each chain that does not hold
// what the roots name; nil for none.
func (s *Store) brokenChains(ctx context.Context) (broken, err error) {
	var all []error
	err = s.read(ctx, "compare the chains with the roots", func(c Conn) error {
		for _, chain := range rootedChains {
			err := c.Query(chain.broken, func(r Row) error {
				found := &journal.ChainError{Chain: r.Text(0), At: uint64(r.Int(1)), Detail: "changed"}
				if r.Int(2) < r.Int(1) || r.Text(3) == "" {
					found.Detail = "missing"
				}
				all = append(all, found)
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(all...), err
}

// rootCursor is where a walk through all chains stands: behind a chain of a
// kind.
type rootCursor struct {
	kind  int
	after string
}

// movedHeads reads, on one snapshot, the newest root and the next heads that
// moved since it.
func (s *Store) movedHeads(ctx context.Context, from rootCursor) (end journal.Head, heads []journal.Head, next rootCursor, err error) {
	err = s.read(ctx, "list the heads that moved", func(c Conn) error {
		if err := c.Query(selectRootEnd, scanRootEnd(&end), rootedRoot); err != nil {
			return err
		}
		for next = from; next.kind < len(rootedChains); next = (rootCursor{kind: next.kind + 1}) {
			kind := rootedChains[next.kind].kind
			err := c.Query(rootedChains[next.kind].moved, func(r Row) error {
				next.after = r.Text(0)
				heads = append(heads, journal.Head{Kind: kind, Chain: r.Text(0), Position: uint64(r.Int(1)), Hash: r.Text(2)})
				return nil
			}, next.after, int64(maxRootHeads-len(heads)))
			if err != nil || len(heads) == maxRootHeads {
				return err
			}
		}
		return nil
	})
	return end, heads, next, err
}

const selectRootEnd = `SELECT position, hash FROM rooted WHERE kind = $1 AND chain = ''`

func scanRootEnd(end *journal.Head) func(Row) error {
	return func(r Row) error {
		end.Position, end.Hash = uint64(r.Int(0)), r.Text(1)
		return nil
	}
}

// appendRoot appends the root behind end that names heads, each of which name
// records.
func (s *Store) appendRoot(ctx context.Context, end journal.Head, heads []journal.Head, name func(*tx, journal.Head, uint64) error) (journal.Root, error) {
	root, err := journal.NewRoot(end.Position+1, s.now(), heads)
	if err != nil {
		return journal.Root{}, err
	}
	root = root.Link(end.Hash)
	err = s.run(ctx, lockName{name: rootsLock}, false, func(t *tx) error {
		var current journal.Head
		if err := t.query("read the newest root", selectRootEnd, scanRootEnd(&current), rootedRoot); err != nil {
			return err
		}
		if current != end {
			return errRootOvertaken
		}
		_, err := t.exec("append a root", `INSERT INTO roots (number, at, previous_hash, hash, body) VALUES ($1, $2, $3, $4, $5)`,
			int64(root.Number), root.At.UnixNano(), root.Previous, root.Hash, root.Body)
		if err != nil {
			return err
		}
		for _, head := range heads {
			if err := name(t, head, root.Number); err != nil {
				return err
			}
		}
		return t.name(journal.Head{Kind: rootedRoot, Position: root.Number, Hash: root.Hash}, root.Number)
	})
	return root, err
}

// name records that a root names a head.
func (t *tx) name(head journal.Head, root uint64) error {
	_, err := t.exec("record what the roots name", `INSERT INTO rooted (kind, chain, position, hash, root) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (kind, chain) DO UPDATE SET position = excluded.position, hash = excluded.hash, root = excluded.root`,
		string(head.Kind), head.Chain, int64(head.Position), head.Hash, int64(root))
	return err
}

// RootEnd implements journal.Rooted.
func (s *Store) RootEnd(ctx context.Context) (number uint64, hash string, err error) {
	var end journal.Head
	err = s.read(ctx, "read the newest root", func(c Conn) error {
		return c.Query(selectRootEnd, scanRootEnd(&end), rootedRoot)
	})
	return end.Position, end.Hash, err
}

// Roots implements journal.Rooted.
func (s *Store) Roots(ctx context.Context, after uint64, limit int) ([]journal.Root, error) {
	var roots []journal.Root
	err := s.read(ctx, "list roots", func(c Conn) error {
		return c.Query(`SELECT number, at, previous_hash, hash, body FROM roots WHERE number > $1 ORDER BY number LIMIT $2`,
			func(r Row) error {
				roots = append(roots, journal.Root{
					Number: uint64(r.Int(0)), At: nanoTime(r, 1), Previous: r.Text(2), Hash: r.Text(3), Body: r.Bytes(4),
				})
				return nil
			}, int64(after), int64(limit))
	})
	return roots, err
}

// Hashes implements journal.Rooted.
func (s *Store) Hashes(ctx context.Context, heads []journal.Head) ([]string, error) {
	hashes := make([]string, len(heads))
	err := s.read(ctx, "look up what the roots name", func(c Conn) error {
		for i, head := range heads {
			for _, chain := range rootedChains {
				if chain.kind != head.Kind {
					continue
				}
				err := c.Query(chain.held, func(r Row) error { hashes[i] = r.Text(0); return nil }, head.Chain, int64(head.Position))
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	return hashes, err
}
