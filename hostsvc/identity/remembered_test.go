package identity_test

import (
	"testing"
	"time"
)

// authority.md: what the API server said of a token is remembered for ten minutes
// at most, however long the token is good for.
func TestI1_AnAnswerIsRememberedForTenMinutes(t *testing.T) {
	w := newWorld(t)
	token := w.good() // for an hour
	w.accepted(token)
	w.offset.Store(int64(9 * time.Minute))
	w.accepted(token)
	if n := w.reviewer.reviews.Load(); n != 1 {
		t.Errorf("%d reviews within the time, want 1", n)
	}
	w.offset.Store(int64(10 * time.Minute))
	w.accepted(token)
	if n := w.reviewer.reviews.Load(); n != 2 {
		t.Errorf("%d reviews after it, want another one", n)
	}
}
