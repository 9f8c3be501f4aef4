package contract

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of exact requests. Bytes unless said otherwise. A request beyond one
// is INVALID and the answer names the field.
const (
	// MaxIdentifierBytes bounds IDs, keys and resource versions.
	MaxIdentifierBytes = 1024
	// MaxTitleBytes bounds a task's title.
	MaxTitleBytes = 1024
	// MaxDescriptionBytes bounds a task's description.
	MaxDescriptionBytes = 32 << 10
	// MaxCommandBytes bounds one exact command as encoded on the wire.
	MaxCommandBytes = 64 << 10
	// MaxCursorBytes bounds a list cursor.
	MaxCursorBytes = 2048
	// MaxFilterValues bounds the values of one list filter, counted together.
	MaxFilterValues = 400
	// DefaultPageSize is used when a list names no limit, in items.
	DefaultPageSize = 50
	// MaxPageSize caps a list's limit, in items.
	MaxPageSize = 200
	// ContractVersion is reported by GetCapabilityContext.
	ContractVersion = "2"
	// Audience is the audience that a plugin's ServiceAccount token must have.
	Audience = "plugin-host.plugins.kandev.ai"
)

// FieldError says what is wrong with which field of a request. Field is the
// path in the request as the caller wrote it, for example "page.cursor".
type FieldError struct {
	Field  string
	Reason Reason
	Detail string
}

func (e *FieldError) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Detail) }

// CheckIdentifier returns nil for a usable identifier and otherwise a
// *FieldError that names field: absent, longer than MaxIdentifierBytes, with
// white space at an edge, with a NUL, or not UTF-8.
func CheckIdentifier(field, value string) *FieldError {
	if value == "" {
		return &FieldError{Field: field, Reason: ReasonMissingExactField, Detail: "is required"}
	}
	if len(value) > MaxIdentifierBytes {
		return malformed(field, "is longer than %d bytes", MaxIdentifierBytes)
	}
	if first, _ := utf8.DecodeRuneInString(value); unicode.IsSpace(first) {
		return malformed(field, "starts with white space")
	}
	if last, _ := utf8.DecodeLastRuneInString(value); unicode.IsSpace(last) {
		return malformed(field, "ends with white space")
	}
	if strings.IndexByte(value, 0) >= 0 {
		return malformed(field, "holds a NUL byte")
	}
	if !utf8.ValidString(value) {
		return malformed(field, "is not valid UTF-8")
	}
	return nil
}

// CheckText returns nil for a text of at most maxBytes without NUL bytes, and
// otherwise a *FieldError that names field.
func CheckText(field, value string, maxBytes int) *FieldError {
	if len(value) > maxBytes {
		return malformed(field, "is longer than %d bytes", maxBytes)
	}
	if strings.IndexByte(value, 0) >= 0 {
		return malformed(field, "holds a NUL byte")
	}
	if !utf8.ValidString(value) {
		return malformed(field, "is not valid UTF-8")
	}
	return nil
}

func malformed(field, format string, args ...any) *FieldError {
	return &FieldError{Field: field, Reason: ReasonMalformedPrecondition, Detail: fmt.Sprintf(format, args...)}
}
