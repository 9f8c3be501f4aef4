package query

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
)

// Binding names the one list that a cursor can continue. It is authenticated,
// not carried.
type Binding struct {
	InstallationID string
	WorkspaceID    string
	Method         string
	Filter         contract.Digest
}

// Position is where a list stands. It is carried, encrypted.
type Position struct {
	StoreEpoch uint64
	Revision   uint64
	Snapshot   domain.Version
	// After is the key of the last item that was sent.
	After string
}

// CursorKeySize is the size of a cursor key, in bytes.
const CursorKeySize = 32

// ErrCursor says that a cursor was not issued for this list, was altered, or
// was sealed under a key that is no longer kept. It says no more on purpose.
var ErrCursor = errors.New("the cursor was not issued for this list")

// Cursors seals and opens list cursors with AES-256-GCM. The first key seals;
// every key opens, so that a key can be rotated without breaking live lists.
type Cursors struct {
	keys []cipher.AEAD
}

// NewCursors returns the cursors of a ring of keys of CursorKeySize bytes.
func NewCursors(keys ...[]byte) (*Cursors, error) {
	if len(keys) == 0 {
		return nil, errors.New("no cursor key is given")
	}
	c := &Cursors{}
	for i, key := range keys {
		if len(key) != CursorKeySize {
			return nil, fmt.Errorf("cursor key %d has %d bytes, not %d", i, len(key), CursorKeySize)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, fmt.Errorf("use cursor key %d: %w", i, err)
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, fmt.Errorf("use cursor key %d: %w", i, err)
		}
		c.keys = append(c.keys, aead)
	}
	return c, nil
}

// NewCursorKey draws a key.
func NewCursorKey() ([]byte, error) {
	key := make([]byte, CursorKeySize)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("draw a cursor key: %w", err)
	}
	return key, nil
}

// Seal returns the cursor of a position in the bound list.
func (c *Cursors) Seal(b Binding, p Position) (string, error) {
	plain := make([]byte, 0, 3*binary.MaxVarintLen64+len(p.After))
	plain = binary.AppendUvarint(plain, p.StoreEpoch)
	plain = binary.AppendUvarint(plain, p.Revision)
	plain = binary.AppendUvarint(plain, uint64(p.Snapshot))
	plain = append(plain, p.After...)
	cursor := base64.RawURLEncoding.EncodeToString(c.keys[0].Seal(nil, nil, plain, b.data())) //nolint:gosec // this AEAD draws its nonce itself
	if len(cursor) > contract.MaxCursorBytes {
		return "", fmt.Errorf("seal a cursor: it has %d bytes, at most %d fit", len(cursor), contract.MaxCursorBytes)
	}
	return cursor, nil
}

// Open returns the position of a cursor, or ErrCursor.
func (c *Cursors) Open(b Binding, cursor string) (Position, error) {
	if strings.ContainsAny(cursor, "\r\n") {
		return Position{}, ErrCursor // the decoder would skip them
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil {
		return Position{}, ErrCursor
	}
	data := b.data()
	for _, key := range c.keys {
		if plain, err := key.Open(nil, nil, sealed, data); err == nil {
			return parsePosition(plain)
		}
	}
	return Position{}, ErrCursor
}

func parsePosition(plain []byte) (Position, error) {
	var numbers [3]uint64
	for i := range numbers {
		n, size := binary.Uvarint(plain)
		if size <= 0 {
			return Position{}, ErrCursor
		}
		numbers[i], plain = n, plain[size:]
	}
	return Position{
		StoreEpoch: numbers[0], Revision: numbers[1], Snapshot: domain.Version(numbers[2]), After: string(plain),
	}, nil
}

// data is the binding as authenticated: each part with its length, so that no
// two bindings read the same.
func (b Binding) data() []byte {
	hash := sha256.New()
	var length [8]byte
	for _, part := range []string{b.InstallationID, b.WorkspaceID, b.Method} {
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		hash.Write(length[:])
		hash.Write([]byte(part))
	}
	hash.Write(b.Filter[:])
	return hash.Sum(nil)
}
