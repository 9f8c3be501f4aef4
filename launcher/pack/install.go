package pack

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

const (
	dataFolder   = "data"
	unpackPrefix = ".unpack-"
	folderMode   = 0o755
)

// Installed is a plugin that can be run.
type Installed struct {
	Manifest Manifest
	// Executable is the path of this platform's program, absolute.
	Executable string
	// Dir is the install path, the program's working directory. Absolute.
	Dir string
	// DataDir is the plugin's own folder; it survives upgrades. It exists.
	DataDir string
	// StateDir is the folder of the installation, for what the launcher itself
	// remembers. DataDir is in it.
	StateDir string
	// Signed says that a given key signed the package.
	Signed bool
}

// Install unpacks the package at file to <folder>/<plugin ID>/<version>. It
// appears there whole or not at all. A version that is installed already, as a
// volume outlives its pod, must be of the same package, or ErrVersionInstalled
// refuses it; its files are compared, and replaced when they aren't what was
// checked. A key that isn't nil must have signed the package. One launcher
// installs to a folder at a time.
func Install(folder, file string, key ed25519.PublicKey) (_ Installed, err error) {
	return install(folder, file, key, runtime.GOOS+"-"+runtime.GOARCH, packageLimits())
}

func install(folder, file string, key ed25519.PublicKey, platform string, bounds limits) (_ Installed, err error) {
	folder, err = filepath.Abs(folder)
	if err != nil {
		return Installed{}, fmt.Errorf("find the folder of plugins: %w", err)
	}
	source, err := os.Open(file) //nolint:gosec // the operator names it
	if err != nil {
		return Installed{}, fmt.Errorf("open the package: %w", err)
	}
	defer func() { _ = source.Close() }() // it was only read
	// The ID is known only when it is unpacked. A folder beside those of plugins is
	// on the same volume, so that it can be renamed.
	if err := removeLeftovers(folder); err != nil {
		return Installed{}, err
	}
	temporary, err := os.MkdirTemp(folder, unpackPrefix)
	if err != nil {
		return Installed{}, fmt.Errorf("make a folder to unpack to: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	fresh := filepath.Join(temporary, "new")
	if err := os.Mkdir(fresh, folderMode); err != nil {
		return Installed{}, fmt.Errorf("make a folder to unpack to: %w", err)
	}
	root, err := os.OpenRoot(fresh)
	if err != nil {
		return Installed{}, fmt.Errorf("open the folder to unpack to: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	found, err := unpack(source, root, key, bounds)
	if err != nil {
		return Installed{}, err
	}
	manifest, err := ParseManifest(found.manifest)
	if err != nil {
		return Installed{}, err
	}
	program, err := makeExecutable(root, manifest, found, platform)
	if err != nil {
		return Installed{}, err
	}
	home := filepath.Join(folder, manifest.ID)
	target := filepath.Join(home, manifest.Version)
	if err := os.MkdirAll(filepath.Join(home, dataFolder), folderMode); err != nil {
		return Installed{}, fmt.Errorf("make the plugin's data folder: %w", err)
	}
	if err := place(fresh, target, filepath.Join(temporary, "old"), program, found); err != nil {
		return Installed{}, err
	}
	return Installed{
		Manifest: manifest, Executable: filepath.Join(target, filepath.FromSlash(program)), Dir: target,
		DataDir: filepath.Join(home, dataFolder), StateDir: home, Signed: key != nil,
	}, nil
}

// removeLeftovers removes what an unpacking that was cut off left behind.
func removeLeftovers(folder string) error {
	if err := os.MkdirAll(folder, folderMode); err != nil {
		return fmt.Errorf("make the folder of plugins: %w", err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("read the folder of plugins: %w", err)
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), unpackPrefix) {
			if err := os.RemoveAll(filepath.Join(folder, entry.Name())); err != nil {
				return fmt.Errorf("remove an unfinished unpacking: %w", err)
			}
		}
	}
	return nil
}

// makeExecutable lets every declared program run, and returns that of the
// platform.
func makeExecutable(root *os.Root, m Manifest, found contents, platform string) (string, error) {
	program, ok := m.Runtime.Executables[platform]
	if !ok {
		return "", fault(ErrPlatform, "%s", platform)
	}
	if _, exists := found.sums[program]; !exists {
		return "", fault(ErrPlatform, "%s: %q is not in the package", platform, program)
	}
	for _, name := range m.Runtime.Executables {
		// Those of other platforms may be left out.
		if _, exists := found.sums[name]; !exists {
			continue
		}
		if err := root.Chmod(name, 0o755); err != nil {
			return "", fmt.Errorf("make %q executable: %w", name, err)
		}
	}
	return program, nil
}

// place renames fresh to target. What is there already and right stays: another
// pod may be running it. What is there and damaged goes to old first, since one
// rename can't replace a folder.
func place(fresh, target, old, program string, found contents) error {
	before, err := readBounded(filepath.Join(target, checksumsName), packageLimits().checksums)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errNoFile):
		if _, err := os.Lstat(target); err == nil {
			return fault(ErrVersionInstalled, "%s holds something else", target)
		}
	case err != nil:
		return fmt.Errorf("read what is installed: %w", err)
	case !bytes.Equal(before, found.checksums):
		return fault(ErrVersionInstalled, "%s holds another package", target)
	case intact(target, program, found):
		return nil
	default:
		if err := os.Rename(target, old); err != nil {
			return fmt.Errorf("move the damaged copy away: %w", err)
		}
	}
	if err := os.Rename(fresh, target); err != nil {
		return fmt.Errorf("move the package to its place: %w", err)
	}
	return nil
}

// intact says whether every file of the package is in the folder as it was
// checked. Files beside them are the plugin's own.
func intact(folder, program string, found contents) bool {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return false
	}
	defer func() { _ = root.Close() }() // it was only read
	for name, want := range found.sums {
		if got, err := hashOf(root, name); err != nil || got != want {
			return false
		}
	}
	info, err := root.Lstat(program)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

func hashOf(root *os.Root, name string) (sum [sha256.Size]byte, err error) {
	// The plugin can put anything there, and a pipe would be waited for.
	if info, err := root.Lstat(name); err != nil || !info.Mode().IsRegular() {
		return sum, errors.Join(fmt.Errorf("%q is no file", name), err)
	}
	file, err := root.Open(name)
	if err != nil {
		return sum, fmt.Errorf("open %q: %w", name, err)
	}
	defer func() { _ = file.Close() }() // it was only read
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return sum, fmt.Errorf("read %q: %w", name, err)
	}
	return [sha256.Size]byte(hash.Sum(nil)), nil
}

// Plain returns a plugin that isn't packed: an executable with its manifest
// beside it or anywhere. Only its data is kept in folder. Nothing is verified:
// whoever put the files there (an image, mostly) answers for them.
func Plain(folder, executable, manifestFile string) (Installed, error) {
	text, err := readBounded(manifestFile, MaxManifestBytes)
	if err != nil {
		return Installed{}, err
	}
	manifest, err := ParseManifest(text)
	if err != nil {
		return Installed{}, err
	}
	executable, err = filepath.Abs(executable)
	if err != nil {
		return Installed{}, fmt.Errorf("find the executable: %w", err)
	}
	info, err := os.Stat(executable)
	switch {
	case err != nil:
		return Installed{}, fmt.Errorf("find the executable: %w", err)
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return Installed{}, fmt.Errorf("%s is no executable file", executable)
	}
	folder, err = filepath.Abs(folder)
	if err != nil {
		return Installed{}, fmt.Errorf("find the folder of plugins: %w", err)
	}
	home := filepath.Join(folder, manifest.ID)
	data := filepath.Join(home, dataFolder)
	if err := os.MkdirAll(data, folderMode); err != nil {
		return Installed{}, fmt.Errorf("make the plugin's data folder: %w", err)
	}
	return Installed{
		Manifest: manifest, Executable: executable, Dir: filepath.Dir(executable), DataDir: data, StateDir: home,
	}, nil
}

// PublicKey reads an Ed25519 key from a PEM file ("PUBLIC KEY", as openssl
// writes it).
func PublicKey(file string) (ed25519.PublicKey, error) {
	text, err := readBounded(file, 16<<10)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PUBLIC KEY" {
		return nil, fmt.Errorf("%s holds no PEM public key", file)
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse the public key of %s: %w", file, err)
	}
	key, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("the key of %s is not Ed25519", file)
	}
	return key, nil
}

// errNoFile says that something else than a file has the name, or one that is larger
// than it can be.
var errNoFile = errors.New("it is no file, or a larger one than it can be")

func readBounded(file string, bound int64) ([]byte, error) {
	info, err := os.Stat(file)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > bound) {
		err = fmt.Errorf("%s, of at most %d bytes: %w", file, bound, errNoFile)
	}
	if err != nil {
		return nil, fmt.Errorf("look at a file: %w", err)
	}
	text, err := os.ReadFile(file) //nolint:gosec // the operator names it
	if err != nil {
		return nil, fmt.Errorf("read a file: %w", err)
	}
	return text, nil
}

// isDiskError says whether making a file failed for a reason that isn't its
// name.
func isDiskError(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EIO) ||
		errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) ||
		errors.Is(err, os.ErrPermission)
}
