package rpc

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificateCheck is how long a loaded certificate is used before its files
// are looked at again.
const certificateCheck = 5 * time.Second

// certificates serves the certificate in two files and loads it again when
// they change, so that a rotated Secret needs no restart. While the new files
// can't be used, the old certificate is kept.
type certificates struct {
	certFile, keyFile string
	now               func() time.Time
	log               *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	stamp   [2]fileStamp
	checked time.Time
}

type fileStamp struct {
	modified time.Time
	size     int64
}

func loadCertificates(certFile, keyFile string, now func() time.Time, log *slog.Logger) (*certificates, error) {
	c := &certificates{certFile: certFile, keyFile: keyFile, now: now, log: log}
	if err := c.load(); err != nil {
		return nil, fmt.Errorf("load the serving certificate: %w", err)
	}
	return c, nil
}

// get is a tls.Config's GetCertificate.
func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); now.Sub(c.checked) >= certificateCheck {
		c.checked = now
		if err := c.load(); err != nil {
			c.log.ErrorContext(context.Background(), "the serving certificate has changed and can't be used; the old one stays", "error", err)
		}
	}
	return c.current, nil
}

// load reads the files if they are others than those in use. The stamp is
// taken before, so that a change in between is found the next time.
func (c *certificates) load() error {
	var stamp [2]fileStamp
	for i, path := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("look at the file: %w", err)
		}
		stamp[i] = fileStamp{modified: info.ModTime(), size: info.Size()}
	}
	if c.current != nil && stamp == c.stamp {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("read the key pair: %w", err)
	}
	c.current, c.stamp = &pair, stamp
	return nil
}
