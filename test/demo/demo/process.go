package main

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
	// pollEvery and patience bound every wait for another process.
	pollEvery = 20 * time.Millisecond
	patience  = 20 * time.Second
)

// process is a child that runs until it is stopped.
type process struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
	err   error // of the end; read it after ended
}

// spawn starts a child that logs into a file of dir and whose id is recorded there,
// so that it doesn't outlive a demo that was killed.
func spawn(dir, binary string, args ...string) (*process, error) {
	name := filepath.Base(binary)
	p := &process{log: filepath.Join(dir, name+".log"), ended: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("create the log of %s: %w", name, err)
	}
	defer func() { _ = log.Close() }()    // the child has its own handle
	p.cmd = exec.Command(binary, args...) // stop ends it
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s (`make build` builds it): %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	pid := []byte(strconv.Itoa(p.cmd.Process.Pid))
	if err := os.WriteFile(filepath.Join(dir, name+".pid"), pid, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("record the process id of %s: %w", name, err), p.stop())
	}
	return p, nil
}

// stop asks the child to end, kills it if it doesn't, and waits.
func (p *process) stop() error {
	select {
	case <-p.ended:
		return nil
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may just have ended
	select {
	case <-p.ended:
	case <-time.After(stopGrace):
		_ = p.cmd.Process.Kill()
		<-p.ended
		return fmt.Errorf("%s did not end in %v and was killed", filepath.Base(p.cmd.Path), stopGrace)
	}
	if p.err != nil {
		return fmt.Errorf("%s ended badly: %w", filepath.Base(p.cmd.Path), p.err)
	}
	return nil
}

// lastWords is an error that holds the end of the child's log.
func (p *process) lastWords() error {
	const most = 25
	data, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Errorf("read the log of %s: %w", filepath.Base(p.cmd.Path), err)
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return fmt.Errorf("the end of the log of %s:\n%s",
		filepath.Base(p.cmd.Path), strings.Join(lines[max(0, len(lines)-most):], "\n"))
}

// result is a command that has ended.
type result struct {
	stdout, stderr string
	code           int
}

// execute runs a command to its end. Only what kept it from running is an error.
func execute(ctx context.Context, dir string, env []string, binary string, args ...string) (result, error) {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	r := result{stdout: stdout.String(), stderr: stderr.String(), code: cmd.ProcessState.ExitCode()}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && (!exited || ctx.Err() != nil) {
		return r, fmt.Errorf("run %s: %w", filepath.Base(binary), errors.Join(err, ctx.Err()))
	}
	return r, nil
}

// await polls until done holds. seen is told when it never does.
func await(ctx context.Context, what string, done func() (holds bool, seen string, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
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
