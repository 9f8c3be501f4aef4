// Package launcher_test drives the launcher's binary with a plugin that is
// written with go-plugin and the generated protocol alone (folder plugin),
// against a Host on the other side of a real wire.
package launcher_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The binaries, built once.
var launcherBinary, pluginBinary string

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "launcher")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	launcherBinary, pluginBinary = filepath.Join(folder, "plugin-launcher"), filepath.Join(folder, "plugin")
	for target, source := range map[string]string{launcherBinary: "../../cmd/plugin-launcher", pluginBinary: "./plugin"} {
		if text, err := exec.Command("go", "build", "-o", target, source).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build %s: %v\n%s", source, err, text)
			os.Exit(1)
		}
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

const manifest = `
id: sample
api_version: 1
version: %s
runtime: {type: binary, executables: {%s: server/plugin}}
capabilities: {state: true, events: ["task.*", crash, "plugin.sample.*"]}
webhooks:
  - {key: hook}
actions:
  - {key: press, scope: workspace, max_body_bytes: 1000}
`

func manifestOf(version string) []byte {
	return fmt.Appendf(nil, manifest, version, runtime.GOOS+"-"+runtime.GOARCH)
}

// packageOf packs the sample plugin.
func packageOf(t *testing.T, version string) string {
	t.Helper()
	program, err := os.ReadFile(pluginBinary)
	if err != nil {
		t.Fatal(err)
	}
	files := []struct {
		name string
		text []byte
	}{{"manifest.yaml", manifestOf(version)}, {"server/plugin", program}, {"checksums.txt", nil}}
	var list bytes.Buffer
	for _, f := range files[:2] {
		fmt.Fprintf(&list, "%x  %s\n", sha256.Sum256(f.text), f.name)
	}
	files[2].text = list.Bytes()
	name := filepath.Join(t.TempDir(), "plugin.tar.gz")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	zipped, err := gzip.NewWriterLevel(file, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(zipped)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Typeflag: tar.TypeReg, Size: int64(len(f.text)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(f.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), zipped.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
	return name
}

// launcher is a running plugin-launcher.
type launcher struct {
	cmd            *exec.Cmd
	plugin, health string

	mu      sync.Mutex
	lines   []map[string]any
	text    strings.Builder
	changed chan struct{}
	ended   chan struct{}
}

const (
	patience      = 60 * time.Second
	platformToken = "the-bearer-of-the-platform"
)

// launch starts a launcher on a plugins folder and waits until its plugin runs.
func launch(t *testing.T, h *host, folder string, more ...string) *launcher {
	t.Helper()
	l := begin(t, h, nil, append([]string{"--plugins-dir=" + folder}, more...)...)
	l.plugin = "http://" + l.until(t, "It serves", "server", "plugin")["address"].(string)
	l.health = "http://" + l.until(t, "It serves", "server", "health")["address"].(string)
	l.until(t, "The plugin runs", "", nil)
	return l
}

func begin(t *testing.T, h *host, env []string, args ...string) *launcher {
	t.Helper()
	platform := filepath.Join(t.TempDir(), "platform")
	writeFile(t, platform, []byte(platformToken))
	l := &launcher{changed: make(chan struct{}), ended: make(chan struct{})}
	l.cmd = exec.Command(launcherBinary, append([]string{
		"--host-address=" + h.address, "--host-ca-file=" + h.caFile, "--http-listen=127.0.0.1:0", "--health-listen=127.0.0.1:0",
		"--platform-token-file=" + platform, "--run-dir=/tmp",
	}, args...)...)
	l.cmd.Env = append(os.Environ(), env...)
	l.cmd.Env = append(l.cmd.Env, "KANDEV_PLUGIN_TOKEN_FILE="+h.tokenFile, "SAMPLE_SETTING=of the pod")
	stderr, err := l.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go l.read(stderr)
	t.Cleanup(func() {
		_ = l.cmd.Process.Kill()
		<-l.ended
		if t.Failed() {
			t.Log(l.text.String())
		}
	})
	return l
}

func (l *launcher) read(from io.Reader) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line map[string]any
		_ = json.Unmarshal(lines.Bytes(), &line) // a line that is none stays in the text
		l.mu.Lock()
		l.lines = append(l.lines, line)
		l.text.Write(append(lines.Bytes(), '\n'))
		close(l.changed)
		l.changed = make(chan struct{})
		l.mu.Unlock()
	}
	_ = l.cmd.Wait()
	close(l.ended)
}

// until waits for a line of the log with a message and, unless key is empty, a
// value.
func (l *launcher) until(t *testing.T, message, key string, value any) map[string]any {
	t.Helper()
	deadline := time.After(patience)
	for at := 0; ; {
		l.mu.Lock()
		rest, changed := l.lines[at:], l.changed
		l.mu.Unlock()
		for _, line := range rest {
			at++
			if line["msg"] == message && (key == "" || line[key] == value) {
				return line
			}
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("no line %q with %s %v", message, key, value)
		case <-l.ended:
			if l.count() == at {
				t.Fatalf("it ended without a line %q with %s %v", message, key, value)
			}
		}
	}
}

func (l *launcher) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lines)
}

func (l *launcher) log() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// end tells the launcher to end and returns its status.
func (l *launcher) end(t *testing.T) int {
	t.Helper()
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	return l.status(t)
}

func (l *launcher) status(t *testing.T) int {
	t.Helper()
	select {
	case <-l.ended:
	case <-time.After(patience):
		t.Fatal("the launcher doesn't end")
	}
	return l.cmd.ProcessState.ExitCode()
}

// hook calls the plugin's webhook.
func (l *launcher) hook(t *testing.T, query, body string) (code int, text string) {
	t.Helper()
	return l.post(t, "/webhooks/hook?"+query, body, nil)
}

func (l *launcher) post(t *testing.T, path, body string, headers map[string]string) (code int, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.plugin+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	read, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(read)
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(patience); !holds(); <-ticker.C {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func about(t *testing.T, l *launcher) (answer struct {
	PID    int      `json:"pid"`
	Folder string   `json:"folder"`
	Data   string   `json:"data"`
	Env    []string `json:"env"`
	Method string   `json:"method"`
	Body   string   `json:"body"`
}) {
	t.Helper()
	code, text := l.hook(t, "do=about", "hello")
	if code != http.StatusOK {
		t.Fatalf("answers %d %q", code, text)
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

// A plugin's life: installed, used, told events, ended, upgraded.
func TestAnUnmodifiedPluginLivesInItsPod(t *testing.T) {
	h, folder := newHost(t), t.TempDir()
	l := launch(t, h, folder, "--package="+packageOf(t, "1.0.0"))

	got := about(t, l)
	if got.Folder != filepath.Join(folder, "sample/1.0.0") || got.Data != filepath.Join(folder, "sample/data") || got.Body != "hello" || got.Method != http.MethodPost {
		t.Errorf("the plugin says %+v", got)
	}
	if !slices.Contains(got.Env, "SAMPLE_SETTING=of the pod") {
		t.Error("the plugin doesn't have its pod's environment")
	}
	for _, variable := range got.Env {
		if strings.Contains(variable, h.tokenFile) || strings.HasPrefix(variable, "KANDEV_PLUGIN_TOKEN_FILE") {
			t.Errorf("the plugin has the launcher's %s", variable)
		}
	}

	// Its calls reach the Host, and the Host's answers it.
	for _, want := range []string{`{"count":1}`, `{"count":2}`} {
		if code, text := l.hook(t, "do=state&key=k", ""); code != http.StatusOK || text != want {
			t.Errorf("state: %d %q, want %q", code, text, want)
		}
	}
	if code, text := l.hook(t, "do=tasks", ""); code != http.StatusConflict || text != "PermissionDenied: capability 'api_read:tasks' not declared" {
		t.Errorf("what isn't declared: %d %q", code, text)
	}

	// Actions are for who the platform vouches for.
	if code, text := l.post(t, "/actions/press", `{"workspaceId":"w"}`, nil); code != http.StatusUnauthorized {
		t.Errorf("an action of a stranger: %d %q", code, text)
	}
	code, text := l.post(t, "/actions/press", `{"workspaceId":"w","body":{"a":1}}`, map[string]string{
		"Authorization": "Bearer " + platformToken, "X-Kandev-Actor-Id": "ann",
	})
	if code != http.StatusOK || text != `{"actor":"ann","body":"{\"a\":1}","key":"press","workspace":"w"}` {
		t.Errorf("an action: %d %q", code, text)
	}

	// Events, in order, over an end of the launcher.
	eventually(t, "the launcher follows events", func() bool { return h.streams() == 1 })
	h.publish(t, "task.created")
	eventually(t, "the event is delivered", func() bool { return len(h.delivered("task.created")) == 1 })
	if code, _ := l.hook(t, "do=write", "to be kept"); code != http.StatusNoContent {
		t.Errorf("writing answers %d", code)
	}
	if code := l.end(t); code != 0 {
		t.Errorf("ends with status %d", code)
	}
	if syscall.Kill(got.PID, 0) == nil {
		t.Error("the plugin outlives its launcher")
	}
	h.publish(t, "task.updated")

	// An upgrade keeps data and place.
	l = launch(t, h, folder, "--package="+packageOf(t, "1.1.0"))
	eventually(t, "the event is delivered after the upgrade", func() bool { return len(h.delivered("task.updated")) == 1 })
	if n := len(h.delivered("task.created")); n != 1 {
		t.Errorf("an event was delivered %d times", n)
	}
	if code, text := l.hook(t, "do=read", ""); code != http.StatusOK || text != "to be kept" {
		t.Errorf("data after the upgrade: %d %q", code, text)
	}
	if upgraded := about(t, l); upgraded.Folder != filepath.Join(folder, "sample/1.1.0") {
		t.Errorf("runs in %s", upgraded.Folder)
	}
	// The same package again, as after a restart of the container.
	if code := l.end(t); code != 0 {
		t.Errorf("ends with status %d", code)
	}
	launch(t, h, folder, "--package="+packageOf(t, "1.1.0"))
}

func TestACrashedPluginIsStartedAgain(t *testing.T) {
	h := newHost(t)
	program := filepath.Join(t.TempDir(), "manifest.yaml")
	writeFile(t, program, manifestOf("1"))
	l := launch(t, h, t.TempDir(), "--binary="+pluginBinary, "--manifest="+program)
	code, text := l.hook(t, "do=child", "")
	var child struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(text), &child); err != nil {
		t.Fatalf("%d %q", code, text)
	}
	first := about(t, l).PID
	if code, text := l.hook(t, "do=crash", ""); code != http.StatusServiceUnavailable && code != http.StatusBadGateway {
		t.Errorf("a crash answers %d %q", code, text)
	}
	eventually(t, "what the plugin started is killed", func() bool { return gone(child.PID) })
	eventually(t, "the plugin answers again", func() bool {
		code, _ := l.hook(t, "do=state&key=k", "")
		return code == http.StatusOK
	})
	if second := about(t, l).PID; second == first {
		t.Error("it is the same process")
	}
	// An event that crashes it is tried again by another process, and isn't lost or
	// skipped: the next waits.
	h.publish(t, "crash")
	h.publish(t, "task.created")
	l.until(t, "The plugin doesn't take an event", "type", "crash")
	eventually(t, "the plugin answers again", func() bool {
		code, _ := l.hook(t, "do=about", "")
		return code == http.StatusOK
	})
	if n := len(h.delivered("task.created")); n != 0 {
		t.Errorf("the event behind was delivered %d times", n)
	}
	if code := l.end(t); code != 0 {
		t.Errorf("ends with status %d", code)
	}
}

// A plugin that never answers keeps nobody waiting and nobody out.
func TestAWebhookThatHangsIsAnsweredFor(t *testing.T) {
	h := newHost(t)
	l := launch(t, h, t.TempDir(), "--package="+packageOf(t, "1.0.0"), "--webhook-timeout=1s")
	for range 2 {
		if code, text := l.hook(t, "do=hang", ""); code != http.StatusGatewayTimeout || text != `{"error":"plugin webhook timed out"}`+"\n" {
			t.Errorf("answers %d %q", code, text)
		}
	}
	about(t, l)
}

// What left the plugin's group belongs to the launcher: it is asked how it ended, and
// it doesn't outlive the plugin.
func TestWhatAPluginLeavesIsTheLaunchers(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux gives orphans away")
	}
	h := newHost(t)
	l := launch(t, h, t.TempDir(), "--package="+packageOf(t, "1.0.0"))
	plugin := about(t, l).PID
	leave := func() (pid int) {
		code, text := l.hook(t, "do=leave", "")
		var left struct {
			PID int `json:"pid"`
		}
		if err := json.Unmarshal([]byte(text), &left); err != nil || left.PID < 2 {
			t.Fatalf("%d %q", code, text)
		}
		return left.PID
	}
	// A zombie can be sent a signal; who can't was asked how it ended.
	reaped := func(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

	ends := leave()
	if err := syscall.Kill(ends, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what ends while the plugin runs is no zombie", func() bool { return reaped(ends) })
	if about(t, l).PID != plugin {
		t.Fatal("the plugin was started again meanwhile")
	}
	stays := leave()
	l.hook(t, "do=crash", "")
	eventually(t, "what the plugin left ends with it", func() bool { return reaped(stays) })
	eventually(t, "the plugin answers again", func() bool {
		code, _ := l.hook(t, "do=about", "")
		return code == http.StatusOK
	})
	stays = leave()
	if code := l.end(t); code != 0 {
		t.Errorf("ends with status %d", code)
	}
	if !reaped(stays) {
		t.Error("what the plugin left outlives the launcher")
	}
}

// Told to end again, it doesn't wait for a plugin that stands still.
func TestTheSecondSignalEndsItAtOnce(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends a child with its parent")
	}
	h := newHost(t)
	l := launch(t, h, t.TempDir(), "--package="+packageOf(t, "1.0.0"))
	plugin := about(t, l).PID
	if err := syscall.Kill(plugin, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	l.until(t, "The process was told to end; told again, it ends at once", "", nil)
	l.end(t)
	if status, ok := l.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %v", l.cmd.ProcessState)
	}
	eventually(t, "the plugin has ended", func() bool { return gone(plugin) })
}

// Opening a package takes as long as the disk does; who kills the launcher for that
// begins it again.
func TestItIsAliveWhileThePackageIsOpened(t *testing.T) {
	h := newHost(t)
	slow := filepath.Join(t.TempDir(), "package")
	if err := syscall.Mkfifo(slow, 0o600); err != nil {
		t.Fatal(err)
	}
	l := begin(t, h, nil, "--plugins-dir="+t.TempDir(), "--package="+slow)
	health := "http://" + l.until(t, "It serves", "server", "health")["address"].(string)
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
		answer, err := http.Get(health + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s answers %d", path, answer.StatusCode)
		}
	}
	text, err := os.ReadFile(packageOf(t, "1.0.0"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, slow, text)
	l.until(t, "The plugin runs", "", nil)
	l.end(t)

	l = begin(t, h, nil, "--plugins-dir="+t.TempDir(), "--package="+slow)
	l.until(t, "It serves", "server", "health")
	if code := l.end(t); code != 0 {
		t.Errorf("told to end meanwhile, it ends with status %d", code)
	}
}

// A launcher that is killed has no time to end its plugin. One that went on would
// call the Host beside the next one's, and hold its data.
func TestAPluginEndsWithALauncherThatIsKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends a child with its parent")
	}
	h := newHost(t)
	program := filepath.Join(t.TempDir(), "manifest.yaml")
	writeFile(t, program, manifestOf("1"))
	l := launch(t, h, t.TempDir(), "--binary="+pluginBinary, "--manifest="+program)
	plugin := about(t, l).PID
	if err := l.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the plugin has ended", func() bool { return gone(plugin) })
}

// gone says whether a process has ended, also when nobody has asked how.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.Contains(text, []byte(") Z "))
}

func TestOutputIsCutAndHoldsNoSecret(t *testing.T) {
	h := newHost(t)
	l := launch(t, h, t.TempDir(), "--package="+packageOf(t, "1.0.0"))
	if code, text := l.hook(t, "do=print&file="+h.tokenFile, ""); code != http.StatusNoContent {
		t.Fatalf("printing answers %d %q", code, text)
	}
	l.until(t, "The plugin writes", "line", "to stdout: [redacted]")
	l.until(t, "The plugin writes", "line", "to stderr: [redacted]")
	if long := l.until(t, "The plugin writes", "cut", true); len(long["line"].(string)) != 8<<10 {
		t.Errorf("a long line has %d bytes", len(long["line"].(string)))
	}
	l.end(t)
	for _, secret := range []string{podToken, platformToken} {
		if strings.Contains(l.log(), secret) {
			t.Errorf("the log holds %q", secret)
		}
	}
}

// A plugin that writes without an end isn't stopped by it, and fills no log.
func TestAFloodOfOutputIsBounded(t *testing.T) {
	h := newHost(t)
	l := launch(t, h, t.TempDir(), "--package="+packageOf(t, "1.0.0"))
	begin := time.Now()
	if code, text := l.hook(t, "do=flood", ""); code != http.StatusNoContent {
		t.Fatalf("flooding answers %d %q", code, text)
	}
	last := filepath.Join(t.TempDir(), "last")
	writeFile(t, last, []byte("the last"))
	eventually(t, "it is heard after the flood", func() bool {
		l.hook(t, "do=print&file="+last, "")
		return strings.Contains(l.log(), "to stdout: the last")
	})
	// 500 lines at once and 100 in each second.
	if n, most := strings.Count(l.log(), `"line":"flood`), 500+100*int(time.Since(begin)/time.Second+1); n == 0 || n > most {
		t.Errorf("%d lines of the flood were logged, want at most %d", n, most)
	}
	l.until(t, "The plugin writes too much; lines were dropped", "", nil)
}

// A plugin that closes what it writes to, as daemons do, runs on.
func TestAPluginThatClosesItsOutputRunsOn(t *testing.T) {
	h := newHost(t)
	l := launch(t, h, t.TempDir(), "--package="+packageOf(t, "1.0.0"))
	before := about(t, l).PID
	if code, text := l.hook(t, "do=close", ""); code != http.StatusNoContent {
		t.Fatalf("closing answers %d %q", code, text)
	}
	for range 3 {
		if after := about(t, l).PID; after != before {
			t.Fatal("the plugin was started again")
		}
	}
	l.hook(t, "do=crash", "")
	eventually(t, "a new one answers", func() bool {
		code, _ := l.hook(t, "do=about", "")
		return code == http.StatusOK
	})
	if code := l.end(t); code != 0 {
		t.Errorf("ends with status %d", code)
	}
}

// What the plugin says in its errors is its output too.
func TestErrorsOfThePluginAreCutAndHoldNoSecret(t *testing.T) {
	h := newHost(t)
	l := launch(t, h, t.TempDir(), "--package="+packageOf(t, "1.0.0"))
	if code, text := l.hook(t, "do=fail&file="+h.tokenFile, ""); code != http.StatusBadGateway || text != `{"error":"plugin webhook failed"}`+"\n" {
		t.Fatalf("failing answers %d %q", code, text)
	}
	failed, _ := l.until(t, "A request failed", "text", "plugin webhook failed")["error"].(string)
	if !strings.Contains(failed, "it is [redacted]") || len(failed) > 9<<10 {
		t.Errorf("the log has an error of %d bytes: %.300s", len(failed), failed)
	}
	l.end(t)
	if strings.Contains(l.log(), podToken) {
		t.Error("the log holds the pod's token")
	}
}

func TestWhatCantRunEndsWithAReason(t *testing.T) {
	h, folder := newHost(t), t.TempDir()
	broken := filepath.Join(folder, "broken")
	writeFile(t, broken, []byte("no package"))
	for name, test := range map[string]struct {
		args []string
		code int
		text string
	}{
		"no plugin":   {nil, 2, "one of --package and --binary is required"},
		"no package":  {[]string{"--package=" + broken}, 1, "pkgtar: not a gzipped tar"},
		"no manifest": {[]string{"--binary=" + pluginBinary}, 2, "--manifest goes with --binary"},
		"no TLS":      {[]string{"--package=" + broken, "--http-tls-cert-file=" + broken, "--http-tls-key-file=" + broken}, 1, "--http-tls-cert-file and --http-tls-key-file: read the serving certificate"},
		"in clear":    {[]string{"--package=" + broken, "--http-listen=:0"}, 2, "a bearer isn't sent in clear"},
	} {
		t.Run(name, func(t *testing.T) {
			l := begin(t, h, nil, append(test.args, "--plugins-dir="+folder)...)
			if code := l.status(t); code != test.code || !strings.Contains(l.log(), test.text) {
				t.Errorf("ends with status %d", code)
			}
		})
	}
}

func TestTheHTTPServerSpeaksTLS(t *testing.T) {
	h := newHost(t)
	l := launch(t, h, t.TempDir(), "--package="+packageOf(t, "1.0.0"), "--http-tls-cert-file="+h.caFile, "--http-tls-key-file="+h.keyFile)
	text, err := os.ReadFile(h.caFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	defer client.CloseIdleConnections()
	answer, err := client.Post("https"+strings.TrimPrefix(l.plugin, "http")+"/webhooks/hook?do=about", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("answers %d", answer.StatusCode)
	}
	if answer, err := http.Get(l.plugin + "/webhooks/hook"); err == nil {
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusBadRequest {
			t.Errorf("in clear it answers %d", answer.StatusCode)
		}
	}
}

// It is told to end while it waits to start a plugin again that fails.
func TestItEndsWhileThePluginFails(t *testing.T) {
	h := newHost(t)
	l := begin(t, h, []string{"SAMPLE_FAILS=1"}, "--plugins-dir="+t.TempDir(), "--package="+packageOf(t, "1.0.0"))
	l.until(t, "The plugin writes", "line", "the sample fails as it was told to")
	l.until(t, "The plugin is started again", "", nil)
	address := l.until(t, "It serves", "server", "health")["address"].(string)
	answer, err := http.Get("http://" + address + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("ready answers %d while nothing runs", answer.StatusCode)
	}
	if code := l.end(t); code != 0 {
		t.Errorf("ends with status %d", code)
	}
}
