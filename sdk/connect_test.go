package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
	"github.com/kandev/plugin-host/sdk"
)

func newLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func TestConnectReadsThePodsEnvironment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{accepts: "first-token"}
		here := start(t, p)
		t.Setenv(sdk.EnvAddress, here.address)
		t.Setenv(sdk.EnvCAFile, here.caFile)
		t.Setenv(sdk.EnvTokenFile, here.tokenFile)
		host, err := sdk.Connect(t.Context(), sdk.WithDialer(here.dial))
		if err != nil {
			t.Fatal(err)
		}
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestConnectNamesWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here := start(t, &peer{})
		other := filepath.Join(t.TempDir(), "other.crt")
		if _, err := newCertificate(other); err != nil {
			t.Fatal(err)
		}
		empty := filepath.Join(t.TempDir(), "empty")
		if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		two := filepath.Join(t.TempDir(), "two")
		if err := os.WriteFile(two, []byte("one\ntwo\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			option sdk.Option
			text   string
		}{
			"no address":     {sdk.WithAddress(""), sdk.EnvAddress},
			"no port":        {sdk.WithAddress("plugin-host"), "host:port"},
			"empty port":     {sdk.WithAddress("plugin-host:"), "host:port"},
			"no CA":          {sdk.WithCAFile("/nowhere/ca.crt"), sdk.EnvCAFile},
			"no certificate": {sdk.WithCAFile(here.tokenFile), "no PEM certificate"},
			"no token":       {sdk.WithTokenFile("/nowhere/token"), sdk.EnvTokenFile},
			"empty token":    {sdk.WithTokenFile(empty), "is empty"},
			"two tokens":     {sdk.WithTokenFile(two), "more than a token"},
			"interval":       {sdk.WithPollInterval(0), "poll interval"},
			"attempts":       {sdk.WithAttempts(0), "attempts"},
			"another's CA":   {sdk.WithCAFile(other), "certificate"},
			"another's name": {sdk.WithAddress("elsewhere.test:8443"), "certificate"},
		} {
			host, err := here.try(t, sdk.WithAttempts(1), c.option)
			if err == nil {
				_ = host.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: error is %v, want %q in it", name, err, c.text)
			}
		}
	})
}

func TestRotatedTokenIsUsedWithoutAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{accepts: "first-token"}
		here := start(t, p)
		host := here.connect(t, sdk.WithPollInterval(time.Hour))
		here.project(t, "second-token")
		p.set(func(p *peer) { p.accepts, p.tokens = "second-token", nil })
		pass(time.Second)
		if _, err := host.Context(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(p.tokens, []string{"Bearer second-token"}) {
			t.Errorf("tokens sent: %q", p.tokens)
		}
	})
}

// Within the second in which the file isn't looked at, the Host's refusal is
// what tells.
func TestRefusedTokenIsReadAgainOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := &creations{answers: []*pluginv1.HostCommandResult{result(wireStates[contract.StateApplied], "")}}
		p := &peer{accepts: "first-token", onCreate: script.answer}
		here := start(t, p)
		host := here.connect(t, sdk.WithPollInterval(time.Hour))
		here.project(t, "second-token")
		p.set(func(p *peer) { p.accepts, p.tokens = "second-token", nil })
		if _, err := create(t, host); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(p.tokens, []string{"Bearer first-token", "Bearer second-token"}) {
			t.Errorf("tokens sent: %q", p.tokens)
		}

		// The same token again proves nothing new.
		p.set(func(p *peer) { p.accepts, p.tokens = "nobody's", nil })
		_, err := create(t, host)
		refused, ok := errors.AsType[*sdk.UnauthenticatedError](err)
		if !ok || refused.TokenFile != here.tokenFile || refused.Method != "CreateTaskExact" ||
			refused.Message != "who is this?" {
			t.Errorf("error is %v", err)
		}
		if !slices.Equal(p.tokens, []string{"Bearer second-token"}) {
			t.Errorf("tokens sent: %q", p.tokens)
		}
		// Nor is a second refusal answered by a third try.
		here.project(t, "third-token")
		p.set(func(p *peer) { p.tokens = nil })
		_, err = create(t, host)
		if _, ok := errors.AsType[*sdk.UnauthenticatedError](err); !ok {
			t.Errorf("error is %v", err)
		}
		if !slices.Equal(p.tokens, []string{"Bearer second-token", "Bearer third-token"}) {
			t.Errorf("tokens sent: %q", p.tokens)
		}
		if strings.Contains(err.Error(), "third-token") {
			t.Errorf("a token is shown: %v", err)
		}
	})
}

func TestTokenThatVanishesForAMomentIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{accepts: "first-token"}
		here := start(t, p)
		var log strings.Builder
		host := here.connect(t, sdk.WithPollInterval(time.Hour), sdk.WithLogger(newLog(&log)))
		if err := os.Remove(here.tokenFile); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		if _, err := host.Context(t.Context()); err != nil {
			t.Error(err)
		}
		if !strings.Contains(log.String(), "using the last one") || strings.Contains(log.String(), "first-token") {
			t.Errorf("log is %s", log.String())
		}
	})
}

// A plugin outlives the CA of the Host: the next connection trusts what the
// file holds by then, and a file that can't be used for a moment costs nothing.
func TestRotatedCAIsTrustedByTheNextConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := start(t, &peer{}), start(t, &peer{})
		var mu sync.Mutex
		target := before.dial
		var conns []net.Conn
		here := before
		here.dial = func(ctx context.Context, address string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			conn, err := target(ctx, address)
			conns = append(conns, conn)
			return conn, err
		}
		host := here.connect(t, sdk.WithPollInterval(time.Hour))
		cut := func() {
			mu.Lock()
			defer mu.Unlock()
			for _, conn := range conns {
				_ = conn.Close() // gRPC closes it too
			}
			conns = nil
		}

		trusted, err := os.ReadFile(before.caFile)
		if err != nil {
			t.Fatal(err)
		}
		for _, content := range []string{"", "half a certifi", string(trusted)} {
			if err := os.WriteFile(here.caFile, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			cut()
			if _, err := host.Context(t.Context()); err != nil {
				t.Errorf("with a CA file of %d bytes: %v", len(content), err)
			}
		}

		mu.Lock()
		target = after.dial
		mu.Unlock()
		cut()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := host.Context(ctx); err == nil {
			t.Error("a Host of a CA that is not in the file was trusted")
		}
		next, err := os.ReadFile(after.caFile)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(here.caFile, next, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := host.Context(t.Context()); err != nil {
			t.Errorf("after the CA was replaced: %v", err)
		}
	})
}

// The context of a plugin that ten thousand workspaces have approved is longer
// than gRPC's own bound.
func TestConnectTakesALongContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		standing := &pluginv1.GetCapabilityContextResponse{ContractVersion: contract.ContractVersion, ContextRevision: 1}
		for i := range 10_000 {
			standing.Workspaces = append(standing.Workspaces, &pluginv1.WorkspaceCapabilityContext{
				WorkspaceId: fmt.Sprint("team-", i), State: "active", CapabilityRevision: 1,
				CapabilityIds: contract.AllCapabilities.IDs(), ManifestDigest: strings.Repeat("d", 67),
			})
		}
		host := start(t, &peer{standing: standing}).connect(t)
		got, err := host.Context(t.Context())
		if err != nil || len(got.GetWorkspaces()) != 10_000 {
			t.Errorf("%d workspaces, %v", len(got.GetWorkspaces()), err)
		}
	})
}
