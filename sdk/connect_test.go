package sdk_test

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
