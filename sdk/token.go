package sdk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// tokenCheckInterval bounds how often the token's file is looked at.
const tokenCheckInterval = time.Second

// UnauthenticatedError says that the Host knows no installation for the token:
// it is expired, for another audience, of a pod or ServiceAccount that is gone,
// or of a ServiceAccount that no installation names. The Host tells no more.
// Nothing was done.
type UnauthenticatedError struct {
	Method string
	// TokenFile is where the token came from.
	TokenFile string
	// Message is the Host's text.
	Message string
}

func (e *UnauthenticatedError) Error() string {
	return fmt.Sprintf("%s: the Host does not accept the token in %s: %s", e.Method, e.TokenFile, e.Message)
}

// tokenFile is a token that the kubelet replaces before it expires.
type tokenFile struct {
	path string
	log  *slog.Logger

	mu      sync.Mutex
	token   string
	info    os.FileInfo // of the file that token was read from
	checked time.Time
}

// current returns the token, read again if the file changed. It looks at the
// file at most once in tokenCheckInterval.
func (t *tokenFile) current() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token != "" && time.Since(t.checked) < tokenCheckInterval {
		return t.token, nil
	}
	return t.look(false)
}

// reread returns what the file holds now.
func (t *tokenFile) reread() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.look(true)
}

// look keeps the token it has when the file can't be read: a token that is
// still good must not be lost to a moment in its replacement, and one that
// isn't any more is the Host's to refuse.
func (t *tokenFile) look(evenIfUnchanged bool) (string, error) {
	t.checked = time.Now()
	// Looked at before reading: a file replaced in between is read again.
	info, err := os.Stat(t.path)
	if err == nil && !evenIfUnchanged && t.unchanged(info) {
		return t.token, nil
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(t.path)
	}
	token := strings.TrimSpace(string(text))
	if err == nil && token == "" {
		err = fmt.Errorf("%s is empty", t.path)
	}
	if err == nil && strings.ContainsAny(token, " \t\r\n\x00") {
		err = fmt.Errorf("%s holds more than a token", t.path)
	}
	switch {
	case err == nil:
		t.token, t.info = token, info
		return token, nil
	case t.token != "":
		t.log.Warn("The token can't be read again; using the last one.", "error", err)
		return t.token, nil
	default:
		return "", err
	}
}

func (t *tokenFile) unchanged(info os.FileInfo) bool {
	return t.info != nil && os.SameFile(t.info, info) &&
		t.info.ModTime().Equal(info.ModTime()) && t.info.Size() == info.Size()
}

// bearer sends one token with one call.
type bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if b == "" {
		return nil, errors.New("no token")
	}
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity makes gRPC refuse to send the token in clear.
func (bearer) RequireTransportSecurity() bool { return true }
