package journal

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Segments is the part of the store that receipts are written to.
type Segments interface {
	// AppendSegments returns nil only after all segments are durable.
	AppendSegments(ctx context.Context, segments []Segment) error
}

// Link returns the segment chained after the segment with hash previous. Its
// hash is SHA-256 over previous, chain, index and body, each with its length.
func (s Segment) Link(previous string) Segment {
	s.Previous = previous
	hash := sha256.New()
	var number [8]byte
	part := func(text []byte) {
		binary.BigEndian.PutUint64(number[:], uint64(len(text)))
		hash.Write(number[:])
		hash.Write(text)
	}
	part([]byte(previous))
	part([]byte(s.Chain))
	binary.BigEndian.PutUint64(number[:], s.Index)
	hash.Write(number[:])
	part(s.Body)
	s.Hash = hex.EncodeToString(hash.Sum(nil))
	return s
}
