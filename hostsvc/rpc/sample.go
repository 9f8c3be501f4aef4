package rpc

import (
	"sync"
	"time"
)

// refusalLines is how many refused identities are logged in a second, and how
// many failed calls of one installation. Whoever can reach the port can be
// refused as often as it likes.
const refusalLines = 10

// sample lets through a number of lines in each second and counts the rest.
type sample struct {
	now func() time.Time

	mu      sync.Mutex
	second  int64
	lines   int
	leftOut int
}

// next tells whether the next line may be written, and how many were left out
// since the last one.
func (s *sample) next() (leftOut int, ok bool) {
	second := s.now().Unix()
	s.mu.Lock()
	defer s.mu.Unlock()
	if second != s.second {
		s.second, s.lines = second, 0
	}
	if s.lines == refusalLines {
		s.leftOut++
		return 0, false
	}
	s.lines++
	leftOut, s.leftOut = s.leftOut, 0
	return leftOut, true
}
