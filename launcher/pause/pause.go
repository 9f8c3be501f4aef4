// Package pause waits between attempts, for who starts a plugin again and for who
// calls the Host again. It imports the standard library alone.
package pause

import (
	"context"
	"time"
)

// For waits and says whether the time passed before ctx ended.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
