package certificate_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kandev/plugin-host/hostsvc/certificate"
)

// write makes a certificate that lives from an hour before now until ends.
func write(t *testing.T, dir string, now, ends time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: ends}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUserAsk38_ReadinessEndsBeforeTheCertificate: it is told before clients
// refuse, and ends with the rotation, without a restart.
func TestUserAsk38_ReadinessEndsBeforeTheCertificate(t *testing.T) {
	const left = time.Minute
	dir := t.TempDir()
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	write(t, dir, now, now.Add(time.Hour))
	files, err := certificate.Load(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"),
		func() time.Time { return now }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := files.Check(left); err != nil {
		t.Errorf("an hour before its end: %v", err)
	}
	now = now.Add(59*time.Minute + time.Second)
	if err := files.Check(left); err == nil || !strings.Contains(err.Error(), "2026-05-04T04:02:01Z") {
		t.Errorf("got %v, want it to tell when the certificate ends", err)
	}
	first, err := files.Get(nil)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, now, now.Add(2*time.Hour))
	now = now.Add(10 * time.Second)
	if err := files.Check(left); err != nil {
		t.Errorf("after its rotation: %v", err)
	}
	second, err := files.Get(nil)
	if err != nil || second == first {
		t.Errorf("the old certificate is served: %v", err)
	}
	if want := now.Add(2*time.Hour - 10*time.Second); !files.Ends().Equal(want) {
		t.Errorf("it ends at %v, want %v", files.Ends(), want)
	}
}
