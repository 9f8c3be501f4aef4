package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// stormHolds within stormWindow are a storm.
	stormHolds  = 16
	stormWindow = 500 * time.Millisecond
	// stormPatience is how long one pass waits for the end of a storm.
	stormPatience = 20 * time.Second
)

// storm keeps passes from running while many holds are set at once. A hold has
// taken authority away; the pass behind it only writes that down. Meanwhile the
// next revocations need the API server, its watch and the store for their own
// holds, and each pass takes more of those than ten holds do.
type storm struct {
	mu sync.Mutex
	// holds is a ring of when the newest holds were set; next is the oldest.
	holds [stormHolds]time.Time
	next  int
}

// held records that a hold was set now.
func (s *storm) held() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds[s.next] = time.Now()
	s.next = (s.next + 1) % stormHolds
}

// left is how long the storm lasts at least, zero in calm.
func (s *storm) left() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return stormWindow - time.Since(s.holds[s.next])
}

// wait returns in calm, or once a pass has waited long enough.
func (s *storm) wait(ctx context.Context) error {
	patience := time.NewTimer(stormPatience)
	defer patience.Stop()
	for left := s.left(); left > 0; left = s.left() {
		select {
		case <-time.After(left):
		case <-patience.C:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of a storm of holds: %w", ctx.Err())
		}
	}
	return nil
}
