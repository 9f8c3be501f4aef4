package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/test/world"
)

// answer is what sample-plugin --json prints.
type answer struct {
	State   contract.State  `json:"state"`
	Reason  contract.Reason `json:"reason"`
	Message string          `json:"message"`
	AuditID string          `json:"auditID"`
	Local   bool            `json:"local"`
	Task    struct {
		ID    string `json:"id"`
		Title string `json:"title"`
	} `json:"task"`
	Tasks []struct {
		ID    string `json:"id"`
		Title string `json:"title"`
	} `json:"tasks"`
	Workspaces []struct {
		ID           string   `json:"id"`
		State        string   `json:"state"`
		Capabilities []string `json:"capabilities"`
	} `json:"workspaces"`
	Workspace   string    `json:"workspace"`
	Hammering   bool      `json:"hammering"`
	Writes      int       `json:"writes"`
	LastSuccess time.Time `json:"lastSuccess"`
	Denied      time.Time `json:"denied"`
}

func (a answer) outcome() string { return fmt.Sprintf("%s/%s", a.State, a.Reason) }

// plugin runs the sample plugin once and shows what it was answered. Only an answer
// of the Host counts: anything else is an error.
func (w *demo) plugin(ctx context.Context, args ...string) (answer, error) {
	r, err := w.pluginQuietly(ctx, args...)
	if err != nil {
		return answer{}, err
	}
	w.Show("sample-plugin "+strings.Join(w.Shorten(args), " "), r.Stderr)
	return decode(r)
}

func (w *demo) pluginQuietly(ctx context.Context, args ...string) (world.Result, error) {
	return w.Run(ctx, w.PluginEnv(), w.Binary("sample-plugin"), append(args, "--json")...)
}

// decode reads the one answer of a run.
func decode(r world.Result) (answer, error) {
	const exitDenied = 3
	if r.Code != 0 && r.Code != exitDenied {
		return answer{}, fmt.Errorf("sample-plugin: exit code %d: %s", r.Code, strings.TrimSpace(r.Stderr))
	}
	var a answer
	if err := json.Unmarshal([]byte(r.Stdout), &a); err != nil {
		return answer{}, fmt.Errorf("read what sample-plugin printed: %w", err)
	}
	return a, nil
}

// hammering is a plugin that writes without pause until it is denied.
type hammering struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	last   chan answer // the final answer; closed without one if there was none
}

// startHammer returns once the first write was done.
func (w *demo) startHammer(ctx context.Context, workspace, task string) (*hammering, error) {
	args := []string{"hammer", "--workspace", workspace, "--task", task}
	w.Show("sample-plugin "+strings.Join(args, " ")+" &", "")
	cmd := exec.CommandContext(ctx, w.Binary("sample-plugin"), append(args, "--json")...)
	cmd.Env = append(os.Environ(), w.PluginEnv()...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = world.Patience
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("read from sample-plugin: %w", err)
	}
	h := &hammering{cmd: cmd, last: make(chan answer, 1)}
	cmd.Stderr = &h.stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start sample-plugin: %w", err)
	}
	begun := make(chan struct{})
	go func() {
		defer close(h.last)
		started := false
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var a answer
			if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
				continue // not an answer; its absence is what is told
			}
			if a.Hammering && !started {
				started = true
				close(begun)
			} else if !a.Hammering {
				h.last <- a
				return
			}
		}
	}()
	select {
	case <-begun:
		return h, nil
	case a := <-h.last:
		return nil, errors.Join(fmt.Errorf("the hammer never wrote: %s: %s", a.outcome(), a.Message), cmd.Wait())
	case <-time.After(world.Patience):
		return nil, errors.Join(errors.New("the hammer did not write in time"), cmd.Process.Kill(), cmd.Wait())
	}
}

// end waits for the denial.
func (h *hammering) end() (answer, error) {
	select {
	case a, ok := <-h.last:
		err := h.cmd.Wait()
		if !ok || err != nil {
			return answer{}, errors.Join(fmt.Errorf("the hammer ended without a denial: %s", h.stderr.String()), err)
		}
		return a, nil
	case <-time.After(world.Patience):
		return answer{}, errors.Join(fmt.Errorf("the hammer was not denied in %v", world.Patience), h.cmd.Process.Kill(), h.cmd.Wait())
	}
}
