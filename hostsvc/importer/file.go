package importer

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
)

// ErrChanged tells that the file isn't what it was when the import of it began.
var ErrChanged = errors.New("the file was changed while it was imported")

// OpenFile makes a source of a file. It reads the file once for its digest; the file
// must stay as it is until the import is over.
func OpenFile(path string) (Source, error) {
	file, err := os.Open(path) //nolint:gosec // the operator names the file
	if err != nil {
		return Source{}, fmt.Errorf("open the file: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	begun, err := file.Stat()
	if err != nil {
		return Source{}, fmt.Errorf("open the file: %w", err)
	}
	if !begun.Mode().IsRegular() {
		return Source{}, fmt.Errorf("%s is no regular file: an import reads it twice, and goes on in it after a failure", path)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return Source{}, fmt.Errorf("read the file: %w", err)
	}
	unchanged := func() error {
		now, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("look at the file: %w", err)
		}
		if !os.SameFile(begun, now) || now.Size() != begun.Size() || !now.ModTime().Equal(begun.ModTime()) {
			return ErrChanged
		}
		return nil
	}
	return Source{
		Name: path, Digest: "sha256:" + hex.EncodeToString(sum.Sum(nil)), Unchanged: unchanged,
		Open: func() (io.ReadCloser, error) {
			file, err := os.Open(path) //nolint:gosec // the operator names the file
			if err != nil {
				return nil, err //nolint:wrapcheck // the caller says what it opens
			}
			if err := unchanged(); err != nil {
				return nil, errors.Join(err, file.Close())
			}
			return file, nil
		},
	}, nil
}
