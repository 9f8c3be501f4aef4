package pack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const platform = "linux-amd64"

const manifestText = `
id: notes.plugin
api_version: 1
version: 1.2.3
display_name: Notes
unknown_key: {a: [1, 2]}
runtime:
  type: binary
  executables:
    linux-amd64: server/plugin-linux-amd64
    darwin-arm64: server/plugin-darwin-arm64
capabilities:
  events: [task.created, "message.*"]
  state: true
webhooks:
  - {key: incoming}
  - {key: large, access: authenticated, max_body_bytes: 16777216}
actions:
  - {key: sync, scope: workspace, max_body_bytes: 1024}
  - {key: old.style, resource_scope: task, max_body_bytes: 1}
`

// entry is one of an archive. Without a type it is a file.
type entry struct {
	name, text string
	kind       byte
	size       int64 // instead of the text's
	link       string
}

// archive writes a gzipped tar.
func archive(tb testing.TB, entries ...entry) string {
	tb.Helper()
	name := filepath.Join(tb.TempDir(), "package.tar.gz")
	if err := os.WriteFile(name, zip(tb, tarball(tb, entries...)), 0o600); err != nil {
		tb.Fatal(err)
	}
	return name
}

func tarball(tb testing.TB, entries ...entry) []byte {
	tb.Helper()
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(e.text)), Linkname: e.link}
		if e.kind != 0 {
			header.Typeflag = e.kind
		}
		if e.size != 0 {
			header.Size = e.size
		}
		if err := w.WriteHeader(header); err != nil {
			tb.Fatal(err)
		}
		if _, err := w.Write([]byte(e.text)); err != nil {
			tb.Fatal(err)
		}
		if e.size != 0 {
			return buffer.Bytes() // cut off, as the size is a lie
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buffer.Bytes()
}

func zip(tb testing.TB, text []byte) []byte {
	tb.Helper()
	var buffer bytes.Buffer
	w := gzip.NewWriter(&buffer)
	if _, err := w.Write(text); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buffer.Bytes()
}

func files() []entry {
	return []entry{
		{name: "manifest.yaml", text: manifestText},
		{name: "server/plugin-linux-amd64", text: "#!/bin/sh\n"},
		{name: "ui/index.js", text: "// nothing"},
	}
}

// listed adds the checksums of all files.
func listed(entries ...entry) []entry {
	var list strings.Builder
	for _, e := range entries {
		if e.kind == 0 {
			fmt.Fprintf(&list, "%x  %s\n", sha256.Sum256([]byte(e.text)), e.name)
		}
	}
	return append(entries, entry{name: "checksums.txt", text: list.String()})
}

func TestInstallPutsAPackageToItsPlace(t *testing.T) {
	folder := t.TempDir()
	entries := append([]entry{{name: "./", kind: tar.TypeDir}, {name: "./server/", kind: tar.TypeDir}}, listed(files()...)...)
	got, err := install(folder, archive(t, entries...), nil, platform, packageLimits())
	if err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(folder, "notes.plugin", "1.2.3")
	if got.Dir != want || got.Executable != filepath.Join(want, "server/plugin-linux-amd64") || got.Signed ||
		got.DataDir != filepath.Join(folder, "notes.plugin", "data") || got.StateDir != filepath.Join(folder, "notes.plugin") {
		t.Errorf("installed as %+v", got)
	}
	for name, mode := range map[string]fs.FileMode{
		got.Executable: 0o755, filepath.Join(want, "ui/index.js"): 0o644, got.DataDir: fs.ModeDir | 0o755,
	} {
		info, err := os.Stat(name)
		if err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v; want %v", name, info.Mode(), err, mode)
		}
	}
	if w, ok := got.Manifest.Webhook("incoming"); !ok || w.Access != AccessPublic || w.MaxBodyBytes != 4<<20 {
		t.Errorf("webhook %+v, %v", w, ok)
	}
	if a, ok := got.Manifest.Action("old.style"); !ok || a.Scope != ScopeTask {
		t.Errorf("action %+v, %v", a, ok)
	}
	onlyTheInstallation(t, folder)
}

func onlyTheInstallation(t *testing.T, folder string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "notes.plugin" {
			t.Errorf("%s was left in the folder", e.Name())
		}
	}
}

func TestInstallAgain(t *testing.T) {
	folder := t.TempDir()
	file := archive(t, listed(files()...)...)
	first, err := install(folder, file, nil, platform, packageLimits())
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(first.DataDir, "kept")
	own := filepath.Join(first.Dir, "made-by-the-plugin")
	for _, name := range []string{data, own, filepath.Join(folder, unpackPrefix+"cut-off")} {
		if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := install(folder, file, nil, platform, packageLimits()); err != nil {
		t.Fatalf("the same package again: %v", err)
	}
	onlyTheInstallation(t, folder)
	if _, err := os.Stat(own); err != nil {
		t.Errorf("an intact installation was replaced: %v", err)
	}
	// The plugin can write to its volume; what runs is what was checked.
	if err := os.WriteFile(first.Executable, []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := install(folder, file, nil, platform, packageLimits()); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(first.Executable); err != nil || string(text) != "#!/bin/sh\n" {
		t.Errorf("a damaged installation was kept: %q, %v", text, err)
	}
	if _, err := os.Stat(data); err != nil {
		t.Errorf("the plugin's data is gone: %v", err)
	}
	other := files()
	other[2].text = "// something"
	if _, err := install(folder, archive(t, listed(other...)...), nil, platform, packageLimits()); !errors.Is(err, ErrVersionInstalled) {
		t.Errorf("another package of the same version: %v", err)
	}
	next := files()
	next[0].text = strings.Replace(manifestText, "1.2.3", "1.2.4", 1)
	upgraded, err := install(folder, archive(t, listed(next...)...), nil, platform, packageLimits())
	if err != nil || upgraded.DataDir != first.DataDir || upgraded.Dir == first.Dir {
		t.Errorf("an upgrade: %+v, %v", upgraded, err)
	}
}

// What the plugin has put in the place of its own files is neither run nor waited for.
func TestInstallAgainOverWhatThePluginMade(t *testing.T) {
	file := archive(t, listed(files()...)...)
	pipe := func(name string) error { return syscall.Mkfifo(name, 0o600) }
	for name, test := range map[string]struct {
		file string
		put  func(string) error
		want error
	}{
		"a pipe for the program":    {"server/plugin-linux-amd64", pipe, nil},
		"a folder for the program":  {"server/plugin-linux-amd64", func(name string) error { return os.Mkdir(name, 0o700) }, nil},
		"a link for the program":    {"server/plugin-linux-amd64", func(name string) error { return os.Symlink("/bin/sh", name) }, nil},
		"a pipe for a page":         {"ui/index.js", pipe, nil},
		"a pipe for the checksums":  {"checksums.txt", pipe, ErrVersionInstalled},
		"very long checksums":       {"checksums.txt", func(name string) error { return os.WriteFile(name, make([]byte, 9<<20), 0o600) }, ErrVersionInstalled},
		"no checksums":              {"checksums.txt", func(string) error { return nil }, ErrVersionInstalled},
		"a link for all that it is": {".", func(name string) error { return os.Symlink(t.TempDir(), name) }, ErrVersionInstalled},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			first, err := install(folder, file, nil, platform, packageLimits())
			if err != nil {
				t.Fatal(err)
			}
			place := filepath.Join(first.Dir, test.file)
			if err := errors.Join(os.RemoveAll(place), test.put(place)); err != nil {
				t.Fatal(err)
			}
			again, err := install(folder, file, nil, platform, packageLimits())
			if !errors.Is(err, test.want) {
				t.Fatalf("answers %v, want %v", err, test.want)
			}
			if err == nil {
				checkTree(t, again.Dir)
			}
			onlyTheInstallation(t, folder)
		})
	}
}

func TestHostilePackagesAreRefused(t *testing.T) {
	small := packageLimits()
	small.file, small.total, small.entries, small.stream, small.checksums = 4096, 6000, 10, 20_000, 1999
	zeros := strings.Repeat("\x00", 3000)
	tests := map[string]struct {
		entries []entry
		want    error
	}{
		"no checksums":             {files(), ErrNoChecksums},
		"no manifest":              {listed(files()[1:]...), ErrManifest},
		"no executable":            {listed(files()[0], files()[2]), ErrPlatform},
		"a file that isn't listed": {append(listed(files()...), entry{name: "more", text: "x"}), ErrNotListed},
		"a listed file is missing": {append(files()[:2], listed(files()...)[3]), ErrChecksum},
		"another file":             {append(listed(files()...)[1:], entry{name: "manifest.yaml", text: manifestText + "\n"}), ErrChecksum},
		"a file twice":             {append(listed(files()...), files()[2]), ErrUnsafePath},
		"a file below a file":      {listed(append(files(), entry{name: "ui/index.js/x", text: "x"})...), ErrUnsafePath},
		"a file over a folder":     {listed(append(files(), entry{name: "ui", text: "x"})...), ErrUnsafePath},
		"checksums twice":          {append(listed(files()...), entry{name: "checksums.txt", text: ""}), ErrUnsafePath},
		"up":                       {listed(append(files(), entry{name: "../x", text: "x"})...), ErrUnsafePath},
		"up in the middle":         {listed(append(files(), entry{name: "ui/../../x", text: "x"})...), ErrUnsafePath},
		"up and down":              {listed(append(files(), entry{name: "ui/../x", text: "x"})...), ErrUnsafePath},
		"absolute":                 {listed(append(files(), entry{name: "/etc/x", text: "x"})...), ErrUnsafePath},
		"a backslash":              {listed(append(files(), entry{name: `..\x`, text: "x"})...), ErrUnsafePath},
		"the root as a file":       {listed(append(files(), entry{name: ".", text: "x"})...), ErrUnsafePath},
		"a symbolic link":          {append(listed(files()...), entry{name: "l", kind: tar.TypeSymlink, link: "/etc"}), ErrUnsafePath},
		"a hard link":              {append(listed(files()...), entry{name: "l", kind: tar.TypeLink, link: "manifest.yaml"}), ErrUnsafePath},
		"a device":                 {append(listed(files()...), entry{name: "d", kind: tar.TypeChar}), ErrUnsafePath},
		"a pipe":                   {append(listed(files()...), entry{name: "d", kind: tar.TypeFifo}), ErrUnsafePath},
		"a name too long":          {listed(append(files(), entry{name: strings.Repeat("n", 300), text: "x"})...), ErrUnsafePath},
		"a large file":             {listed(append(files(), entry{name: "z", text: zeros + zeros})...), ErrTooLarge},
		"many bytes":               {listed(append(files(), entry{name: "a", text: zeros}, entry{name: "b", text: zeros})...), ErrTooLarge},
		"a size that is a lie":     {append(files(), entry{name: "z", text: "x", size: 2000}), ErrFormat},
		"a size beyond all":        {append(files(), entry{name: "z", text: "x", size: 1 << 40}), ErrTooLarge},
		"many entries": {append(files(), entry{name: "1/", kind: tar.TypeDir}, entry{name: "2/", kind: tar.TypeDir},
			entry{name: "3/", kind: tar.TypeDir}, entry{name: "4/", kind: tar.TypeDir}, entry{name: "5/", kind: tar.TypeDir},
			entry{name: "6/", kind: tar.TypeDir}, entry{name: "7/", kind: tar.TypeDir}, entry{name: "8/", kind: tar.TypeDir}), ErrTooLarge},
		"many folders in one name": {append(files(), entry{name: strings.Repeat("d/", 20) + "x", text: "x"}), ErrTooLarge},
		"a folder over a file":     {append(listed(files()...), entry{name: "manifest.yaml", kind: tar.TypeDir}), ErrUnsafePath},
		"a folder for a manifest":  {append([]entry{{name: "manifest.yaml", kind: tar.TypeDir}}, listed(files()[1:]...)...), ErrManifest},
		"a long way down":          {append(files(), entry{name: strings.Repeat("d/", 2100) + "x", text: "x"}), ErrUnsafePath},
		"a manifest too large":     {[]entry{{name: "manifest.yaml", text: strings.Repeat("#", MaxManifestBytes+1)}}, ErrManifest},
		"checksums too large":      {append(files(), entry{name: "checksums.txt", text: strings.Repeat("\n", 2000)}), ErrTooLarge},
		"a line that is none":      {append(files(), entry{name: "checksums.txt", text: "abc  manifest.yaml\n"}), ErrChecksum},
		"a line twice":             {twice(listed(files()...)), ErrChecksum},
		"a manifest that isn't":    {listed(entry{name: "manifest.yaml", text: "id: ../x"}, files()[1]), ErrManifest},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			file := archive(t, test.entries...)
			_, err := install(folder, file, nil, platform, small)
			if !errors.Is(err, test.want) {
				t.Errorf("answers %v, want %v", err, test.want)
			}
			// Who only reads it is told the same, but for what is wrong with a manifest
			// itself, or for this platform.
			text, read := readFile(t, file, small)
			if inside := errors.Is(test.want, ErrPlatform) || name == "a manifest that isn't"; inside != (read == nil) || (read == nil) != (text != nil) ||
				!inside && (!errors.Is(read, test.want) || read.Error() != err.Error()) {
				t.Errorf("reading answers %v, installing %v", read, err)
			}
			if entries, err := os.ReadDir(folder); err != nil || len(entries) != 0 {
				t.Errorf("%d entries were left, %v", len(entries), err)
			}
		})
	}
	if _, err := install(t.TempDir(), archive(t, listed(files()...)...), nil, "plan9-mips", small); !errors.Is(err, ErrPlatform) {
		t.Errorf("another platform: %v", err)
	}
}

// readFile reads a manifest as ReadManifest does, within bounds.
func readFile(t *testing.T, name string, bounds limits) ([]byte, error) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	found, err := unpack(file, nil, nil, bounds)
	return found.manifest, err
}

func TestReadManifestReadsAPackageThatIsRight(t *testing.T) {
	file, err := os.Open(archive(t, listed(files()...)...))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if text, err := ReadManifest(file); err != nil || string(text) != manifestText {
		t.Errorf("reads %q, %v", text, err)
	}
}

func twice(entries []entry) []entry {
	last := &entries[len(entries)-1]
	last.text += last.text
	return entries
}

// A stream that never ends costs what its limit says, however little it is
// packed.
func TestABombIsBounded(t *testing.T) {
	bounds := packageLimits()
	bounds.stream = 1 << 20
	file := filepath.Join(t.TempDir(), "bomb")
	long := tarball(t, entry{name: "z", text: strings.Repeat("\x00", 4<<20)})
	if err := os.WriteFile(file, zip(t, long), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := install(t.TempDir(), file, nil, platform, bounds); !errors.Is(err, ErrTooLarge) {
		t.Errorf("answers %v", err)
	}
	if err := os.WriteFile(file, []byte("no gzip"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := install(t.TempDir(), file, nil, platform, bounds); !errors.Is(err, ErrFormat) {
		t.Errorf("no gzip: %v", err)
	}
}

func TestSignature(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: encoded}), 0o600); err != nil {
		t.Fatal(err)
	}
	key, err := PublicKey(file)
	if err != nil {
		t.Fatal(err)
	}
	entries := listed(files()...)
	checksums := entries[len(entries)-1].text
	good := entry{name: "checksums.txt.sig", text: string(ed25519.Sign(private, []byte(checksums)))}
	bad := entry{name: "checksums.txt.sig", text: string(ed25519.Sign(private, []byte(checksums+"\n")))}
	tests := map[string]struct {
		entries []entry
		key     ed25519.PublicKey
		signed  bool
		want    error
	}{
		"signed":                  {append(listed(files()...), good), key, true, nil},
		"signed, nobody checks":   {append(listed(files()...), good), nil, false, nil},
		"wrong, nobody checks":    {append(listed(files()...), bad), nil, false, nil},
		"wrong":                   {append(listed(files()...), bad), key, false, ErrSignature},
		"absent":                  {listed(files()...), key, false, ErrSignature},
		"too long, nobody checks": {append(listed(files()...), entry{name: "checksums.txt.sig", text: strings.Repeat("x", 65)}), nil, false, ErrSignature},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := install(t.TempDir(), archive(t, test.entries...), test.key, platform, packageLimits())
			if !errors.Is(err, test.want) || got.Signed != test.signed {
				t.Errorf("signed %v, %v", got.Signed, err)
			}
		})
	}
	if err := os.WriteFile(file, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := PublicKey(file); err == nil {
		t.Error("what is no key was read as one")
	}
}

func TestPlain(t *testing.T) {
	folder, home := t.TempDir(), t.TempDir()
	program, manifest := filepath.Join(home, "plugin"), filepath.Join(home, "manifest.yaml")
	if err := os.WriteFile(manifest, []byte(manifestText), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Plain(folder, program, manifest); err == nil {
		t.Error("a file that can't be run was taken")
	}
	if err := os.Chmod(program, 0o700); err != nil {
		t.Fatal(err)
	}
	got, err := Plain(folder, program, manifest)
	if err != nil || got.Dir != home || got.Executable != program || got.Signed {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := os.Stat(got.DataDir); err != nil {
		t.Error(err)
	}
}

func TestManifestsThatAreRefused(t *testing.T) {
	tests := map[string][2]string{
		"id":                  {"id: notes.plugin", "id: Notes"},
		"id of a record":      {"id: notes.plugin", "id: notes.config"},
		"version with slash":  {"version: 1.2.3", "version: 1/2"},
		"version up":          {"version: 1.2.3", `version: ".."`},
		"version hidden":      {"version: 1.2.3", "version: .events-cursor"},
		"version of data":     {"version: 1.2.3", "version: data"},
		"api version":         {"api_version: 1", "api_version: 3"},
		"remote":              {"type: binary", "type: remote"},
		"executable outside":  {"server/plugin-darwin-arm64", "../plugin"},
		"executable absolute": {"server/plugin-darwin-arm64", "/bin/sh"},
		"webhook twice":       {"key: large", "key: incoming"},
		"webhook access":      {"access: authenticated", "access: open"},
		"webhook size":        {"16777216", "16777217"},
		"webhook public size": {"access: authenticated, ", ""},
		"action scope":        {"scope: workspace", "scope: world"},
		"action size":         {"max_body_bytes: 1024", "max_body_bytes: 1048577"},
		"action without size": {", max_body_bytes: 1024", ""},
		"not YAML":            {"id:", "\tid:"},
		"base url":            {"runtime:", "base_url: https://example.test\nruntime:"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(manifestText, test[0], test[1], 1)
			if text == manifestText {
				t.Fatal("nothing was replaced")
			}
			if _, err := ParseManifest([]byte(text)); !errors.Is(err, ErrManifest) {
				t.Errorf("answers %v", err)
			}
		})
	}
	second, err := ParseManifest([]byte(strings.Replace(manifestText, "api_version: 1", "api_version: 2", 1)))
	if w, _ := second.Webhook("incoming"); err != nil || w.Access != AccessAuthenticated {
		t.Errorf("api_version 2: %+v, %v", w, err)
	}
}

func fuzzLimits() limits {
	bounds := packageLimits()
	bounds.file, bounds.total, bounds.stream, bounds.entries, bounds.checksums = 1<<20, 1<<20, 2<<20, 100, 1<<16
	return bounds
}

func FuzzUnpack(f *testing.F) {
	f.Add(tarball(f, listed(files()...)...))
	f.Add(tarball(f, append(listed(files()...), entry{name: "../x", text: "x"})...))
	f.Add(tarball(f, append(listed(files()...), entry{name: "l", kind: tar.TypeSymlink, link: "/etc"})...))
	f.Add(tarball(f, append(listed(files()...), entry{name: "manifest.yaml/x", text: "x"})...))
	f.Add(tarball(f, append(listed(files()...), entry{name: "d", kind: tar.TypeFifo})...)[:1500])
	f.Fuzz(refusedOrRight)
}

// FuzzEntry adds two entries of any kind to a good package, and lists them.
func FuzzEntry(f *testing.F) {
	f.Add("more", "x", byte(tar.TypeReg), "", "more/less", byte(tar.TypeReg))
	f.Add("l", "", byte(tar.TypeSymlink), "/etc", "l/x", byte(tar.TypeReg))
	f.Add("ui/../../x", "x", byte(tar.TypeReg), "", "./ui//x", byte(tar.TypeReg))
	f.Add("checksums.txt.sig", "x", byte(tar.TypeReg), "", "d", byte(tar.TypeDir))
	f.Fuzz(func(t *testing.T, name, text string, kind byte, link, second string, secondKind byte) {
		var buffer bytes.Buffer
		w := tar.NewWriter(&buffer)
		for _, e := range listed(append(files(), entry{name: name, text: text}, entry{name: second, text: text})...) {
			header := &tar.Header{Name: e.name, Typeflag: tar.TypeReg, Size: int64(len(e.text))}
			switch e.name {
			case name:
				header.Typeflag, header.Linkname = kind, link
			case second:
				header.Typeflag = secondKind
			}
			if header.Typeflag != tar.TypeReg {
				header.Size = 0
			}
			if w.WriteHeader(header) != nil {
				return // what can't be written can't be read
			}
			if header.Size > 0 {
				if _, err := w.Write([]byte(e.text)); err != nil {
					t.Fatal(err)
				}
			}
		}
		refusedOrRight(t, buffer.Bytes())
	})
}

// refusedOrRight demands that whatever the bytes, a package is refused with a
// kind that is known and leaves nothing, or every file of it is the one that its
// list says.
func refusedOrRight(t *testing.T, text []byte) {
	t.Helper()
	around := t.TempDir()
	folder := filepath.Join(around, "plugins")
	file := filepath.Join(around, "package")
	if err := os.WriteFile(file, zip(t, text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := install(folder, file, nil, platform, fuzzLimits())
	if _, read := readFile(t, file, fuzzLimits()); read != nil && (err == nil || read.Error() != err.Error()) {
		t.Errorf("reading answers %v, installing %v", read, err)
	}
	if err != nil {
		known := false
		for _, kind := range []error{
			ErrManifest, ErrNoChecksums, ErrNotListed, ErrChecksum, ErrUnsafePath, ErrPlatform, ErrFormat, ErrTooLarge, ErrSignature,
		} {
			known = known || errors.Is(err, kind)
		}
		if !known {
			t.Errorf("an error without a kind: %v", err)
		}
	}
	names, readErr := os.ReadDir(around)
	if readErr != nil || len(names) != 2 {
		t.Fatalf("%d names beside the folder, %v", len(names), readErr)
	}
	inside, readErr := os.ReadDir(folder)
	if readErr != nil {
		t.Fatal(readErr)
	}
	if err != nil {
		if len(inside) != 0 {
			t.Fatalf("a refused package left %s", inside[0].Name())
		}
		return
	}
	if len(inside) != 1 || inside[0].Name() != got.Manifest.ID {
		t.Fatalf("installed %s and left %d names", got.Manifest.ID, len(inside))
	}
	checkTree(t, got.Dir)
}

func checkTree(t *testing.T, folder string) {
	t.Helper()
	list, err := os.ReadFile(filepath.Join(folder, checksumsName))
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(folder, func(name string, item fs.DirEntry, err error) error {
		if err != nil || item.IsDir() {
			return err
		}
		if !item.Type().IsRegular() {
			t.Errorf("%s is a %v", name, item.Type())
		}
		relative, _ := filepath.Rel(folder, name)
		if relative == checksumsName || relative == signatureName {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if !bytes.Contains(bytes.ToLower(list), fmt.Appendf(nil, "%x  ", sha256.Sum256(text))) {
			t.Errorf("%s isn't as listed", relative)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
