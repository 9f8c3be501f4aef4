package contract

import (
	"bytes"
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
	if isCanonical(plain) {
		return sha256.Sum256(plain), nil
	}
	canonical, err := jsoncanonicalizer.Transform(plain)
	if err != nil {
		return Digest{}, fmt.Errorf("canonicalise JSON: %w", err)
	}
	return sha256.Sum256(canonical), nil
}

// CanonicalDigestOfText is CanonicalDigest of an object with one member, a text. Every
// read of one target takes it, where encoding costs several times as much.
func CanonicalDigestOfText(name, text string) (Digest, error) {
	if !isPlain(name) || !isPlain(text) {
		return CanonicalDigest(map[string]string{name: text})
	}
	var room [256]byte
	canonical := append(room[:0], `{"`...)
	canonical = append(append(append(canonical, name...), `":"`...), text...)
	return sha256.Sum256(append(canonical, `"}`...)), nil
}

// isPlain tells whether RFC 8785 writes a text as it is, between quotation marks.
func isPlain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// isCanonical tells, for an output of json.Marshal, whether RFC 8785 would leave
// it as it is: an object whose members, at every depth, come in order, with
// texts of plain ASCII and no number but a short whole one. It is on the path of
// every command, where transforming costs several times as much; whatever it is
// not sure of it leaves to the transformation.
func isCanonical(text []byte) bool {
	if len(text) == 0 || text[0] != '{' {
		return false
	}
	// The last member's name of each open object, nil in an array and before
	// the first member.
	var names [16][]byte
	var objects [16]bool
	depth := 0
	atName := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '{', '[':
			depth++
			if depth == len(names) {
				return false
			}
			names[depth], objects[depth], atName = nil, c == '{', c == '{'
		case '}', ']':
			depth--
		case ',':
			atName = objects[depth]
		case ':':
			atName = false
		case '"':
			end := plainText(text, i+1)
			if end < 0 {
				return false
			}
			if name := text[i+1 : end]; atName {
				if names[depth] != nil && bytes.Compare(names[depth], name) >= 0 {
					return false
				}
				names[depth] = name
			}
			i = end
		case '-':
			return false
		default:
			if c >= '0' && c <= '9' {
				end := shortNumber(text, i)
				if end < 0 {
					return false
				}
				i = end - 1
			}
		}
	}
	return true
}

// plainText returns the end of the string that begins at i, -1 where it has an
// escape or anything but ASCII.
func plainText(text []byte, i int) int {
	for ; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return i
		case c == '\\' || c < 0x20 || c >= 0x7f:
			return -1
		}
	}
	return -1
}

// shortNumber returns the end of the number that begins at i, -1 where it is not
// whole or has more digits than every reader keeps.
func shortNumber(text []byte, i int) int {
	const digits = 15
	for end := i; end < len(text); end++ {
		switch c := text[end]; {
		case c == ',' || c == '}' || c == ']':
			return end
		case c < '0' || c > '9' || end-i >= digits:
			return -1
		}
	}
	return -1
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
