package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin/runner"
)

// child is the operating system's side of a plugin, as go-plugin asks for it.
// Its own would do but for three things: it can't kill what the plugin started,
// it stops reading a line without an end (the plugin then stands still), and it
// has its sockets wherever the machine's temporary files are.
type child struct {
	cmd            *exec.Cmd
	stdout, stderr io.ReadCloser
	// late takes what comes on stdout after the handshake.
	late io.Writer
	// running is told once the process runs.
	running chan<- *child
	// orphans takes what the process leaves; nil: only its group ends with it.
	orphans *Orphans

	exited chan struct{}
	result error // once exited is closed
}

// drainTime is how long output is read after the process's end.
const drainTime = 2 * time.Second

var _ runner.Runner = (*child)(nil)

// newChild prepares the program with the variables that go-plugin adds.
func newChild(program, folder string, env []string, late io.Writer, running chan<- *child, orphans *Orphans) (*child, error) {
	cmd := exec.Command(program) //nolint:noctx // its life is not that of a context
	cmd.Dir = folder
	cmd.Env = env
	cmd.SysProcAttr = attributes()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe for the plugin's output: %w", err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe for the plugin's errors: %w", err)
	}
	return &child{
		cmd: cmd, stdout: stdout, stderr: stderr, late: late, running: running, orphans: orphans, exited: make(chan struct{}),
	}, nil
}

// Start implements runner.Runner.
func (c *child) Start(context.Context) error {
	if err := c.orphans.start(c.cmd); err != nil {
		return fmt.Errorf("start the plugin: %w", err)
	}
	c.running <- c
	go c.watch()
	return nil
}

// watch notices the end of the process at once. go-plugin would first wait for
// the end of its output, which what the plugin started can hold open.
func (c *child) watch() {
	state, err := c.cmd.Process.Wait()
	// What it started must not outlive it: the next process would meet it.
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // mostly nobody is left
	c.orphans.end(c.cmd.Process.Pid)
	switch {
	case err != nil:
		c.result = fmt.Errorf("wait for the plugin: %w", err)
	case !state.Success():
		c.result = &exec.ExitError{ProcessState: state}
	}
	close(c.exited)
	// What left the group has had time to say its last.
	time.AfterFunc(drainTime, func() { _ = errors.Join(c.stdout.Close(), c.stderr.Close()) })
}

// Wait implements runner.AttachedRunner.
func (c *child) Wait(context.Context) error {
	<-c.exited
	_ = errors.Join(c.stdout.Close(), c.stderr.Close()) // they were read to their end
	return c.result
}

// Kill implements runner.AttachedRunner.
func (c *child) Kill(context.Context) error {
	select {
	case <-c.exited:
		return nil
	default:
	}
	if err := syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill the plugin: %w", err)
	}
	return nil
}

// Stdout implements runner.Runner: the handshake's line, then nothing until the
// process ends. What else is written there goes to the log.
func (c *child) Stdout() io.ReadCloser { return &handshake{pipe: c.stdout, late: c.late} }

// Stderr implements runner.Runner.
func (c *child) Stderr() io.ReadCloser { return c.stderr }

// Name implements runner.Runner.
func (c *child) Name() string { return c.cmd.Path }

// ID implements runner.AttachedRunner.
func (c *child) ID() string {
	if c.cmd.Process == nil {
		return "" // go-plugin: there is nothing to kill
	}
	return strconv.Itoa(c.cmd.Process.Pid)
}

// Diagnose implements runner.Runner.
func (c *child) Diagnose(context.Context) string {
	return "the program isn't for this platform, can't run here, or speaks no go-plugin"
}

// PluginToHost and HostToPlugin implement runner.AddrTranslator: both sides are
// in one place.
func (c *child) PluginToHost(network, address string) (toNetwork, toAddress string, err error) {
	return network, address, nil
}

// HostToPlugin is explained at PluginToHost.
func (c *child) HostToPlugin(network, address string) (toNetwork, toAddress string, err error) {
	return network, address, nil
}

// handshake is a pipe of which a reader sees the first line.
type handshake struct {
	pipe io.ReadCloser
	late io.Writer
	done bool
}

// Read implements io.Reader. The line is short; a byte at a time reads nothing
// behind it.
func (h *handshake) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if !h.done {
		n, err := h.pipe.Read(p[:1])
		h.done = n == 1 && p[0] == '\n'
		return n, err //nolint:wrapcheck // a reader's error is its own
	}
	if _, err := io.Copy(h.late, h.pipe); err != nil {
		return 0, err //nolint:wrapcheck // as above
	}
	return 0, io.EOF
}

// Close implements io.Closer.
func (h *handshake) Close() error { return h.pipe.Close() } //nolint:wrapcheck // as above
