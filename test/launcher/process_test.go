package launcher_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/kandev/plugin-host/launcher/process"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

func config(t *testing.T, program string) process.Config {
	t.Helper()
	sockets, err := os.MkdirTemp("/tmp", "s") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	return process.Config{
		Program: program, Dir: t.TempDir(), Env: process.Environment(os.Environ(), t.TempDir()), SocketDir: sockets,
		Host: grpc.NewServer,
		Log:  slog.New(slog.DiscardHandler), Secrets: func() []string { return nil },
	}
}

// A plugin that stands still fails its pings, and is killed when it is closed.
func TestAFrozenPluginIsKilled(t *testing.T) {
	p, err := process.Start(t.Context(), config(t, pluginBinary))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Ping(t.Context()); err != nil {
		t.Errorf("a plugin that runs: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := pluginv1.NewPluginClient(p.Conn()).HandleWebhook(ctx, &pluginv1.WebhookRequest{Query: "do=freeze"}); err == nil {
		t.Error("a frozen plugin answers")
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := p.Ping(ctx); err == nil {
		t.Error("a frozen plugin answers a ping")
	}
	begin := time.Now()
	p.Close()
	p.Close()
	select {
	case <-p.Done():
	default:
		t.Error("a closed plugin still runs")
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestAPluginEndsWhenItIsAsked(t *testing.T) {
	p, err := process.Start(t.Context(), config(t, pluginBinary))
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	<-p.Done()
	if err := p.Err(); err != nil {
		t.Errorf("it was killed: %v", err)
	}
}

func TestWhatIsNoPluginDoesntStart(t *testing.T) {
	script := func(text string) string {
		name := filepath.Join(t.TempDir(), "script")
		if err := os.WriteFile(name, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for name, program := range map[string]string{
		"ends at once":           script("exit 1"),
		"says nonsense":          script("echo nonsense; sleep 600"),
		"another version":        script("echo '1|2|unix|/tmp/x|grpc|'; sleep 600"),
		"another protocol":       script("echo '1|1|unix|/tmp/x|netrpc|'; sleep 600"),
		"isn't there":            "/nowhere/at/all",
		"says nonsense for ever": script("exec yes nonsense"),
		"a line without an end":  script("yes nonsense | tr -d '\\n'"),
	} {
		t.Run(name, func(t *testing.T) {
			if p, err := process.Start(t.Context(), config(t, program)); err == nil {
				p.Close()
				t.Error("it was started")
			}
		})
	}
	silent := config(t, script("exec sleep 600"))
	silent.StartTimeout = 100 * time.Millisecond
	if _, err := process.Start(t.Context(), silent); err == nil {
		t.Error("what says nothing was started")
	}
	loud := config(t, script("exec yes nonsense >&2"))
	loud.StartTimeout = 500 * time.Millisecond
	if _, err := process.Start(t.Context(), loud); err == nil {
		t.Error("what only complains was started")
	}
	silent.StartTimeout = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := process.Start(ctx, silent); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a start that is broken off: %v", err)
	}
	long := config(t, pluginBinary)
	long.SocketDir = "/tmp/" + string(make([]byte, 100))
	if _, err := process.Start(t.Context(), long); err == nil {
		t.Error("a folder was taken in which no socket can have a name")
	}
}

// A plugin that says where it serves, and isn't there for the launcher, is ended in a
// bounded time and told of: nobody waits for it for ever.
func TestAPluginThatDoesntTakeTheHostDoesntStart(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	writeFile(t, script, []byte("#!/bin/sh\necho '1|1|unix|/tmp/nowhere-at-all|grpc|'; exec sleep 600\n"))
	if err := os.Chmod(script, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, program := range map[string]string{"no socket": script, "nobody answers at the socket": pluginBinary} {
		t.Run(name, func(t *testing.T) {
			config := config(t, program)
			config.Env = append(config.Env, "SAMPLE_SILENT="+filepath.Join(config.SocketDir, "silent"))
			config.StartTimeout = 3 * time.Second
			ended := make(chan error, 1)
			go func() {
				p, err := process.Start(t.Context(), config)
				if err == nil {
					p.Close()
				}
				ended <- err
			}()
			select {
			case err := <-ended:
				if err == nil {
					t.Error("it was started")
				}
			case <-time.After(patience):
				t.Fatal("it is waited for")
			}
		})
	}
}
