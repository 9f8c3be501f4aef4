package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	stopGrace = 15 * time.Second
	// Patience bounds every wait for another process.
	Patience  = 20 * time.Second
	pollEvery = 20 * time.Millisecond
)

// Process is a child that runs until it is stopped.
type Process struct {
	// Log is the path of its log.
	Log string
	// Ended is closed when it has ended.
	Ended <-chan struct{}

	cmd *exec.Cmd
	err error // of the end; read it after Ended
}

// spawn starts a child that logs into a file of dir and whose id is recorded there,
// so that it doesn't outlive an owner that was killed.
func spawn(dir string, env []string, binary string, args ...string) (*Process, error) {
	name := filepath.Base(binary)
	ended := make(chan struct{})
	p := &Process{Log: filepath.Join(dir, name+".log"), Ended: ended}
	log, err := os.Create(p.Log)
	if err != nil {
		return nil, fmt.Errorf("create the log of %s: %w", name, err)
	}
	defer func() { _ = log.Close() }()    // the child has its own handle
	p.cmd = exec.Command(binary, args...) // stop ends it
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = log, log, append(os.Environ(), env...)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s (`make build` builds it): %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(ended)
	}()
	pid := []byte(strconv.Itoa(p.cmd.Process.Pid))
	if err := os.WriteFile(filepath.Join(dir, name+".pid"), pid, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("record the process id of %s: %w", name, err), p.Stop())
	}
	return p, nil
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Stop asks the child to end, kills it if it doesn't, and waits. The log of a child
// that had to be killed stays, with what its goroutines were doing.
func (p *Process) Stop() error {
	select {
	case <-p.Ended:
		return nil
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may just have ended
	select {
	case <-p.Ended:
	case <-time.After(stopGrace):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // prints the goroutines
		select {
		case <-p.Ended:
		case <-time.After(stopGrace):
			_ = p.cmd.Process.Kill()
			<-p.Ended
		}
		return errors.Join(fmt.Errorf("%s did not end in %v and was killed", filepath.Base(p.cmd.Path), stopGrace), p.keepLog())
	}
	if p.err != nil {
		return fmt.Errorf("%s ended badly: %w", filepath.Base(p.cmd.Path), p.err)
	}
	return nil
}

// keepLog is an error that names a copy of the log that nobody removes.
func (p *Process) keepLog() error {
	log, err := os.ReadFile(p.Log)
	if err != nil {
		return fmt.Errorf("keep the log: %w", err)
	}
	kept, err := os.CreateTemp("", filepath.Base(p.cmd.Path)+"-*.log")
	if err != nil {
		return fmt.Errorf("keep the log: %w", err)
	}
	_, err = kept.Write(log)
	return errors.Join(fmt.Errorf("its log: %s", kept.Name()), err, kept.Close())
}

// LastWords is an error that holds the end of the child's log.
func (p *Process) LastWords() error {
	const most = 25
	data, err := os.ReadFile(p.Log)
	if err != nil {
		return fmt.Errorf("read the log of %s: %w", filepath.Base(p.cmd.Path), err)
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return fmt.Errorf("the end of the log of %s:\n%s",
		filepath.Base(p.cmd.Path), strings.Join(lines[max(0, len(lines)-most):], "\n"))
}

// Result is a command that has ended.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Run runs a command at the top of the tree, to its end. Only what kept it from running is an error.
func (w *World) Run(ctx context.Context, env []string, binary string, args ...string) (Result, error) {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir, cmd.Env = w.root, append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	r := Result{Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && (!exited || ctx.Err() != nil) {
		return r, fmt.Errorf("run %s: %w", filepath.Base(binary), errors.Join(err, ctx.Err()))
	}
	return r, nil
}

// Await polls until done holds. What was seen last is told when it never
// does.
func Await(ctx context.Context, what string, done func() (holds bool, seen string, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		holds, seen, err := done()
		if err != nil {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
		if holds {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w; last seen: %s", what, ctx.Err(), seen)
		}
	}
}
