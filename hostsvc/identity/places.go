package identity

import "sync"

// places bounds the questions to the API server in flight, and each account's
// part of them: whoever knows what a token of one plugin says of itself can
// forge it as often as it likes, and must not keep the others from being asked
// about.
type places struct {
	limit, share int

	mu     sync.Mutex
	taken  int
	shares map[Account]int
}

func newPlaces(limit, share int) *places {
	return &places{limit: limit, share: share, shares: map[Account]int{}}
}

// take takes a place for a question about account; the caller gives it back.
func (p *places) take(account Account) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= p.limit || p.shares[account] >= p.share {
		return false
	}
	p.taken++
	p.shares[account]++
	return true
}

func (p *places) leave(account Account) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	p.shares[account]--
	if p.shares[account] == 0 {
		delete(p.shares, account)
	}
}
