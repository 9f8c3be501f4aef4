package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kandev/plugin-host/launcher/hostlink"
)

func TestTheLogHoldsNoSecretWhoeverSaysIt(t *testing.T) {
	const secret = `s3"cret\`
	inside := strings.Repeat("x", maxTextBytes-5) + secret
	for name, log := range map[string]func(*bytes.Buffer){
		"a message": func(b *bytes.Buffer) { newLog(b, one(secret)).Info("it is " + secret) },
		"a text":    func(b *bytes.Buffer) { newLog(b, one(secret)).Info("m", "text", secret+secret) },
		"an error": func(b *bytes.Buffer) {
			newLog(b, one(secret)).Error("m", "error", fmt.Errorf("ask: %w", errors.New(secret)))
		},
		"a logger's own text":     func(b *bytes.Buffer) { newLog(b, one(secret)).With("of", secret).Info("m") },
		"a group":                 func(b *bytes.Buffer) { newLog(b, one(secret)).WithGroup("g").Info("m", "text", secret) },
		"where the text is cut":   func(b *bytes.Buffer) { newLog(b, one(secret)).Info("m", "text", inside) },
		"an error that is joined": func(b *bytes.Buffer) { newLog(b, one(secret)).Info("m", "error", errors.Join(errors.New(secret))) },
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			log(&b)
			if strings.Contains(b.String(), "s3") || !strings.Contains(b.String(), "[red") {
				t.Errorf("it holds %s", b.String())
			}
			if b.Len() > maxTextBytes+1000 {
				t.Errorf("it has %d bytes", b.Len())
			}
		})
	}
}

func one(secret string) func() []string { return func() []string { return []string{secret} } }

func TestTheLogCutsWhatIsLong(t *testing.T) {
	var b bytes.Buffer
	newLog(&b, func() []string { return nil }).Info("m", "error", errors.New(strings.Repeat("é", 1<<20)), "n", 7)
	if b.Len() > maxTextBytes+1000 || !strings.Contains(b.String(), `é…"`) || !strings.Contains(b.String(), `"n":7`) || !strings.Contains(b.String(), `"level":"INFO"`) {
		t.Errorf("%d bytes: %.200s", b.Len(), b.String())
	}
}

func TestComplaintsOfConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		to := slog.NewLogLogger(complaintsTo(newLog(&b, func() []string { return nil })), slog.LevelWarn)
		for range 100 {
			to.Print("TLS handshake error\n")
		}
		time.Sleep(3 * time.Second) //nolint:forbidigo // the bubble's time
		for range 100 {
			to.Print("TLS handshake error\n")
		}
		if n := strings.Count(b.String(), `"msg":"TLS handshake error"`); n != 23 {
			t.Errorf("%d were logged", n)
		}
	})
}

// A secret that another begins with leaves nothing of the other.
func TestSecretsAreTakenOutTheLongestFirst(t *testing.T) {
	file := func(text string) *hostlink.Secret {
		name := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return hostlink.NewSecret(name)
	}
	known := secrets{token: file("s3cret"), platform: file("s3cret-and-longer")}
	var b bytes.Buffer
	newLog(&b, known.values).Info("it is s3cret-and-longer, not s3cret")
	if strings.Contains(b.String(), "longer") || strings.Contains(b.String(), "s3cret") {
		t.Errorf("it holds %s", b.String())
	}
}
