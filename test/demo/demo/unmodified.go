package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/sdk"
	"github.com/kandev/plugin-host/test/world"
)

// unmodifiedName is the installation's, and its ServiceAccount's.
const unmodifiedName = "unmodified"

// launched is a plugin-launcher that runs its plugin.
type launched struct {
	cmd *exec.Cmd
	// hook is the address of the plugin's webhook.
	hook string
	// log holds the last lines; read it after ended.
	log   []string
	ended chan error
}

// launch runs the unmodified plugin as its pod would, under the pod's own token, and
// returns once the plugin runs.
func (w *demo) launch(ctx context.Context) (*launched, error) {
	token := w.Path("unmodified-token")
	written, err := w.Run(ctx, []string{"KUBECONFIG=" + w.Kubeconfig}, w.Kubectl, "create", "token", unmodifiedName,
		"--namespace", "plugin-unmodified", "--audience", contract.Audience,
		"--bound-object-kind", "Pod", "--bound-object-name", unmodifiedName+"-0")
	if err != nil || written.Code != 0 {
		return nil, errors.Join(fmt.Errorf("make the pod's token: %s", written.Stderr), err)
	}
	if err := os.WriteFile(token, []byte(strings.TrimSpace(written.Stdout)), 0o600); err != nil {
		return nil, fmt.Errorf("write the pod's token: %w", err)
	}
	args := []string{
		"--binary=" + w.Binary("unmodified-plugin"), "--manifest=test/demo/manifests/unmodified-package.yaml",
		"--plugins-dir=" + w.Path("plugins"), "--http-listen=127.0.0.1:0", "--health-listen=127.0.0.1:0",
	}
	w.Show("plugin-launcher "+strings.Join(w.Shorten(args), " ")+" &", "")
	l := &launched{cmd: exec.CommandContext(ctx, w.Binary("plugin-launcher"), args...), ended: make(chan error, 1)}
	l.cmd.Env = append(os.Environ(), sdk.EnvAddress+"="+w.Address, sdk.EnvCAFile+"="+w.CAFile, sdk.EnvTokenFile+"="+token)
	l.cmd.Cancel = func() error { return l.cmd.Process.Signal(syscall.SIGTERM) }
	l.cmd.WaitDelay = world.Patience
	stderr, err := l.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("read from plugin-launcher: %w", err)
	}
	if err := l.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start plugin-launcher: %w", err)
	}
	served, runs := make(chan string, 1), make(chan struct{}, 1)
	go func() {
		l.read(stderr, served, runs)
		l.ended <- l.cmd.Wait()
	}()
	patience := time.After(world.Patience)
	for l.hook == "" || runs != nil {
		select {
		case address := <-served:
			l.hook = "http://" + address + "/webhooks/hook"
		case <-runs:
			runs = nil
		case err := <-l.ended:
			return nil, errors.Join(fmt.Errorf("plugin-launcher ended; the end of its log:\n%s", strings.Join(l.log, "\n")), err)
		case <-patience:
			return nil, errors.Join(fmt.Errorf("the plugin did not run in %v", world.Patience), l.end())
		}
	}
	return l, nil
}

// read follows the log.
func (l *launched) read(log io.Reader, served chan<- string, runs chan<- struct{}) {
	const most = 25
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		l.log = append(l.log, lines.Text())
		l.log = l.log[max(0, len(l.log)-most):]
		var line struct {
			Msg     string `json:"msg"`
			Server  string `json:"server"`
			Address string `json:"address"`
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue // not one of its own
		}
		switch {
		case line.Msg == "It serves" && line.Server == "plugin":
			served <- line.Address
		case line.Msg == "The plugin runs":
			select {
			case runs <- struct{}{}:
			default: // it was started again
			}
		}
	}
}

// end tells it to end, with its plugin, and waits.
func (l *launched) end() error {
	_ = l.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case err := <-l.ended:
		l.ended <- err
		if err != nil {
			return fmt.Errorf("plugin-launcher ended badly: %w; the end of its log:\n%s", err, strings.Join(l.log, "\n"))
		}
		return nil
	case <-time.After(world.Patience):
		return errors.Join(fmt.Errorf("plugin-launcher did not end in %v", world.Patience), l.cmd.Process.Kill())
	}
}

// ask calls the plugin's webhook.
func (l *launched) ask(ctx context.Context, do string) (code int, text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, world.Patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.hook+"?do="+do, http.NoBody)
	if err != nil {
		return 0, "", fmt.Errorf("ask the plugin: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", fmt.Errorf("ask the plugin: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return 0, "", fmt.Errorf("read what the plugin answers: %w", err)
	}
	return response.StatusCode, string(body), nil
}

// asked asks the plugin until it answers so, shows it and says the claim.
func (s *story) asked(ctx context.Context, l *launched, do, claim string, so func(code int, text string) bool) error {
	var seen string
	if err := world.Await(ctx, claim, func() (bool, string, error) {
		code, text, err := l.ask(ctx, do)
		seen = fmt.Sprint(code, " ", text)
		return err == nil && so(code, text), seen, err
	}); err != nil {
		return err
	}
	s.Show("curl -X POST '"+l.hook+"?do="+do+"'", seen)
	s.Holds(claim)
	return nil
}

// said is an answer with exactly this text.
func said(code int, text string) func(int, string) bool {
	return func(gotCode int, got string) bool { return gotCode == code && got == text }
}

func (s *story) unmodified(ctx context.Context) (err error) {
	s.say("It was written for Kandev with go-plugin, and knows no cluster, token or SDK. Its manifest declares state and task.*")
	if err := s.apply(ctx, "test/demo/manifests/unmodified.yaml"); err != nil {
		return err
	}
	l, err := s.launch(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.end()) }()
	if err := s.asked(ctx, l, "count", "the Host keeps its state", func(code int, text string) bool {
		return code == http.StatusOK && strings.HasPrefix(text, `{"count":`)
	}); err != nil {
		return err
	}
	if err := s.asked(ctx, l, "secret", "what its manifest doesn't declare is refused in v1's own words",
		said(http.StatusConflict, "PermissionDenied: capability 'secrets' not declared")); err != nil {
		return err
	}
	if err := s.delivered(ctx, l); err != nil {
		return err
	}
	return s.suspended(ctx, l)
}

// delivered lets another plugin make a task, and demands that this one is told.
func (s *story) delivered(ctx context.Context, l *launched) error {
	// The place in the events is kept as soon as the launcher follows them.
	cursor := s.Path("plugins", "kandev.unmodified", ".events-cursor")
	if err := world.Await(ctx, "the launcher follows the events", func() (bool, string, error) {
		text, err := os.ReadFile(cursor)
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return len(text) > 0, "no place is kept in " + filepath.Base(cursor), err
	}); err != nil {
		return err
	}
	if _, err := s.works(ctx, "the other plugin creates a task", "create", "--workspace", "team-a", "--workflow", workflow,
		"--step", firstStep, "--key", "told-1", "--title", "Tell the other plugin"); err != nil {
		return err
	}
	return s.asked(ctx, l, "told", "the event task.created was delivered to it", func(code int, text string) bool {
		var told map[string]string
		return code == http.StatusOK && json.Unmarshal([]byte(text), &told) == nil && hasValue(told, "Tell the other plugin")
	})
}

func hasValue(m map[string]string, value string) bool {
	for _, v := range m {
		if v == value {
			return true
		}
	}
	return false
}

// suspended takes everything away from it, gives it back, and uninstalls it.
func (s *story) suspended(ctx context.Context, l *launched) error {
	suspend := func(is bool) error {
		return s.Kube(ctx, "patch", "pi", unmodifiedName, "--type=merge", "-p", fmt.Sprintf(`{"spec":{"suspend":%t}}`, is))
	}
	if err := suspend(true); err != nil {
		return err
	}
	if err := s.asked(ctx, l, "count", "suspended: it is refused, and told why",
		said(http.StatusConflict, "PermissionDenied: the plugin is suspended by a platform admin")); err != nil {
		return err
	}
	if _, err := s.works(ctx, "what the other plugin may do is untouched", "create", "--workspace", "team-a", "--workflow", workflow,
		"--step", firstStep, "--key", "told-2", "--title", "Tell it later"); err != nil {
		return err
	}
	if err := suspend(false); err != nil {
		return err
	}
	if err := s.asked(ctx, l, "told", "it goes on, and what happened meanwhile is delivered late, not lost", func(code int, text string) bool {
		var told map[string]string
		return code == http.StatusOK && json.Unmarshal([]byte(text), &told) == nil && hasValue(told, "Tell it later")
	}); err != nil {
		return err
	}
	if err := s.Kube(ctx, "delete", "pi", unmodifiedName); err != nil {
		return err
	}
	return s.asked(ctx, l, "count", "uninstalled: the pod's token proves nothing any more", func(code int, text string) bool {
		return code == http.StatusConflict && strings.HasPrefix(text, "Unauthenticated: ")
	})
}
