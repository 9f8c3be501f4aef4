package supervise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/kandev/plugin-host/launcher/pause"
)

const (
	// PingInterval is the time between two pings.
	PingInterval = 30 * time.Second
	// MaxPingFailures in a row end a process.
	MaxPingFailures = 3
)

// Backoff is how long is waited before each start after the first. After the
// last, nothing is started any more. A process that answered a ping begins them
// anew.
func Backoff() []time.Duration {
	return []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second}
}

// ErrGivenUp says that the plugin doesn't stay up.
var ErrGivenUp = errors.New("the plugin doesn't stay up")

// Process is one process of the plugin.
type Process interface {
	// Conn is the connection to its Plugin service.
	Conn() grpc.ClientConnInterface
	// Ping returns nil if it answers, in a bounded time.
	Ping(ctx context.Context) error
	// Done is closed when it has ended; Err then says how.
	Done() <-chan struct{}
	Err() error
	// Close ends it.
	Close()
}

// Supervisor runs one plugin. Fields are set before Run.
type Supervisor struct {
	// Start starts a process and returns when it answers.
	Start func(ctx context.Context) (Process, error)
	Log   *slog.Logger
	// PingInterval and Backoff replace the package's.
	PingInterval time.Duration
	Backoff      []time.Duration

	mu      sync.Mutex
	current grpc.ClientConnInterface
	changed chan struct{} // closed when current changes; nil: nobody waits
}

// Run keeps the plugin running until ctx ends; then it ends the plugin and
// returns nil. It returns an ErrGivenUp when starting it again doesn't help.
func (s *Supervisor) Run(ctx context.Context) error {
	for restarts := 0; ; restarts++ {
		answered, cause := s.once(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was asked to end
		}
		if answered {
			restarts = 0
		}
		if restarts == len(s.Backoff) {
			return fmt.Errorf("%w after %d restarts: %w", ErrGivenUp, restarts, cause)
		}
		s.Log.Warn("The plugin is started again", "cause", cause, "restart", restarts+1, "after", s.Backoff[restarts].String())
		if !pause.For(ctx, s.Backoff[restarts]) {
			return nil
		}
	}
}

// once runs one process. It says whether that one ever answered a ping, and why
// it isn't there any more.
func (s *Supervisor) once(ctx context.Context) (answered bool, cause error) {
	process, err := s.Start(ctx)
	if err != nil {
		return false, err
	}
	s.set(process.Conn())
	s.Log.Info("The plugin runs")
	defer func() {
		s.set(nil)
		process.Close()
	}()
	return s.watch(ctx, process)
}

func (s *Supervisor) watch(ctx context.Context, process Process) (answered bool, cause error) {
	ticks := time.NewTicker(s.PingInterval)
	defer ticks.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return answered, ctx.Err()
		case <-process.Done():
			return answered, ended(process)
		case <-ticks.C:
		}
		err := process.Ping(ctx)
		if err == nil {
			answered, failures = true, 0
			continue
		}
		failures++
		s.Log.Warn("The plugin doesn't answer a ping", "failures", failures, "error", err)
		if failures == MaxPingFailures {
			return answered, fmt.Errorf("%d pings failed, the last with: %w", failures, err)
		}
	}
}

func ended(process Process) error {
	if err := process.Err(); err != nil {
		return fmt.Errorf("the plugin has ended: %w", err)
	}
	return errors.New("the plugin has ended by itself")
}

func (s *Supervisor) set(conn grpc.ClientConnInterface) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = conn
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// Current returns the connection to the running process; false: none runs.
func (s *Supervisor) Current() (grpc.ClientConnInterface, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current, s.current != nil
}

// Wait returns the connection to the running process, once one runs.
func (s *Supervisor) Wait(ctx context.Context) (grpc.ClientConnInterface, error) {
	for {
		s.mu.Lock()
		current := s.current
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		if current != nil {
			return current, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the plugin: %w", ctx.Err())
		}
	}
}
