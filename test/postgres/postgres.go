// Package postgres runs a throwaway PostgreSQL server for tests, from the server
// binaries that the system has: on PATH, or where Debian puts them. It is a real
// server with its durable defaults; only the network is off, it listens on a Unix
// socket in a folder of its own.
//
// It may import hack/rundir and pgx, and nothing of the product.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kandev/plugin-host/hack/rundir"
)

const (
	// debianGlob is where Debian and Ubuntu install the server, outside PATH.
	debianGlob = "/usr/lib/postgresql/*/bin"
	// account is the unprivileged user that Debian's package makes: the server
	// refuses to run as root.
	account   = "postgres"
	startTime = 30 * time.Second
	stopTime  = 30 * time.Second
	pollEvery = 20 * time.Millisecond
)

// ErrNoServer is returned by Start when the system has no PostgreSQL server
// binaries. Its text says how to get them.
var ErrNoServer = errors.New("no PostgreSQL server binaries (initdb, postgres) on PATH or in " + debianGlob +
	": run `make test`, which installs them on Debian, or hack/postgres.sh, or install PostgreSQL 15 or later")

// Server is a running PostgreSQL server. It is safe for concurrent use.
type Server struct {
	dir       *rundir.Dir
	socket    string
	cmd       *exec.Cmd
	exited    chan struct{} // closed once exitErr is set
	exitErr   error
	databases atomic.Int64
	stop      func() error
}

// Start makes a new cluster and starts a server on it; that takes about two
// seconds. ctx bounds the start only. A server that an earlier process left running
// because it was killed is ended first. Started by root, the server runs as the user
// postgres.
func Start(ctx context.Context) (*Server, error) {
	bin, err := find(debianGlob)
	if err != nil {
		return nil, err
	}
	run, err := unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := rundir.Create("pg")
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	s := &Server{dir: dir, socket: filepath.Join(dir.Path(), "s"), exited: make(chan struct{})}
	s.stop = sync.OnceValue(s.tearDown)
	if err := s.start(ctx, bin, run); err != nil {
		err = fmt.Errorf("start PostgreSQL: %w%s", err, s.lastWords())
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// DSN returns the connection string of the server's maintenance database, as its
// superuser. Tests use NewDatabase.
func (s *Server) DSN() string { return s.dsn("postgres") }

// NewDatabase creates an empty database that no other caller gets, and returns its
// connection string. It lives until Stop.
func (s *Server) NewDatabase(ctx context.Context) (dsn string, err error) {
	name := "test_" + strconv.FormatInt(s.databases.Add(1), 10)
	conn, err := pgx.Connect(ctx, s.DSN())
	if err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+name)
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	return s.dsn(name), nil
}

// Stop ends the server, breaking connections that are still open, and removes its
// data. Calling it again returns the first result.
func (s *Server) Stop() error { return s.stop() }

func (s *Server) dsn(database string) string {
	return fmt.Sprintf("host=%s user=%s dbname=%s sslmode=disable", s.socket, account, database)
}

// find returns the folder of the server binaries: the one on PATH, else of several
// versions in Debian's place the newest.
func find(place string) (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil && hasServer(filepath.Dir(path)) {
			return filepath.Dir(path), nil
		}
	}
	dirs, _ := filepath.Glob(place) // the pattern is well-formed
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return !hasServer(dir) })
	if len(dirs) == 0 {
		return "", ErrNoServer
	}
	return slices.MaxFunc(dirs, func(a, b string) int { return cmp.Compare(major(a), major(b)) }), nil
}

func hasServer(dir string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm()&0o111 == 0 {
			return false
		}
	}
	return true
}

// major reads the version out of /usr/lib/postgresql/<version>/bin.
func major(dir string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir))) // 0 for another name: the last choice
	return n
}

// unprivileged returns the credential that the server runs under, nil for the
// caller's own.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // no change of user is an answer
	}
	u, err := user.Lookup(account)
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: it refuses to run as root and there is no user %q to run it: %w", account, err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: read the uid of %q: %w", account, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: read the gid of %q: %w", account, err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

func (s *Server) start(ctx context.Context, bin string, run *syscall.Credential) error {
	data := filepath.Join(s.dir.Path(), "data")
	for _, path := range []string{data, s.socket} {
		if err := os.Mkdir(path, 0o700); err != nil {
			return fmt.Errorf("create its folders: %w", err)
		}
		if run != nil {
			if err := os.Chown(path, int(run.Uid), int(run.Gid)); err != nil {
				return fmt.Errorf("give its folders to %s: %w", account, err)
			}
		}
	}
	log, err := os.Create(filepath.Join(s.dir.Path(), "server.log"))
	if err != nil {
		return fmt.Errorf("create its log: %w", err)
	}
	defer func() { _ = log.Close() }() // the server has its own handle

	// The socket's folder lets nobody else in, so trust is enough.
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "--pgdata", data, "--username", account,
		"--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-instructions")
	s.prepare(initdb, log, run)
	if err := initdb.Run(); err != nil {
		return fmt.Errorf("initdb: %w", err)
	}
	s.cmd = exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", s.socket,
		"-c", "listen_addresses=", "-c", "max_connections=200")
	s.prepare(s.cmd, log, run)
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return fmt.Errorf("run the server: %w", err)
	}
	go func() {
		s.exitErr = s.cmd.Wait()
		close(s.exited)
	}()
	return s.awaitReady(ctx)
}

func (s *Server) prepare(cmd *exec.Cmd, log *os.File, run *syscall.Credential) {
	cmd.Dir = s.dir.Path() // the caller's folder may be closed to the server's user
	cmd.Env = append(os.Environ(), "LC_ALL=C", "PGOPTIONS=")
	cmd.Stdout, cmd.Stderr = log, log
	if run != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: run}
	}
}

// awaitReady returns once the server answers a query.
func (s *Server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		conn, err := pgx.Connect(ctx, s.DSN())
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.exited:
			return fmt.Errorf("the server ended: %w", s.exitErr)
		case <-ctx.Done():
			return fmt.Errorf("the server does not answer: %w", err)
		case <-ticker.C:
		}
	}
}

// lastWords returns the end of the server's log, for an error message.
func (s *Server) lastWords() string {
	const lines = 15
	data, err := os.ReadFile(filepath.Join(s.dir.Path(), "server.log"))
	if err != nil || len(data) == 0 {
		return ""
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return "\n--- end of the server's log:\n" + strings.Join(all[max(0, len(all)-lines):], "\n")
}

func (s *Server) tearDown() error {
	var err error
	if s.cmd != nil {
		err = s.end()
	}
	return errors.Join(err, s.dir.Remove())
}

// end asks for PostgreSQL's fast shutdown and waits for it.
func (s *Server) end() error {
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop PostgreSQL: %w", err)
	}
	timeout := time.NewTimer(stopTime)
	defer timeout.Stop()
	select {
	case <-s.exited:
	case <-timeout.C:
		return errors.Join(fmt.Errorf("stop PostgreSQL: it still runs after %s", stopTime), s.cmd.Process.Kill())
	}
	if s.exitErr != nil {
		return fmt.Errorf("stop PostgreSQL: %w", s.exitErr)
	}
	return nil
}
