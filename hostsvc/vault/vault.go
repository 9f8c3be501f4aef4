package vault

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// KeySize is the size of a key, in bytes.
const KeySize = 32

// What is sealed is a byte for the format, the name of the key, and the nonce and
// ciphertext of AES-256-GCM. Nonces are random; one key seals up to 2^32 secrets.
const (
	format      = 1
	keyNameSize = 8
	headerSize  = 1 + keyNameSize
)

var (
	// ErrKey says that no key of the ring has sealed it.
	ErrKey = errors.New("the key that sealed the secret isn't in the ring")
	// ErrSealed says that it was altered, or sealed for another installation or key
	// name. It says no more on purpose.
	ErrSealed = errors.New("what is sealed is no secret of this name")
)

// Vault seals and opens secrets. It is safe for concurrent use.
type Vault struct {
	keys []key
}

type key struct {
	// header begins whatever the key seals.
	header [headerSize]byte
	aead   cipher.AEAD
}

// New returns the vault of a ring of keys of KeySize bytes, of which there is one
// at least and none twice.
func New(keys ...[]byte) (*Vault, error) {
	if len(keys) == 0 {
		return nil, errors.New("no key is given")
	}
	v := &Vault{}
	for i, secret := range keys {
		if len(secret) != KeySize {
			return nil, fmt.Errorf("key %d has %d bytes, not %d", i+1, len(secret), KeySize)
		}
		block, err := aes.NewCipher(secret)
		if err != nil {
			return nil, fmt.Errorf("use key %d: %w", i+1, err)
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, fmt.Errorf("use key %d: %w", i+1, err)
		}
		k := key{aead: aead}
		name := sha256.Sum256(append([]byte("plugin-host vault key\x00"), secret...))
		k.header[0] = format
		copy(k.header[1:], name[:])
		if v.find(k.header[:]) != nil {
			return nil, fmt.Errorf("key %d is given twice", i+1)
		}
		v.keys = append(v.keys, k)
	}
	return v, nil
}

func (v *Vault) find(sealed []byte) *key {
	for i := range v.keys {
		if bytes.HasPrefix(sealed, v.keys[i].header[:]) {
			return &v.keys[i]
		}
	}
	return nil
}

// Seal seals a secret of an installation under a key name.
func (v *Vault) Seal(installationID, name string, value []byte) []byte {
	k := &v.keys[0]
	sealed := append([]byte(nil), k.header[:]...)
	return k.aead.Seal(sealed, nil, value, k.binding(installationID, name)) //nolint:gosec // this AEAD draws its nonce itself
}

// Open opens what Seal made for the same installation and key name. The error is
// ErrKey or ErrSealed.
func (v *Vault) Open(installationID, name string, sealed []byte) ([]byte, error) {
	k := v.find(sealed)
	if k == nil {
		return nil, ErrKey
	}
	value, err := k.aead.Open(nil, nil, sealed[headerSize:], k.binding(installationID, name))
	if err != nil {
		return nil, ErrSealed
	}
	return value, nil
}

// Old tells whether another key than the first one has sealed it.
func (v *Vault) Old(sealed []byte) bool { return !bytes.HasPrefix(sealed, v.keys[0].header[:]) }

// binding is what is authenticated beside the value: the header too, and both
// names so that no two pairs of them make the same bytes.
func (k *key) binding(installationID, name string) []byte {
	data := append([]byte(nil), k.header[:]...)
	data = binary.AppendUvarint(data, uint64(len(installationID)))
	data = append(data, installationID...)
	return append(data, name...)
}
