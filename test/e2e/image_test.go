package e2e_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

// file is one of a layer or of a package.
type file struct {
	name string
	text []byte
	mode int64
}

func tarOf(t *testing.T, files []file) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Typeflag: tar.TypeReg, Size: int64(len(f.text)), Mode: f.mode}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(f.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// imageOf is an image from scratch, as `docker save` writes it.
func imageOf(t *testing.T, name string, entrypoint []string, files []file) string {
	t.Helper()
	layer := tarOf(t, files)
	encode := func(v any) []byte {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	config := encode(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": entrypoint, "User": "65532:65532"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	configName := fmt.Sprintf("%x.json", sha256.Sum256(config))
	manifest := encode([]any{map[string]any{"Config": configName, "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	path := filepath.Join(t.TempDir(), "image.tar")
	archive := tarOf(t, []file{{"manifest.json", manifest, 0o644}, {configName, config, 0o644}, {"layer.tar", layer, 0o644}})
	if err := os.WriteFile(path, archive, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const packageManifest = `
id: kandev.sample
api_version: 1
version: %s
runtime: {type: binary, executables: {%s: server/plugin}}
capabilities: {state: true}
webhooks:
  - {key: hook}
`

// packageOf packs the unmodified plugin.
func packageOf(t *testing.T, version string, program []byte) []byte {
	t.Helper()
	files := []file{
		{"manifest.yaml", fmt.Appendf(nil, packageManifest, version, runtime.GOOS+"-"+runtime.GOARCH), 0o644},
		{"server/plugin", program, 0o644},
	}
	var sums bytes.Buffer
	for _, f := range files {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(f.text), f.name)
	}
	var out bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := zipped.Write(tarOf(t, slices.Concat(files, []file{{"checksums.txt", sums.Bytes(), 0o644}}))); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
