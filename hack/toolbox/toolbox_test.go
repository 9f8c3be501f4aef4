package toolbox

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// sample is a tool whose module needs nothing from the network.
func sample() []tool {
	return []tool{{name: "hello", dir: "hello", pkg: "example.test/hello", pin: "example.test/hello",
		stamps: func(version, _ string) ([]string, error) { return []string{"main.version=" + version}, nil }}}
}

// tree makes a working tree with the sample's module in it.
func tree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	write(t, root, "hack/tools/hello/go.mod", `module example.test/tools/hello

go 1.26.0

require example.test/hello v1.2.3

replace example.test/hello => ./src
`)
	write(t, root, "hack/tools/hello/src/go.mod", "module example.test/hello\n\ngo 1.26.0\n")
	write(t, root, "hack/tools/hello/src/main.go", `package main

var version string

func main() { println(version) }
`)
	return root
}

func write(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

func opened(t *testing.T, root, dir, assets string, tools []tool) *Box {
	t.Helper()
	b, err := open(root, tools, func(name string) string {
		return map[string]string{DirVar: dir, AssetsVar: assets}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBuildOnceWithTheStampAndReuseFromAnotherTree(t *testing.T) {
	dir := t.TempDir()
	b := opened(t, tree(t), dir, "", sample())
	var missing *MissingError
	if _, err := b.Path("hello"); !errors.As(err, &missing) || !strings.Contains(err.Error(), "make tools") {
		t.Fatalf("before the build: %v, want a *MissingError that names the make target", err)
	}
	var log bytes.Buffer
	if err := b.Build(t.Context(), &log, "hello"); err != nil {
		t.Fatal(err)
	}
	path, err := b.Path("hello")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), path).CombinedOutput(); err != nil || string(out) != "v1.2.3\n" {
		t.Errorf("the tool says %q, %v; want its pinned version", out, err)
	}
	_, front := b.Env()
	if got, err := filepath.EvalSymlinks(filepath.Join(front[0], "hello")); err != nil || got != path {
		t.Errorf("PATH leads to %q, %v; want %q", got, err, path)
	}

	log.Reset()
	clone := opened(t, tree(t), dir, "", sample())
	if err := clone.Build(t.Context(), &log, "hello"); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "[1/1] hello v1.2.3: already built") {
		t.Errorf("a fresh clone said %q, want that it found the tool", log.String())
	}
}

func TestAnotherPinIsAnotherTool(t *testing.T) {
	root := tree(t)
	before := opened(t, root, t.TempDir(), "", sample()).tools[0]
	again := opened(t, root, t.TempDir(), "", sample()).tools[0]
	if before.key != again.key {
		t.Errorf("the key changed without a reason: %s, %s", before.key, again.key)
	}
	write(t, root, "hack/tools/hello/go.sum", "example.test/other v1.0.0 h1:AAAA=\n")
	summed := opened(t, root, t.TempDir(), "", sample()).tools[0]
	goMod, err := os.ReadFile(filepath.Join(root, "hack/tools/hello/go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, root, "hack/tools/hello/go.mod", strings.Replace(string(goMod), "v1.2.3", "v1.2.4", 1))
	upgraded := opened(t, root, t.TempDir(), "", sample()).tools[0]
	if before.key == summed.key || summed.key == upgraded.key {
		t.Errorf("keys %s, %s, %s: want three", before.key, summed.key, upgraded.key)
	}
}

func TestTwoBuildersBuildOnce(t *testing.T) {
	root, dir := tree(t), t.TempDir()
	logs := make([]bytes.Buffer, 4)
	var builders sync.WaitGroup
	for i := range logs {
		b := opened(t, root, dir, "", sample())
		builders.Go(func() {
			if err := b.Build(t.Context(), &logs[i], "hello"); err != nil {
				t.Error(err)
			}
		})
	}
	builders.Wait()
	built := 0
	for i := range logs {
		if strings.Contains(logs[i].String(), ": building") {
			built++
		}
	}
	if built != 1 {
		t.Errorf("built %d times, want once", built)
	}
}

func TestAnInterruptedOrFailedBuildLeavesNoTool(t *testing.T) {
	root, dir := tree(t), t.TempDir()
	b := opened(t, root, dir, "", sample())

	// What a killed build leaves: a partial folder, and a lock that nobody holds.
	left := filepath.Dir(b.location(b.tools[0])) + partial + "1"
	write(t, left, "hello", "half a tool")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Build(ctx, &bytes.Buffer{}, "hello"); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled build: %v", err)
	}
	var missing *MissingError
	if _, err := b.Path("hello"); !errors.As(err, &missing) {
		t.Errorf("after a cancelled build: %v, want a *MissingError", err)
	}

	source := filepath.Join(root, "hack/tools/hello/src")
	write(t, source, "broken.go", "package main\n\nvar _ int = \"text\"\n")
	if err := b.Build(t.Context(), &bytes.Buffer{}, "hello"); err == nil || !strings.Contains(err.Error(), "broken.go:3") {
		t.Errorf("a build that doesn't compile: %v, want the compiler's words", err)
	}
	if err := os.Remove(filepath.Join(source, "broken.go")); err != nil {
		t.Fatal(err)
	}
	if err := b.Build(t.Context(), &bytes.Buffer{}, "hello"); err != nil {
		t.Errorf("the build after it: %v", err)
	}
	if _, err := b.Path("hello"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a killed build left is still there: %v", err)
	}
}

func TestAssetsOfTheUser(t *testing.T) {
	var tools []tool
	for _, name := range ControlPlane() {
		tools = append(tools, tool{name: name, dir: "hello", pkg: "example.test/hello", pin: "example.test/hello"})
	}
	for _, test := range []struct {
		name    string
		have    []string
		missing string // what is left to build
	}{
		{"all three", []string{"kube-apiserver", "etcd", "kubectl"}, ""},
		{"without kubectl", []string{"kube-apiserver", "etcd"}, "kubectl"},
		{"without etcd: ignored", []string{"kube-apiserver", "kubectl"}, "kube-apiserver, etcd, kubectl"},
	} {
		t.Run(test.name, func(t *testing.T) {
			assets := t.TempDir()
			for _, name := range test.have {
				write(t, assets, name, "#!/bin/sh\n")
			}
			b := opened(t, tree(t), t.TempDir(), assets, tools)
			_, err := b.Paths(ControlPlane()...)
			var missing *MissingError
			switch {
			case test.missing == "" && err != nil:
				t.Error(err)
			case test.missing == "":
			case !errors.As(err, &missing) || strings.Join(missing.Tools, ", ") != test.missing:
				t.Errorf("missing: %v, want %s", err, test.missing)
			}
			if ignored := missing != nil && missing.IgnoredAssets != ""; ignored != strings.Contains(test.name, "ignored") {
				t.Errorf("assets ignored: %v", ignored)
			}
		})
	}
}

func TestEveryCatalogToolIsPinned(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	b := opened(t, root, t.TempDir(), "", catalog())
	for _, p := range b.tools {
		goMod, err := os.ReadFile(filepath.Join(root, "hack/tools", p.dir, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(goMod), p.pkg) {
			t.Errorf("%s: its module names no tool %s, tidying would drop it", p.name, p.pkg)
		}
		t.Log(p.name, p.version, p.ldflags)
	}
	if _, err := b.Path("nonsense"); err == nil || !strings.Contains(err.Error(), "kubectl") {
		t.Errorf("an unknown name: %v, want the list of tools", err)
	}
}

func TestARelativeToolsFolderIsRefused(t *testing.T) {
	_, err := open(tree(t), sample(), func(string) string { return "tools" })
	if err == nil || !strings.Contains(err.Error(), DirVar) {
		t.Errorf("got %v, want an error that names %s", err, DirVar)
	}
}
