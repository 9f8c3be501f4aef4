package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
	"github.com/kandev/plugin-host/test/postgres"
)

const (
	// watchers are the subscribers. Each is one WatchEvents stream of task.*, read by a
	// goroutine of this process as fast as messages come and checked by the Host as any:
	// its token at once and then every second, its declaration at each event. All are
	// streams of one installation, which is allowed that many here, a few on each
	// connection over TLS.
	watchers            = 200
	watchersAConnection = 20
	// eventWriters write as fast as they can for the rate; for the latency,
	// pacedEvery is the pause between two commits.
	eventWriters = 4
	pacedEvery   = 50 * time.Millisecond
)

// declared are the installations of a bench: each declares task events.
type declared struct{ *view.View }

// Legacy implements admission.LegacyView.
func (declared) Legacy(string) authority.Legacy {
	return authority.Legacy{
		FreshUntil: time.Now().Add(time.Hour), Installed: true,
		LegacyTerms: authority.LegacyTerms{Events: []string{"task.*"}, Declared: contract.LegacyDeclarable},
	}
}

// measureEvents measures streams of events over gRPC and TLS, on each database: how
// many are received a second, by all of them together, while commands are committed
// as fast as they come, and how long an event takes from its commit to one stream
// while they come slowly. The figures of SQLite have no suffix; none has a bar.
func measureEvents(ctx context.Context, m *measurement) error {
	fmt.Printf("events: a subscriber is one stream of WatchEvents for task.*, over TLS, %d on a connection, all of one installation; "+
		"they and the Host share this process and its processors\n", watchersAConnection)
	b, err := newBench()
	if err != nil {
		return err
	}
	if err := b.close(m.events(ctx, b, eventBench{db: sqliteDatabase{b.dir}, name: "sqlite"})); err != nil {
		return err
	}
	server, err := postgres.Start(ctx)
	if errors.Is(err, postgres.ErrNoServer) {
		fmt.Println("events are not measured on PostgreSQL:", err)
		return nil
	}
	if err != nil {
		return err
	}
	if b, err = newBench(); err != nil {
		return errors.Join(err, server.Stop())
	}
	err = b.close(m.events(ctx, b, eventBench{db: postgresDatabase{server}, name: "postgres", suffix: "_postgres"}))
	return errors.Join(err, server.Stop())
}

// eventBench is the database that events are measured on.
type eventBench struct {
	db           database
	name, suffix string
}

func (m *measurement) events(ctx context.Context, b *bench, on eventBench) error {
	engine, err := on.db.engine(ctx)
	if err != nil {
		return err
	}
	h, err := b.start(ctx, engine, true)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	audience := &audience{}
	var watching sync.WaitGroup
	defer func() {
		stop()
		watching.Wait()
	}()
	for range watchers / watchersAConnection {
		client, err := b.connect(h.address, b.bearer)
		if err != nil {
			return err
		}
		for range watchersAConnection {
			stream, err := client.WatchEvents(ctx, &pluginv1.WatchEventsRequest{RequestId: "bench", Patterns: []string{"task.*"}})
			if err != nil {
				return fmt.Errorf("watch events: %w", err)
			}
			if _, err := stream.Recv(); err != nil {
				return fmt.Errorf("begin to watch events: %w", err)
			}
			watching.Go(func() {
				if err := audience.listen(stream); err != nil && ctx.Err() == nil {
					audience.failure.Store(&err)
				}
			})
		}
	}
	w := newWriters(h.client, h.version)
	if err := m.eventLatency(ctx, w, audience, on); err != nil {
		return err
	}
	return m.eventRate(ctx, w, audience, on)
}

// eventLatency commits slowly, and takes the time of each event at each stream.
func (m *measurement) eventLatency(ctx context.Context, w *writers, audience *audience, on eventBench) error {
	audience.measure.Store(true)
	pace := time.NewTicker(pacedEvery)
	defer pace.Stop()
	commits := 0
	for end := time.Now().Add(time.Duration(m.pairs) * m.slice); time.Now().Before(end); commits++ {
		if _, err := w.update(ctx, 0); err != nil {
			return err
		}
		<-pace.C
	}
	if err := audience.await(int64(commits) * watchers); err != nil {
		return err
	}
	audience.measure.Store(false)
	latencies := audience.latencies
	slices.Sort(latencies)
	p99 := latencies[len(latencies)*99/100]
	fmt.Printf("events on %s, %d subscribers, %d commits %v apart: from a commit to one subscriber %v at the median, %v at the 99th percentile, %v at most\n",
		on.name, watchers, commits, pacedEvery, latencies[len(latencies)/2], p99, latencies[len(latencies)-1])
	m.report(figure{name: "event_latency_p99" + on.suffix, value: float64(p99.Microseconds()) / 1e3, unit: "ms"})
	return nil
}

// eventRate commits as fast as it goes, and counts what arrives until everything has.
func (m *measurement) eventRate(ctx context.Context, w *writers, audience *audience, on eventBench) error {
	before := audience.received.Load()
	begun := time.Now()
	end := begun.Add(time.Duration(m.pairs) * m.slice)
	var commits atomic.Int64
	errs := make([]error, eventWriters)
	var writing sync.WaitGroup
	for worker := range eventWriters {
		writing.Go(func() {
			// What is in flight stays within what a stream may be behind.
			pause := time.NewTicker(time.Millisecond)
			defer pause.Stop()
			for time.Now().Before(end) && errs[worker] == nil {
				if commits.Load()*watchers-(audience.received.Load()-before) > 1000*watchers {
					<-pause.C
					continue
				}
				_, errs[worker] = w.update(ctx, worker)
				commits.Add(1)
			}
		})
	}
	writing.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := audience.await(before + commits.Load()*watchers); err != nil {
		return err
	}
	took := time.Since(begun).Seconds()
	received := float64(audience.received.Load() - before)
	fmt.Printf("events on %s, %d subscribers, %d writers: %.0f events a second were committed and %.0f received\n",
		on.name, watchers, eventWriters, float64(commits.Load())/took, received/took)
	m.report(figure{name: "events_per_s" + on.suffix, value: received / took, unit: "1/s"})
	return nil
}

// audience is all streams.
type audience struct {
	received atomic.Int64
	failure  atomic.Pointer[error]
	// measure: latencies are taken.
	measure   atomic.Bool
	mu        sync.Mutex
	latencies []time.Duration
}

func (a *audience) failed() error {
	if err := a.failure.Load(); err != nil {
		return *err
	}
	return nil
}

func (a *audience) listen(stream grpc.ServerStreamingClient[pluginv1.WatchEventsResponse]) error {
	for {
		message, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("read an event: %w", err)
		}
		if message.GetEventId() == "" {
			continue
		}
		if a.measure.Load() {
			at, err := time.Parse(time.RFC3339Nano, message.GetOccurredAt())
			if err != nil {
				return fmt.Errorf("read an event: %w", err)
			}
			a.mu.Lock()
			a.latencies = append(a.latencies, time.Since(at))
			a.mu.Unlock()
		}
		a.received.Add(1)
	}
}

// await waits until so many events have been received.
func (a *audience) await(events int64) error {
	pause := time.NewTicker(time.Millisecond)
	defer pause.Stop()
	for deadline := time.Now().Add(time.Minute); a.received.Load() < events; <-pause.C {
		if err := a.failed(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("of %d events, %d were received", events, a.received.Load())
		}
	}
	return nil
}
