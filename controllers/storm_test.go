package controllers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// waited is how long a pass waits.
func waited(t *testing.T, s *storm) time.Duration {
	t.Helper()
	began := time.Now()
	if err := s.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return time.Since(began)
}

func TestStorm_PassesWaitForItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &storm{}
		for range stormHolds - 1 {
			s.held()
		}
		if got := waited(t, s); got != 0 {
			t.Fatalf("a pass waits %s for a few holds", got)
		}
		// It goes on for a second, with a hold every 10 ms.
		go func() {
			for range 100 {
				s.held()
				<-time.After(10 * time.Millisecond)
			}
		}()
		synctest.Wait()
		// The last holds come 990 ms later; the sixteenth of them is in the window
		// for 100 ms more.
		if got := waited(t, s); got < 990*time.Millisecond || got > time.Second+stormWindow {
			t.Fatalf("a pass waits %s for a storm of a second", got)
		}
		if got := waited(t, s); got != 0 {
			t.Fatalf("a pass waits %s in calm", got)
		}
	})
}

func TestStorm_DelaysNoPassForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &storm{}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for tick := time.Tick(time.Millisecond); ; {
				select {
				case <-tick:
					s.held()
				case <-ctx.Done():
					return
				}
			}
		}()
		<-time.After(time.Second)
		if got := waited(t, s); got != stormPatience {
			cancel()
			t.Fatalf("a pass waits %s in a storm without end, want %s", got, stormPatience)
		}
		cancel()
		if err := s.wait(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("who is told to end gets %v", err)
		}
		synctest.Wait()
	})
}
