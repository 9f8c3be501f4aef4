package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	pairs := flag.Int("pairs", 11, "pairs of slices for each figure")
	slice := flag.Duration("slice", 400*time.Millisecond, "length of one slice")
	profile := flag.String("profile", "", "write a CPU profile of the measured figures to this file")
	flood := flag.String("flood", "", "be the process that floods the Host at this address; used by this program itself")
	folder := flag.String("flood-folder", "", "where that process finds its tokens and the certificate")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *flood != "" {
		return floodFrom(ctx, *flood, *folder, os.Stdin, os.Stdout)
	}
	m := &measurement{pairs: *pairs, slice: *slice}
	return m.run(ctx, flag.Args(), *profile)
}

// measurement collects figures.
type measurement struct {
	pairs   int
	slice   time.Duration
	figures []figure
}

// figure is one result with its bar, "" for none.
type figure struct {
	name  string
	value float64
	unit  string
	// atLeast and atMost are the bar; nil is none.
	atLeast, atMost *float64
}

func (f figure) missed() bool {
	return f.atLeast != nil && f.value < *f.atLeast || f.atMost != nil && f.value > *f.atMost
}

func bar(v float64) *float64 { return &v }

func (m *measurement) report(f figure) { m.figures = append(m.figures, f) }

// parts are what can be measured, in their order.
var parts = []struct {
	name string
	run  func(context.Context, *measurement) error
}{
	{"decision", measureDecision},
	{"read", measureReads},
	{"lists", measureLists},
	{"receipts", measureReceipts},
	{"write", measureSQLiteWrites},
	{"postgres", measurePostgresWrites},
	{"hammer", measureHammering},
	{"flood", measureFlood},
	{"revoke", measureRevocation},
	{"import", measureImport},
	{"scale", measureScale},
	{"events", measureEvents},
}

// run measures the named parts, all of them when none is named.
func (m *measurement) run(ctx context.Context, names []string, profile string) error {
	stop, err := startProfile(profile)
	if err != nil {
		return err
	}
	defer stop()
	known := map[string]bool{}
	for _, part := range parts {
		known[part.name] = true
	}
	wanted := map[string]bool{}
	for _, name := range names {
		if !known[name] {
			return fmt.Errorf("there is no part %q", name)
		}
		wanted[name] = true
	}
	for _, part := range parts {
		if len(names) > 0 && !wanted[part.name] {
			continue
		}
		if err := part.run(ctx, m); err != nil {
			return fmt.Errorf("measure %s: %w", part.name, err)
		}
	}
	return m.print()
}

func (m *measurement) print() error {
	missed := 0
	for _, f := range m.figures {
		if f.missed() {
			missed++
			fmt.Printf("%s misses its bar\n", f.name)
		}
	}
	for _, f := range m.figures {
		fmt.Printf("BENCH %s %.4g %s\n", f.name, f.value, f.unit)
	}
	if missed > 0 {
		return errors.New("a figure misses its bar")
	}
	return nil
}
