package identity

import (
	"context"
	"sync"
	"time"
)

// places bounds the questions to the API server in flight, and each account's
// part of them: whoever knows what a token of one plugin says of itself can
// forge it as often as it likes, and must not keep the others from being asked
// about. An account beyond its part is turned away at once; one within it waits
// for its turn, so that all plugins can come back at once.
type places struct {
	share int
	turns chan struct{}

	mu     sync.Mutex
	shares map[Account]int
}

func newPlaces(limit, share int) *places {
	return &places{share: share, turns: make(chan struct{}, limit), shares: map[Account]int{}}
}

// take takes a place for a question about account; the caller gives it back. It
// is false when the account has its part, or ctx ends before its turn.
func (p *places) take(ctx context.Context, account Account) bool {
	if !p.enter(account) {
		return false
	}
	select {
	case p.turns <- struct{}{}:
		return true
	case <-ctx.Done():
		p.exit(account)
		return false
	}
}

func (p *places) leave(account Account) {
	<-p.turns
	p.exit(account)
}

// taken is how many questions are in flight.
func (p *places) taken() int { return len(p.turns) }

func (p *places) enter(account Account) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shares[account] >= p.share {
		return false
	}
	p.shares[account]++
	return true
}

func (p *places) exit(account Account) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shares[account]--
	if p.shares[account] == 0 {
		delete(p.shares, account)
	}
}

// budget bounds the tokens of one account that the API server refuses in a
// second. Beyond it, none of that account is asked about until the second is
// over; tokens that were accepted before are not concerned.
type budget struct {
	limit int

	mu      sync.Mutex
	windows map[Account]window
}

type window struct {
	begun   time.Time
	refused int
}

func newBudget(limit int) *budget { return &budget{limit: limit, windows: map[Account]window{}} }

func (b *budget) left(account Account, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.windows[account]
	return w.refused < b.limit || now.Sub(w.begun) >= time.Second
}

func (b *budget) spend(account Account, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w, ok := b.windows[account]
	if !ok || now.Sub(w.begun) >= time.Second {
		w = window{begun: now}
	}
	w.refused++
	b.windows[account] = w
}
