package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/kandev/plugin-host/hostsvc/store/sqlite"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

const (
	// victimsInFlight are the calls of the plugin whose latency is measured,
	// hammersInFlight those of the one that is approved nowhere.
	victimsInFlight = 4
	hammersInFlight = 8
)

// measureHammering measures what a plugin that is approved nowhere costs the
// writes of another's workspace: the 99th percentile of their latency while it
// hammers that workspace, against while it is quiet, and against while it
// hammers a workspace that does not exist. The second tells the workspace's own
// share from that of a machine that is busy. Neither has a bar.
func measureHammering(ctx context.Context, m *measurement) error {
	b, err := newBench()
	if err != nil {
		return err
	}
	return b.close(m.hammer(ctx, b))
}

func (m *measurement) hammer(ctx context.Context, b *bench) error {
	engine, err := sqlite.Open(filepath.Join(b.dir, "host.db"))
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	h, err := b.start(ctx, engine, true)
	if err != nil {
		return err
	}
	token, err := b.issuer.token(stranger)
	if err != nil {
		return err
	}
	hammers, err := b.connect(h.address, bearer(token))
	if err != nil {
		return err
	}
	victims := newWriters(h.client, h.version)
	targets := []string{"", "nowhere", workspaceID} // "" is quiet
	const quiet, nowhere, private = 0, 1, 2
	var ratios [3][]float64
	var p99s [3][]float64
	denied := 0
	for range m.pairs {
		var p99 [3]float64
		for at, target := range targets {
			stop := func() (int, error) { return 0, nil }
			if target != "" {
				stop = hammering(ctx, hammers, target)
			}
			latencies, err := m.latencies(ctx, victims)
			n, hammerErr := stop()
			if err != nil {
				return err
			}
			if hammerErr != nil {
				return hammerErr
			}
			denied += n
			p99[at] = latencies[len(latencies)*99/100].Seconds()
			p99s[at] = append(p99s[at], 1e3*p99[at])
		}
		ratios[quiet] = append(ratios[quiet], p99[private]/p99[quiet])
		ratios[nowhere] = append(ratios[nowhere], p99[private]/p99[nowhere])
	}
	fmt.Printf("hammered on sqlite, %d victims and %d hammers in flight, %d rounds of %v: p99 of a write %.2f ms quiet, %.2f ms hammered elsewhere, %.2f ms hammered here, by %.0f denials a second\n",
		victimsInFlight, hammersInFlight, m.pairs, m.slice, median(p99s[quiet]), median(p99s[nowhere]), median(p99s[private]),
		float64(denied)/(2*float64(m.pairs)*m.slice.Seconds()))
	m.report(figure{name: "hammered_write_p99_vs_quiet", value: median(ratios[quiet]), unit: "ratio"})
	m.report(figure{name: "hammered_write_p99_vs_hammered_elsewhere", value: median(ratios[nowhere]), unit: "ratio"})
	return nil
}

// latencies writes for one slice and returns how long each write took, sorted.
func (m *measurement) latencies(ctx context.Context, victims *writers) ([]time.Duration, error) {
	var took [victimsInFlight][]time.Duration
	var failures [victimsInFlight]error
	var workers sync.WaitGroup
	end := time.Now().Add(m.slice)
	for w := range victimsInFlight {
		workers.Go(func() {
			for start := time.Now(); start.Before(end) && failures[w] == nil; {
				_, failures[w] = victims.update(ctx, w)
				now := time.Now()
				took[w] = append(took[w], now.Sub(start))
				start = now
			}
		})
	}
	workers.Wait()
	for _, err := range failures {
		if err != nil {
			return nil, fmt.Errorf("write: %w", err)
		}
	}
	all := slices.Concat(took[:]...)
	slices.Sort(all)
	return all, nil
}

// hammering asks for writes in a workspace until it is stopped, and returns how
// often that was denied. Any other answer is an error.
func hammering(ctx context.Context, client pluginv1.HostClient, workspace string) (stop func() (int, error)) {
	ctx, cancel := context.WithCancel(ctx)
	var denied [hammersInFlight]int
	var failures [hammersInFlight]error
	var workers sync.WaitGroup
	for w := range hammersInFlight {
		workers.Go(func() {
			title := "mine"
			for ctx.Err() == nil {
				response, err := client.UpdateTaskExact(ctx, &pluginv1.UpdateTaskExactRequest{
					RequestId: "request", WorkspaceId: workspace, TaskId: taskID(w), IdempotencyKey: "key",
					ExpectedResourceVersion: "1.1", Title: &title, CapabilityRevision: 1,
					Guard: &pluginv1.PendingTransitionGuard{Expectation: &pluginv1.PendingTransitionGuard_ExpectNone{
						ExpectNone: &pluginv1.PendingTransitionGuard_NoTransition{},
					}},
				})
				if ctx.Err() != nil {
					return
				}
				if err != nil || response.GetResult().GetStatus() != pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_DENIED {
					failures[w] = fmt.Errorf("a plugin that is approved nowhere was answered %v, %w", response.GetResult(), err)
					return
				}
				denied[w]++
			}
		})
	}
	return func() (n int, err error) {
		cancel()
		workers.Wait()
		for w := range hammersInFlight {
			n += denied[w]
			if failures[w] != nil {
				err = failures[w]
			}
		}
		return n, err
	}
}
