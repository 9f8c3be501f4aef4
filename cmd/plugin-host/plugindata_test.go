package main

import (
	"bytes"
	"encoding/base64"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kandev/plugin-host/hostsvc/legacy"
	"github.com/kandev/plugin-host/hostsvc/vault"
)

func TestSecretKeysNeverShowInErrors(t *testing.T) {
	line := func(n byte) string {
		return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{n}, vault.KeySize)) + "\n"
	}
	for name, c := range map[string]struct{ text, says string }{
		"two":       {line(1) + "\n" + line(2), ""},
		"none":      {"", "--secret-key-file: no key"},
		"short":     {line(1) + "c2VjcmV0\n", "--secret-key-file: line 2"},
		"no base64": {"sec ret", "--secret-key-file: line 1"},
		"twice":     {line(1) + line(1), "--secret-key-file: key 2 is given twice"},
		"long":      {strings.Repeat("x", 1<<17), "--secret-key-file: a line is too long"},
	} {
		t.Run(name, func(t *testing.T) {
			s := settings{secretKeyFile: file(t, "keys", c.text)}
			sealed, err := s.vault()
			switch {
			case c.says == "" && (err != nil || sealed == nil), c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
				t.Errorf("got %v, want %q", err, c.says)
			case err != nil && (strings.Contains(err.Error(), "c2VjcmV0") || strings.Contains(err.Error(), "sec ret")):
				t.Errorf("the error holds the key: %v", err)
			}
		})
	}
	s := settings{secretKeyFile: filepath.Join(t.TempDir(), "none")}
	if _, err := s.vault(); err == nil {
		t.Error("a file that isn't there is no fault")
	}
	if sealed, err := (&settings{}).vault(); sealed != nil || err != nil {
		t.Errorf("no file is %v, %v", sealed, err)
	}
	if host := newLegacy(nil, nil, nil); host.Vault != nil {
		t.Error("no keys are a vault")
	}
}

// TestResealerSaysWhenAKeyCanGo and when one is missing.
func TestResealerSaysWhenAKeyCanGo(t *testing.T) {
	s := settings{store: storeSQLite, sqlitePath: filepath.Join(t.TempDir(), "host.db")}
	durable, err := open(t.Context(), s, slog.New(slog.DiscardHandler), func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = durable.Close() })
	ring := func(keys ...byte) *vault.Vault {
		t.Helper()
		var all [][]byte
		for _, n := range keys {
			all = append(all, bytes.Repeat([]byte{n}, vault.KeySize))
		}
		v, err := vault.New(all...)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	caller := legacy.Caller{InstallationID: "i"}
	if err := newLegacy(durable, ring(1), nil).SetSecret(t.Context(), caller, "token", "s3cr3t"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		keys []byte
		says string
	}{
		{[]byte{2}, "sealed by none of the keys"}, {[]byte{2, 1}, "resealed=1"}, {[]byte{2}, "resealed=0"}, {[]byte{1}, "sealed by none of the keys"},
	} {
		var log bytes.Buffer
		if err := resealer(durable, ring(c.keys...), slog.New(slog.NewTextHandler(&log, nil))).Start(t.Context()); err != nil {
			t.Error(err)
		}
		if !strings.Contains(log.String(), c.says) || strings.Contains(log.String(), "s3cr3t") {
			t.Errorf("with %v it says %q, want %q", c.keys, log.String(), c.says)
		}
	}
	value, found, err := newLegacy(durable, ring(2), nil).GetSecret(t.Context(), caller, "token")
	if value != "s3cr3t" || !found || err != nil {
		t.Errorf("it opens as %q, %t, %v", value, found, err)
	}
}
