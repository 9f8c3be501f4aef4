package pack

import (
	"errors"
	"fmt"
)

// What can be wrong with a package. Texts are those that plugins' authors know;
// what follows one in an error says where.
var (
	ErrManifest         = errors.New("pkgtar: manifest invalid")
	ErrNoChecksums      = errors.New("pkgtar: missing checksums.txt")
	ErrNotListed        = errors.New("pkgtar: file not listed in checksums.txt")
	ErrChecksum         = errors.New("pkgtar: checksum mismatch")
	ErrUnsafePath       = errors.New("pkgtar: unsafe archive path")
	ErrPlatform         = errors.New("pkgtar: host platform not supported by package")
	ErrVersionInstalled = errors.New("pkgtar: version already installed")

	// ErrFormat, ErrTooLarge and ErrSignature have no text of old.
	ErrFormat    = errors.New("pkgtar: not a gzipped tar")
	ErrTooLarge  = errors.New("pkgtar: package too large")
	ErrSignature = errors.New("pkgtar: signature invalid")
)

func fault(kind error, format string, args ...any) error {
	return fmt.Errorf("%w: %s", kind, fmt.Sprintf(format, args...))
}
