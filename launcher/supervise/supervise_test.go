package supervise_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/kandev/plugin-host/launcher/supervise"
)

// script is what a process does: it lives for a time, answers pings or not.
type script struct {
	lives time.Duration // 0: until it is closed
	mute  bool
	fails bool // it doesn't even start
}

type process struct {
	script
	grpc.ClientConnInterface
	done   chan struct{}
	closed bool
}

func (p *process) Conn() grpc.ClientConnInterface { return p }
func (p *process) Done() <-chan struct{}          { return p.done }
func (p *process) Err() error                     { return errors.New("exit status 7") }
func (p *process) Close()                         { p.closed = true }
func (p *process) Ping(context.Context) error {
	if p.mute {
		return errors.New("no answer")
	}
	return nil
}

// stage plays scripts one after the other, the last for ever, and writes down
// when each started.
type stage struct {
	begin   time.Time
	scripts []script
	starts  []time.Duration
	played  []*process
}

func (s *stage) start(context.Context) (supervise.Process, error) {
	s.starts = append(s.starts, time.Since(s.begin))
	next := s.scripts[min(len(s.starts), len(s.scripts))-1]
	if next.fails {
		return nil, errors.New("it doesn't start")
	}
	p := &process{script: next, done: make(chan struct{})}
	if next.lives > 0 {
		time.AfterFunc(next.lives, func() { close(p.done) })
	}
	s.played = append(s.played, p)
	return p, nil
}

func run(t *testing.T, ctx context.Context, scripts ...script) (*stage, *supervise.Supervisor, error) { //nolint:revive // t is first in tests
	t.Helper()
	s := &stage{begin: time.Now(), scripts: scripts}
	v := &supervise.Supervisor{
		Start: s.start, Log: slog.New(slog.DiscardHandler),
		PingInterval: supervise.PingInterval, Backoff: supervise.Backoff(),
	}
	err := v.Run(ctx)
	return s, v, err
}

func seconds(list ...int) []time.Duration {
	var all []time.Duration
	for _, n := range list {
		all = append(all, time.Duration(n)*time.Second)
	}
	return all
}

func TestAProcessThatDoesntStayUpIsGivenUpAfterFiveRestarts(t *testing.T) {
	for name, script := range map[string]script{"ends at once": {lives: time.Nanosecond}, "doesn't start": {fails: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, v, err := run(t, t.Context(), script)
				if !errors.Is(err, supervise.ErrGivenUp) {
					t.Fatalf("ends with %v", err)
				}
				var got []time.Duration
				for _, at := range s.starts {
					got = append(got, at.Truncate(time.Second))
				}
				if want := seconds(0, 1, 3, 7, 15, 31); !slices.Equal(got, want) {
					t.Errorf("started at %v, want %v", got, want)
				}
				for _, p := range s.played {
					if !p.closed {
						t.Error("a process was left")
					}
				}
				if _, runs := v.Current(); runs {
					t.Error("a process is current that has ended")
				}
			})
		})
	}
}

func TestThreePingsThatFailEndAProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		s, _, err := run(t, ctx, script{mute: true}, script{})
		if err != nil {
			t.Fatal(err)
		}
		if want := seconds(0, 91); !slices.Equal(s.starts, want) {
			t.Errorf("started at %v, want %v", s.starts, want)
		}
		if !s.played[0].closed || !s.played[1].closed {
			t.Error("a process was left")
		}
	})
}

func TestAPingThatIsAnsweredBeginsTheBackoffAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		// It lives for a ping each time: it is started after one second for ever.
		s, _, err := run(t, ctx, script{lives: 44 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if want := seconds(0, 45, 90, 135, 180, 225, 270); !slices.Equal(s.starts, want) {
			t.Errorf("started at %v, want %v", s.starts, want)
		}
	})
}

func TestWaitReturnsTheProcessThatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{begin: time.Now(), scripts: []script{{fails: true}, {lives: time.Second}, {}}}
		v := &supervise.Supervisor{
			Start: s.start, Log: slog.New(slog.DiscardHandler),
			PingInterval: supervise.PingInterval, Backoff: supervise.Backoff(),
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- v.Run(ctx) }()
		for i := range 2 {
			got, err := v.Wait(ctx)
			if err != nil {
				t.Fatal(err)
			}
			p, ok := got.(*process)
			if !ok || (p.lives > 0) != (i == 0) {
				t.Errorf("waiting returned %v", got)
			}
			if i == 0 {
				<-p.done
				synctest.Wait()
				if _, runs := v.Current(); runs {
					t.Error("a process is current that has ended")
				}
			}
		}
		short, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, err := v.Wait(short); !errors.Is(err, context.Canceled) {
			t.Errorf("waiting for what doesn't run any more: %v", err)
		}
	})
}
