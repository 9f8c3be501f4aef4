package toolbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	progressEvery = 15 * time.Second
	lockPollEvery = 200 * time.Millisecond
	errorLines    = 40
	// partial marks the folder of a build that isn't whole.
	partial = ".partial-"
)

// Build builds the named tools that are not built yet, one after the other, and
// reports progress on out. A tool appears in its place only once it is whole: a
// killed build loses at most the tool that was being built, and what Go compiled
// for it stays in Go's own cache. Two processes never build the same tool at once;
// the second waits and finds it built.
func (b *Box) Build(ctx context.Context, out io.Writer, names ...string) error {
	if b.ignoredAssets != "" {
		fmt.Fprintf(out, "%s=%s holds no kube-apiserver and etcd: ignored\n", AssetsVar, b.ignoredAssets)
	}
	tools := make([]pinned, 0, len(names))
	for _, name := range names {
		p, err := b.find(name)
		if err != nil {
			return err
		}
		tools = append(tools, p)
	}
	for i, p := range tools {
		step := fmt.Sprintf("[%d/%d] %s", i+1, len(tools), p.name)
		if err := b.ensure(ctx, out, step, p); err != nil {
			return fmt.Errorf("build %s %s: %w", p.name, p.version, err)
		}
	}
	return nil
}

// ensure builds one tool unless it is there, and links it into bin.
func (b *Box) ensure(ctx context.Context, out io.Writer, step string, p pinned) error {
	switch {
	case b.provided(p):
		fmt.Fprintf(out, "%s: taken from %s=%s\n", step, AssetsVar, b.assets)
		return nil
	case isExecutable(b.location(p)):
		fmt.Fprintf(out, "%s %s: already built\n", step, p.version)
		return b.link(p)
	}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return fmt.Errorf("create the folder of built tools: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(b.dir, p.name+"-"+p.key+".lock"), func() {
		fmt.Fprintf(out, "%s %s: another process is building it, waiting\n", step, p.version)
	})
	if err != nil {
		return err
	}
	defer unlock()
	if isExecutable(b.location(p)) {
		fmt.Fprintf(out, "%s %s: built by another process\n", step, p.version)
		return b.link(p)
	}
	start := time.Now()
	if err := b.compile(ctx, out, step, p); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s %s: built in %s\n", step, p.version, time.Since(start).Round(time.Second))
	return b.link(p)
}

// compile runs `go build` into a folder of its own and renames that into place.
func (b *Box) compile(ctx context.Context, out io.Writer, step string, p pinned) error {
	place := filepath.Dir(b.location(p))
	// A killed build may leave a folder, and a compiler that still writes into it:
	// each build has a folder of its own.
	left, _ := filepath.Glob(place + partial + "*") // the pattern is well-formed
	for _, path := range left {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove what an interrupted build left: %w", err)
		}
	}
	temp, err := os.MkdirTemp(b.dir, filepath.Base(place)+partial)
	if err != nil {
		return fmt.Errorf("create a folder to build in: %w", err)
	}
	if err := os.Chmod(temp, 0o755); err != nil {
		return fmt.Errorf("open the folder to build in: %w", err)
	}
	defer func() { _ = os.RemoveAll(temp) }() // gone already after the rename

	fmt.Fprintf(out, "%s %s: building\n", step, p.version)
	cmd := exec.CommandContext(ctx, "go", "build", "-v", "-mod=readonly", "-buildvcs=false",
		"-ldflags", p.ldflags, "-o", filepath.Join(temp, p.name), p.pkg)
	cmd.Dir = filepath.Join(b.root, "hack", "tools", p.dir)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return fmt.Errorf("read the output of go build: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start go build: %w", err)
	}
	seen := watch(stderr)
	stop := seen.report(out, step)
	<-seen.done
	err = cmd.Wait()
	stop()
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted: %w", ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, strings.Join(seen.tail, "\n"))
	}
	if err := os.Rename(temp, place); err != nil {
		return fmt.Errorf("put the built tool in its place: %w", err)
	}
	return nil
}

// progress counts what a running `go build -v` says it does.
type progress struct {
	downloaded, compiled atomic.Int64
	done                 chan struct{}
	// tail holds the last lines that are neither; read it after done.
	tail []string
}

func watch(stderr io.Reader) *progress {
	p := &progress{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		lines := bufio.NewScanner(stderr)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			line := lines.Text()
			switch {
			case strings.HasPrefix(line, "go: downloading "):
				p.downloaded.Add(1)
			case line != "" && !strings.ContainsAny(line, " \t"):
				p.compiled.Add(1)
			default:
				p.tail = append(p.tail, line)
				p.tail = p.tail[max(0, len(p.tail)-errorLines):]
			}
		}
		_, _ = io.Copy(io.Discard, stderr) // a line beyond the buffer must not block the build
	}()
	return p
}

// report prints a line of progress now and then until the returned stop is called.
func (p *progress) report(out io.Writer, step string) (stop func()) {
	start := time.Now()
	ticker := time.NewTicker(progressEvery)
	quit, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-ticker.C:
				fmt.Fprintf(out, "%s: %s, %d modules downloaded, %d packages compiled\n",
					step, time.Since(start).Round(time.Second), p.downloaded.Load(), p.compiled.Load())
			case <-quit:
				return
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(quit)
		<-stopped
	}
}

// link puts the tool into the bin folder, replacing what is there atomically.
func (b *Box) link(p pinned) error {
	bin := b.bin()
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return fmt.Errorf("create the folder of links: %w", err)
	}
	target, at := b.location(p), filepath.Join(bin, p.name)
	if now, err := os.Readlink(at); err == nil && now == target {
		return nil
	}
	temp := fmt.Sprintf("%s.%d", at, os.Getpid())
	if err := os.Symlink(target, temp); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("link %s: %w", p.name, err)
	}
	if err := os.Rename(temp, at); err != nil {
		return fmt.Errorf("link %s: %w", p.name, err)
	}
	return nil
}

// lock takes an exclusive lock on a file that the kernel drops when the process
// ends, however it ends. It calls waiting once when another process holds it.
func lock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the build lock: %w", err)
	}
	ticker := time.NewTicker(lockPollEvery)
	defer ticker.Stop()
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			_ = file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("wait for the process that builds it: %w", ctx.Err())
		case <-ticker.C:
		}
	}
}
