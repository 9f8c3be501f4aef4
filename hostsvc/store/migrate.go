package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

var errNoStoreRow = errors.New("the row of the store is missing")

// migrate applies the engine's scripts that the database has not seen, in one
// transaction, and makes the row of the store.
func migrate(ctx context.Context, engine Engine) error {
	names, err := fs.Glob(engine.Migrations(), "*.sql")
	if err != nil {
		return fmt.Errorf("list the migrations: %w", err)
	}
	db, err := engine.Begin(ctx, "schema")
	if err != nil {
		return failed("begin to migrate the schema", err)
	}
	err = apply(db, engine.Migrations(), names)
	if err == nil && engine.Sole() {
		// The clock that the lease counts by was the process's before.
		_, err = db.Exec(`UPDATE store SET lease_from = 0, lease_until = 0`)
		err = failed("end the lease of the process before", err)
	}
	if err != nil {
		db.Rollback()
		return err
	}
	return failed("commit the schema", db.Commit())
}

func apply(db Transaction, scripts fs.FS, names []string) error {
	if err := db.Script(`CREATE TABLE IF NOT EXISTS schema_version (version bigint NOT NULL)`); err != nil {
		return failed("create the table of schema versions", err)
	}
	var have int64
	err := db.Query(`SELECT COALESCE(max(version), 0) FROM schema_version`, func(r Row) error {
		have = r.Int(0)
		return nil
	})
	if err != nil {
		return failed("read the schema version", err)
	}
	if have > int64(len(names)) {
		return fmt.Errorf("schema version %d, this build knows %d: %w", have, len(names), ErrSchemaNewer)
	}
	for i, name := range names {
		version := int64(i + 1)
		number, _, _ := strings.Cut(name, "_")
		if n, err := strconv.ParseInt(number, 10, 64); err != nil || n != version {
			return fmt.Errorf("migration %s: its number is not %d", name, version)
		}
		if version <= have {
			continue
		}
		text, err := fs.ReadFile(scripts, name)
		if err != nil {
			return fmt.Errorf("read migration %s: %w", name, err)
		}
		if err := db.Script(string(text)); err != nil {
			return failed("apply migration "+name, err)
		}
		if _, err := db.Exec(`INSERT INTO schema_version (version) VALUES ($1)`, version); err != nil {
			return failed("record migration "+name, err)
		}
	}
	_, err = db.Exec(`INSERT INTO store (id, store_id, store_epoch, leader_epoch) VALUES (1, $1, 1, 0)
		ON CONFLICT (id) DO NOTHING`, uuid.NewString())
	return failed("make the row of the store", err)
}
