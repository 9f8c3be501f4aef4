package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// side is one of the two things that are compared: it makes one call of worker
// number w.
type side struct {
	name string
	call func(ctx context.Context, w int) error
}

// compare runs slices of both sides in turn with inFlight calls in flight and
// returns the median over the pairs of ours' rate divided by theirs'.
func (m *measurement) compare(ctx context.Context, what string, inFlight int, ours, theirs side) (float64, error) {
	sides := [2]side{ours, theirs}
	for _, s := range sides { // warm up
		if _, err := m.rate(ctx, s, inFlight); err != nil {
			return 0, err
		}
	}
	ratios := make([]float64, 0, m.pairs)
	var rates, costs [2][]float64
	for pair := range m.pairs {
		var pairRates [2]float64
		for i := range sides {
			at := (i + pair) % len(sides) // neither side is always first
			rate, err := m.rate(ctx, sides[at], inFlight)
			if err != nil {
				return 0, err
			}
			pairRates[at] = rate.perSecond
			rates[at] = append(rates[at], rate.perSecond)
			costs[at] = append(costs[at], rate.cpu)
		}
		ratios = append(ratios, pairRates[0]/pairRates[1])
	}
	ratio := median(ratios)
	fmt.Printf("%s, %d in flight, %d pairs of %v: %s %.0f/s and %.1f us CPU a call, %s %.0f/s and %.1f us, ratio %.3f (%.3f to %.3f)\n",
		what, inFlight, m.pairs, m.slice, ours.name, median(rates[0]), median(costs[0]), theirs.name, median(rates[1]),
		median(costs[1]), ratio, slices.Min(ratios), slices.Max(ratios))
	return ratio, nil
}

// rate is what one slice showed.
type rate struct {
	perSecond float64
	// cpu is the CPU time of the whole process for one call, client included,
	// in microseconds. What else the machine does moves it little.
	cpu float64
}

func (m *measurement) rate(ctx context.Context, s side, inFlight int) (rate, error) {
	cpu, err := cpuTime()
	if err != nil {
		return rate{}, err
	}
	var calls atomic.Int64
	var failure atomic.Pointer[error]
	var workers sync.WaitGroup
	start := time.Now()
	end := start.Add(m.slice)
	for w := range inFlight {
		workers.Go(func() {
			for time.Now().Before(end) && failure.Load() == nil {
				if err := s.call(ctx, w); err != nil {
					failure.Store(&err)
					return
				}
				calls.Add(1)
			}
		})
	}
	workers.Wait()
	if err := failure.Load(); err != nil {
		return rate{}, fmt.Errorf("%s: %w", s.name, *err)
	}
	took := time.Since(start)
	after, err := cpuTime()
	if err != nil {
		return rate{}, err
	}
	n := float64(calls.Load())
	return rate{perSecond: n / took.Seconds(), cpu: float64((after - cpu).Nanoseconds()) / 1e3 / n}, nil
}

// cpuTime is the CPU time that this process has used.
func cpuTime() (time.Duration, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, fmt.Errorf("read the CPU time: %w", err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}

func median(values []float64) float64 {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return sorted[len(sorted)/2]
}
