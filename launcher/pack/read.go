package pack

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

const (
	manifestName  = "manifest.yaml"
	checksumsName = "checksums.txt"
	signatureName = "checksums.txt.sig"
)

// limits bound what reading a package can cost.
type limits struct {
	file, total int64 // bytes of one file and of all
	// entries bounds what is in the tar, and again the files and folders that it
	// makes: one name can make very many folders.
	entries int
	// stream bounds the tar itself: headers cost too.
	stream    int64
	checksums int64
}

// Limits of a package. 200 MiB are the format's own; the others keep a small
// archive from becoming very many names.
func packageLimits() limits {
	return limits{file: 200 << 20, total: 200 << 20, entries: 20_000, stream: 256 << 20, checksums: 8 << 20}
}

// contents is what reading a package found.
type contents struct {
	sums                           map[string][sha256.Size]byte
	manifest, checksums, signature []byte
}

// ReadManifest returns the manifest.yaml of a package, unparsed, once all of the
// package is checked as an installation checks it: what is refused there is refused
// here, by the same errors. It writes nothing.
func ReadManifest(r io.Reader) ([]byte, error) {
	found, err := unpack(r, nil, nil, packageLimits())
	return found.manifest, err
}

// unpack writes a package's files below root, which should be empty, and checks
// all of them. What it wrote before an error is the caller's to remove. Without a
// root it only checks.
func unpack(r io.Reader, root *os.Root, key ed25519.PublicKey, bounds limits) (contents, error) {
	zipped, err := gzip.NewReader(bufio.NewReader(r))
	if err != nil {
		return contents{}, fault(ErrFormat, "%v", err)
	}
	u := unpacker{
		root: root, limits: bounds, isFolder: map[string]bool{}, found: contents{sums: map[string][sha256.Size]byte{}},
	}
	if err := u.readAll(tar.NewReader(&capped{from: zipped, left: bounds.stream})); err != nil {
		return contents{}, err
	}
	if err := u.found.verify(key); err != nil {
		return contents{}, err
	}
	return u.found, nil
}

type unpacker struct {
	root   *os.Root // nil: nothing is written
	limits limits
	// isFolder has the names that there are; true: it is a folder.
	isFolder map[string]bool
	found    contents
	total    int64
}

func (u *unpacker) readAll(entries *tar.Reader) error {
	for count := 1; ; count++ {
		header, err := entries.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, ErrTooLarge):
			return err //nolint:wrapcheck // it is our own, from capped
		case err != nil:
			return fault(ErrFormat, "%v", err)
		case count > u.limits.entries:
			return fault(ErrTooLarge, "more than %d entries", u.limits.entries)
		}
		if err := u.entry(header, entries); err != nil {
			return err
		}
	}
}

func (u *unpacker) entry(header *tar.Header, from io.Reader) error {
	name, err := entryName(header)
	if err != nil {
		return err
	}
	if header.Typeflag == tar.TypeDir {
		return u.makeFolder(name)
	}
	bound := u.limits.file
	var keep *[]byte
	switch name {
	case manifestName:
		bound, keep = MaxManifestBytes, &u.found.manifest
	case checksumsName:
		bound, keep = u.limits.checksums, &u.found.checksums
	case signatureName:
		bound, keep = ed25519.SignatureSize, &u.found.signature
	}
	bound = min(bound, u.limits.total-u.total)
	if header.Size > bound {
		return tooLarge(name, bound)
	}
	written, sum, err := u.write(name, io.LimitReader(from, bound+1), keep)
	switch {
	case err != nil:
		return err
	case written > bound:
		return tooLarge(name, bound)
	}
	u.total += written
	u.found.sums[name] = sum
	return nil
}

func tooLarge(name string, bound int64) error {
	switch name {
	case manifestName:
		return fault(ErrManifest, "larger than %d bytes", bound)
	case signatureName:
		return fault(ErrSignature, "larger than %d bytes", bound)
	}
	return fault(ErrTooLarge, "%q has more than the %d bytes that are left for it", name, bound)
}

// makeFolder makes a folder and those above it, unless they are there.
func (u *unpacker) makeFolder(name string) error {
	for above := name; above != "."; above = path.Dir(above) {
		folder, there := u.isFolder[above]
		if folder {
			break // and those above it
		}
		if there {
			return fault(ErrUnsafePath, "%q: %q is a file", clip(name), clip(above))
		}
		if err := u.count(above, true); err != nil {
			return err
		}
	}
	if u.root == nil {
		return nil
	}
	if err := u.root.MkdirAll(name, 0o755); err != nil {
		return unwritable(name, err)
	}
	return nil
}

// count takes a name that is new.
func (u *unpacker) count(name string, folder bool) error {
	if len(u.isFolder) == u.limits.entries {
		return fault(ErrTooLarge, "more than %d files and folders", u.limits.entries)
	}
	u.isFolder[name] = folder
	return nil
}

// makeFile makes a file that must not exist.
func (u *unpacker) makeFile(name string) (io.WriteCloser, error) {
	if err := u.makeFolder(path.Dir(name)); err != nil {
		return nil, err
	}
	if _, there := u.isFolder[name]; there {
		return nil, fault(ErrUnsafePath, "%q is there twice", clip(name))
	}
	if err := u.count(name, false); err != nil {
		return nil, err
	}
	if u.root == nil {
		return nowhere{io.Discard}, nil
	}
	file, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, unwritable(name, err)
	}
	return file, nil
}

// nowhere is where the files go of a package that is only checked.
type nowhere struct{ io.Writer }

// Close implements io.Closer.
func (nowhere) Close() error { return nil }

// write makes a file, and hashes what it writes.
func (u *unpacker) write(name string, from io.Reader, keep *[]byte) (n int64, sum [sha256.Size]byte, err error) {
	file, err := u.makeFile(name)
	if err != nil {
		return 0, sum, err
	}
	hash := sha256.New()
	to := io.MultiWriter(file, hash)
	var kept bytes.Buffer
	if keep != nil {
		to = io.MultiWriter(file, hash, &kept)
	}
	source := &reading{from: from}
	n, err = io.Copy(to, source)
	// Not synced: what a crash of the machine tore is found at the next start.
	err = errors.Join(err, file.Close())
	switch {
	case errors.Is(source.err, ErrTooLarge):
		return n, sum, source.err
	case source.err != nil:
		return n, sum, fault(ErrFormat, "%q: %v", name, source.err)
	case err != nil:
		return n, sum, fmt.Errorf("unpack %q: %w", name, err)
	}
	if keep != nil {
		*keep = kept.Bytes()
	}
	return n, [sha256.Size]byte(hash.Sum(nil)), nil
}

// unwritable tells an archive that contradicts itself from a disk that fails.
func unwritable(name string, err error) error {
	// What is left are names that this disk takes for another's, as one without
	// upper and lower case does, and those that it can't have.
	if errors.Is(err, os.ErrExist) || !isDiskError(err) {
		return fault(ErrUnsafePath, "%q: %v", clip(name), err)
	}
	return fmt.Errorf("unpack %q: %w", name, err)
}

// No disk has longer names: of a file or folder, and with those above it. Bytes.
const (
	maxPartBytes = 255
	maxNameBytes = 4096
)

// entryName returns an entry's clean name.
func entryName(header *tar.Header) (string, error) {
	if header.Typeflag != tar.TypeReg && header.Typeflag != tar.TypeDir {
		return "", fault(ErrUnsafePath, "%q is neither a file nor a folder", clip(header.Name))
	}
	name := header.Name
	if name == "" || len(name) > maxNameBytes || path.IsAbs(name) || strings.ContainsAny(name, "\\\x00") {
		return "", fault(ErrUnsafePath, "%q", clip(name))
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." || len(part) > maxPartBytes {
			return "", fault(ErrUnsafePath, "%q", clip(name))
		}
	}
	// `tar -C folder .` writes ./ before each name.
	name = path.Clean(name)
	if name == "." && header.Typeflag == tar.TypeReg {
		return "", fault(ErrUnsafePath, "%q", header.Name)
	}
	return name, nil
}

// verify compares what was found with checksums.txt, and that with its
// signature.
func (c *contents) verify(key ed25519.PublicKey) error {
	switch {
	case c.checksums == nil:
		return ErrNoChecksums
	case c.manifest == nil:
		return fault(ErrManifest, "missing %s", manifestName)
	case key != nil && c.signature == nil:
		return fault(ErrSignature, "missing %s", signatureName)
	case key != nil && !ed25519.Verify(key, c.checksums, c.signature):
		return fault(ErrSignature, "%s is not signed by the given key", checksumsName)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(c.checksums)) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			continue
		}
		sum, name, ok := strings.Cut(line, "  ")
		want, err := hex.DecodeString(sum)
		if !ok || err != nil || len(want) != sha256.Size {
			return fault(ErrChecksum, "%q is not a SHA-256 and a path", clip(line))
		}
		name = path.Clean(name)
		if listed[name] {
			return fault(ErrChecksum, "%q is listed twice", clip(name))
		}
		listed[name] = true
		got, exists := c.sums[name]
		if !exists {
			return fault(ErrChecksum, "%q is listed and missing", clip(name))
		}
		if !bytes.Equal(want, got[:]) {
			return fault(ErrChecksum, "%q", clip(name))
		}
	}
	for name := range c.sums {
		if !listed[name] && name != checksumsName && name != signatureName {
			return fault(ErrNotListed, "%q", clip(name))
		}
	}
	return nil
}

// clip keeps an error readable.
func clip(text string) string {
	const longest = 256
	if len(text) > longest {
		return text[:longest] + "…"
	}
	return text
}

// capped ends with ErrTooLarge instead of io.EOF.
type capped struct {
	from io.Reader
	left int64
}

func (c *capped) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, fault(ErrTooLarge, "the tar is too long")
	}
	if int64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.from.Read(p)
	c.left -= int64(n)
	return n, err //nolint:wrapcheck // a reader's error is its own
}

// reading remembers an error of the source: io.Copy doesn't tell it from one of
// the target.
type reading struct {
	from io.Reader
	err  error
}

func (r *reading) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err //nolint:wrapcheck // a reader's error is its own
}
