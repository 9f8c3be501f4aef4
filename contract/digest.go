package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/cyberphone/json-canonicalization/go/src/webpki.org/jsoncanonicalizer"
)

// Digest is a SHA-256 over canonical JSON.
type Digest [sha256.Size]byte

// String returns the digest as lower-case hex.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// CanonicalDigest is SHA-256 over the RFC 8785 canonical JSON of v. Two values
// that encode to the same JSON, whatever the order of their members, have the
// same digest.
func CanonicalDigest(v any) (Digest, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return Digest{}, fmt.Errorf("encode for the canonical digest: %w", err)
	}
	canonical, err := jsoncanonicalizer.Transform(plain)
	if err != nil {
		return Digest{}, fmt.Errorf("canonicalise JSON: %w", err)
	}
	return sha256.Sum256(canonical), nil
}

// ManifestDigestPrefix names the encoding of a manifest digest, so that a new
// encoding does not look like an edited manifest.
const ManifestDigestPrefix = "v1:"

// DeclaredCapability is one capability of a manifest, as digested.
type DeclaredCapability struct {
	ID       string `json:"id"`
	Required bool   `json:"required"`
	Reason   string `json:"reason,omitempty"`
}

// ParseManifestDigest checks the form "v1:" + 64 lower-case hex characters and
// returns the text unchanged.
func ParseManifestDigest(field, digest string) (string, *FieldError) {
	if digest == "" {
		return "", &FieldError{Field: field, Reason: ReasonMissingExactField, Detail: "is required"}
	}
	const length = len(ManifestDigestPrefix) + 2*sha256.Size
	if len(digest) != length || digest[:len(ManifestDigestPrefix)] != ManifestDigestPrefix {
		return "", malformed(field, "is not %q and %d hexadecimal characters", ManifestDigestPrefix, 2*sha256.Size)
	}
	for _, c := range []byte(digest[len(ManifestDigestPrefix):]) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", malformed(field, "holds a character that is not lower-case hexadecimal")
		}
	}
	return digest, nil
}
