// Package certificate serves the key pair in two files, as every TLS listener
// of this process does, and follows its rotation. It imports nothing of this
// module.
package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// check is how long a loaded certificate is used before its files are looked
// at again.
const check = 5 * time.Second

// Files serves the certificate in two PEM files and loads it again when they
// change, so that a rotated Secret needs no restart. While the new files can't
// be used, the old certificate is kept. It is safe for concurrent use.
type Files struct {
	certFile, keyFile string
	now               func() time.Time
	log               *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	leaf    *x509.Certificate
	stamp   [2]fileStamp
	checked time.Time
}

type fileStamp struct {
	modified time.Time
	size     int64
}

// Load reads the files; it fails where they can't be used.
func Load(certFile, keyFile string, now func() time.Time, log *slog.Logger) (*Files, error) {
	f := &Files{certFile: certFile, keyFile: keyFile, now: now, log: log}
	if err := f.load(); err != nil {
		return nil, fmt.Errorf("load the serving certificate: %w", err)
	}
	return f, nil
}

// Get is a tls.Config's GetCertificate.
func (f *Files) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renew()
	return f.current, nil
}

// Check is an error when the certificate ends within the time that is left for
// its rotation: clients are about to refuse it.
func (f *Files) Check(left time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renew()
	if ends := f.leaf.NotAfter; f.now().Add(left).After(ends) {
		return fmt.Errorf("the serving certificate ends at %s", ends.UTC().Format(time.RFC3339))
	}
	return nil
}

// Ends is the last moment of the certificate in use.
func (f *Files) Ends() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renew()
	return f.leaf.NotAfter
}

// renew is called with mu held.
func (f *Files) renew() {
	now := f.now()
	if now.Sub(f.checked) < check {
		return
	}
	f.checked = now
	if err := f.load(); err != nil {
		f.log.Error("the serving certificate has changed and can't be used; the old one stays", "error", err)
	}
}

// load reads the files if they are others than those in use. The stamp is
// taken before, so that a change in between is found the next time.
func (f *Files) load() error {
	var stamp [2]fileStamp
	for i, path := range []string{f.certFile, f.keyFile} {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("look at the file: %w", err)
		}
		stamp[i] = fileStamp{modified: info.ModTime(), size: info.Size()}
	}
	if f.current != nil && stamp == f.stamp {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(f.certFile, f.keyFile)
	if err != nil {
		return fmt.Errorf("read the key pair: %w", err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return fmt.Errorf("read the certificate: %w", err)
	}
	f.current, f.leaf, f.stamp = &pair, leaf, stamp
	return nil
}
