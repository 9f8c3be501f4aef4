package store

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/kandev/plugin-host/hostsvc/fence"
)

// distrustStep is how many versions one statement records.
const distrustStep = 64

// distrustSome returns the statement that distrusts n versions. A version that
// is older than what is recorded changes nothing.
func distrustSome(n int) string {
	var b strings.Builder
	b.WriteString(`INSERT INTO distrusted (uid, generation) VALUES `)
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("(")
		writeParameters(&b, 2*i+1, 2)
		b.WriteString(")")
	}
	b.WriteString(` ON CONFLICT (uid) DO UPDATE SET generation = excluded.generation
		WHERE distrusted.generation < excluded.generation`)
	return b.String()
}

var (
	distrustOne  = distrustSome(1)
	distrustMany = distrustSome(distrustStep)
)

// Distrust implements fence.Ledger.
func (s *Store) Distrust(ctx context.Context, uid string, generation int64) error {
	return s.run(ctx, lockName{name: stateLock}, true, func(t *tx) error {
		known := int64(-1)
		err := t.query("look for a distrusted version", `SELECT generation FROM distrusted WHERE uid = $1`,
			func(r Row) error { known = r.Int(0); return nil }, uid)
		if err != nil || known >= generation {
			return err
		}
		return t.distrust([]any{uid, generation})
	})
}

// Proof returns the pins of the last proof that the admission policies are in
// force, "" for none, and the versions that are distrusted, by the uid of their
// object.
func (s *Store) Proof(ctx context.Context) (pins string, distrusted map[string]int64, err error) {
	distrusted = map[string]int64{}
	err = s.read(ctx, "read the last proof", func(c Conn) error {
		err := c.Query(`SELECT proof_pins FROM store`, func(r Row) error { pins = r.Text(0); return nil })
		if err != nil {
			return err
		}
		return c.Query(`SELECT uid, generation FROM distrusted`, func(r Row) error {
			distrusted[r.Text(0)] = r.Int(1)
			return nil
		})
	})
	if err != nil {
		return "", nil, err
	}
	return pins, distrusted, nil
}

// Prove records another proof, and with it the versions that came while nobody
// had one, in one transaction. What is distrusted never goes back.
func (s *Store) Prove(ctx context.Context, term fence.Term, pins string, distrusted map[string]int64) error {
	uids := slices.Sorted(maps.Keys(distrusted))
	return s.run(ctx, lockName{name: stateLock}, true, func(t *tx) error {
		for some := range slices.Chunk(uids, distrustStep) {
			args := make([]any, 0, 2*len(some))
			for _, uid := range some {
				args = append(args, uid, distrusted[uid])
			}
			if err := t.distrust(args); err != nil {
				return err
			}
		}
		// Last, so that a new leader waits for no long list.
		if err := t.checkTerm(term); err != nil {
			return err
		}
		_, err := t.exec("record a proof", `UPDATE store SET proof_pins = $1 WHERE proof_pins <> $1`, pins)
		return err
	})
}

// distrust records pairs of a uid and a generation.
func (t *tx) distrust(args []any) error {
	if len(args) == 2*distrustStep {
		_, err := t.exec("distrust versions", distrustMany, args...)
		return err
	}
	for pair := range slices.Chunk(args, 2) {
		if _, err := t.exec("distrust a version", distrustOne, pair...); err != nil {
			return err
		}
	}
	return nil
}
