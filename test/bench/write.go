package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/kandev/plugin-host/hostsvc/store"
	hostpostgres "github.com/kandev/plugin-host/hostsvc/store/postgres"
	hostsqlite "github.com/kandev/plugin-host/hostsvc/store/sqlite"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
	"github.com/kandev/plugin-host/test/postgres"
)

// recordBytes is what a bare write inserts: about the size of an audit record.
const recordBytes = 300

// database is what a write is measured on.
type database interface {
	// engine is a store's.
	engine(ctx context.Context) (store.Engine, error)
	// bare is one insert and one update with a commit of their own.
	bare(ctx context.Context) (writer, error)
}

type writer interface {
	write(ctx context.Context, taskID, title string) error
	close() error
}

// bareHost answers UpdateTaskExact by a bare write.
type bareHost struct {
	pluginv1.UnimplementedHostServer

	writer writer
	answer *pluginv1.UpdateTaskExactResponse
}

// UpdateTaskExact implements pluginv1.HostServer.
func (b bareHost) UpdateTaskExact(ctx context.Context, message *pluginv1.UpdateTaskExactRequest) (*pluginv1.UpdateTaskExactResponse, error) {
	if err := b.writer.write(ctx, message.GetTaskId(), message.GetTitle()); err != nil {
		return nil, err
	}
	return b.answer, nil
}

func measureSQLiteWrites(ctx context.Context, m *measurement) error {
	for _, variant := range []struct {
		inFlight int
		bar      float64
	}{{1, 0.6}, {16, 1.0}} {
		b, err := newBench()
		if err != nil {
			return err
		}
		name := "exact_write_vs_bare_tx_" + strconv.Itoa(variant.inFlight)
		ratio, err := m.compareWrites(ctx, b, name+" on sqlite", variant.inFlight, sqliteDatabase{b.dir})
		if err := b.close(err); err != nil {
			return err
		}
		m.report(figure{name: name, value: ratio, unit: "ratio", atLeast: bar(variant.bar)})
	}
	return nil
}

// measurePostgresWrites has no bar.
func measurePostgresWrites(ctx context.Context, m *measurement) error {
	server, err := postgres.Start(ctx)
	if errors.Is(err, postgres.ErrNoServer) {
		fmt.Println("PostgreSQL is not measured:", err)
		return nil
	}
	if err != nil {
		return err
	}
	for _, inFlight := range []int{1, 16} {
		b, err := newBench()
		if err != nil {
			return errors.Join(err, server.Stop())
		}
		name := "exact_write_vs_bare_tx_" + strconv.Itoa(inFlight) + "_postgres"
		ratio, err := m.compareWrites(ctx, b, name, inFlight, postgresDatabase{server})
		if err := b.close(err); err != nil {
			return errors.Join(err, server.Stop())
		}
		m.report(figure{name: name, value: ratio, unit: "ratio"})
	}
	return server.Stop()
}

// compareWrites compares UpdateTaskExact with a bare write behind the same RPC.
// Each worker has a task of its own; all are in one workspace.
func (m *measurement) compareWrites(ctx context.Context, b *bench, what string, inFlight int, db database) (float64, error) {
	engine, err := db.engine(ctx)
	if err != nil {
		return 0, err
	}
	h, err := b.start(ctx, engine, true)
	if err != nil {
		return 0, err
	}
	bare, err := db.bare(ctx)
	if err != nil {
		return 0, err
	}
	b.later(bare.close)
	ours := newWriters(h.client, h.version)
	sample, err := ours.update(ctx, 0)
	if err != nil {
		return 0, err
	}
	client, err := b.bare(ctx, bareHost{writer: bare, answer: sample})
	if err != nil {
		return 0, err
	}
	theirs := newWriters(client, h.version)
	call := func(w *writers) func(context.Context, int) error {
		return func(ctx context.Context, worker int) error {
			_, err := w.update(ctx, worker)
			return err
		}
	}
	return m.compare(ctx, what, inFlight, side{"UpdateTaskExact", call(ours)}, side{"bare transaction", call(theirs)})
}

// writers update one task each, again and again.
type writers struct {
	client   pluginv1.HostClient
	versions [tasks]string
	count    [tasks]int
}

func newWriters(client pluginv1.HostClient, version string) *writers {
	w := &writers{client: client}
	for i := range w.versions {
		w.versions[i] = version
	}
	return w
}

func (w *writers) update(ctx context.Context, worker int) (*pluginv1.UpdateTaskExactResponse, error) {
	w.count[worker]++
	unique := strconv.Itoa(worker) + "-" + strconv.Itoa(w.count[worker])
	title := "Write the release notes " + unique
	response, err := w.client.UpdateTaskExact(ctx, &pluginv1.UpdateTaskExactRequest{
		RequestId: "request-" + unique, WorkspaceId: workspaceID, TaskId: taskID(worker), IdempotencyKey: "key-" + unique,
		ExpectedResourceVersion: w.versions[worker], Title: &title, CapabilityRevision: 1, ManifestDigest: manifestDigest,
		Guard: &pluginv1.PendingTransitionGuard{Expectation: &pluginv1.PendingTransitionGuard_ExpectNone{
			ExpectNone: &pluginv1.PendingTransitionGuard_NoTransition{},
		}},
	})
	if err != nil {
		return nil, err
	}
	if response.GetResult().GetStatus() != pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_APPLIED {
		return nil, fmt.Errorf("the update was not applied: %v", response.GetResult())
	}
	w.versions[worker] = response.GetResult().GetResultResourceVersion()
	return response, nil
}

type sqliteDatabase struct{ dir string }

func (d sqliteDatabase) engine(context.Context) (store.Engine, error) {
	return hostsqlite.Open(filepath.Join(d.dir, "host.db"))
}

// bareSQLite is one connection with the durability of the store's, and its
// statements prepared.
type bareSQLite struct {
	mu   sync.Mutex
	conn *sqlite.Conn
}

func (d sqliteDatabase) bare(context.Context) (writer, error) {
	conn, err := sqlite.OpenConn(filepath.Join(d.dir, "bare.db"), sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err != nil {
		return nil, fmt.Errorf("open the bare database: %w", err)
	}
	var script strings.Builder
	script.WriteString(`PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -32768; PRAGMA wal_autocheckpoint = 4000;
		CREATE TABLE records (id INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;
		CREATE TABLE tasks (id TEXT PRIMARY KEY, title TEXT NOT NULL, version INTEGER NOT NULL) STRICT, WITHOUT ROWID;`)
	for i := range tasks {
		fmt.Fprintf(&script, "INSERT INTO tasks VALUES ('%s', 'title', 1);", taskID(i))
	}
	for statement := range strings.SplitSeq(script.String(), ";") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if err := sqlitex.ExecuteTransient(conn, statement, nil); err != nil {
			return nil, errors.Join(fmt.Errorf("prepare the bare database: %w", err), conn.Close())
		}
	}
	return &bareSQLite{conn: conn}, nil
}

func (b *bareSQLite) write(_ context.Context, taskID, title string) error {
	body := make([]byte, recordBytes)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, statement := range []struct {
		text string
		args []any
	}{
		{"BEGIN IMMEDIATE", nil},
		{"INSERT INTO records (body) VALUES (?)", []any{body}},
		{"UPDATE tasks SET title = ?, version = version + 1 WHERE id = ?", []any{title, taskID}},
		{"COMMIT", nil},
	} {
		prepared, err := b.conn.Prepare(statement.text)
		if err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
		for i, arg := range statement.args {
			switch arg := arg.(type) {
			case string:
				prepared.BindText(i+1, arg)
			case []byte:
				prepared.BindBytes(i+1, arg)
			}
		}
		if _, err := prepared.Step(); err != nil {
			return fmt.Errorf("run %s: %w", statement.text, err)
		}
		if err := prepared.Reset(); err != nil {
			return fmt.Errorf("end %s: %w", statement.text, err)
		}
	}
	return nil
}

func (b *bareSQLite) close() error { return b.conn.Close() }

type postgresDatabase struct{ server *postgres.Server }

func (d postgresDatabase) engine(ctx context.Context) (store.Engine, error) {
	dsn, err := d.server.NewDatabase(ctx)
	if err != nil {
		return nil, err
	}
	return hostpostgres.Open(ctx, dsn)
}

type barePostgres struct{ pool *pgxpool.Pool }

func (d postgresDatabase) bare(ctx context.Context) (writer, error) {
	dsn, err := d.server.NewDatabase(ctx)
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("read the connection string: %w", err)
	}
	config.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	_, err = pool.Exec(ctx, `CREATE TABLE records (id bigserial PRIMARY KEY, body bytea NOT NULL);
		CREATE TABLE tasks (id text PRIMARY KEY, title text NOT NULL, version bigint NOT NULL)`)
	for i := 0; i < tasks && err == nil; i++ {
		_, err = pool.Exec(ctx, `INSERT INTO tasks VALUES ($1, 'title', 1)`, taskID(i))
	}
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("prepare the bare database: %w", err)
	}
	return barePostgres{pool}, nil
}

func (b barePostgres) write(ctx context.Context, taskID, title string) error {
	tx, err := b.pool.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	_, err = tx.Exec(ctx, `INSERT INTO records (body) VALUES ($1)`, make([]byte, recordBytes))
	if err == nil {
		_, err = tx.Exec(ctx, `UPDATE tasks SET title = $1, version = version + 1 WHERE id = $2`, title, taskID)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write: %w", err), tx.Rollback(ctx))
	}
	return tx.Commit(ctx)
}

func (b barePostgres) close() error {
	b.pool.Close()
	return nil
}
