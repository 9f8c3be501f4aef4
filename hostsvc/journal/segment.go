package journal

import (
	"context"
	"crypto/sha256"
)

// Segments is the part of the store that receipts are written to.
type Segments interface {
	// AppendSegments returns nil only after all segments are durable.
	AppendSegments(ctx context.Context, segments []Segment) error
}

// Link returns the segment chained after the segment with hash previous. Its
// hash is SHA-256 over previous, chain, index, time and body, each with its
// length.
func (s Segment) Link(previous string) Segment {
	s.Previous = previous
	sum := digester{sha256.New()}
	sum.text(previous)
	sum.text(s.Chain)
	sum.number(s.Index)
	sum.number(uint64(s.At.UnixNano())) // any bijection will do
	sum.number(uint64(len(s.Body)))
	sum.Write(s.Body)
	s.Hash = sum.hex()
	return s
}
