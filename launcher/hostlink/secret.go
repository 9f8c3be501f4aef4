package hostlink

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

const (
	// maxSecretBytes bounds a secret's file.
	maxSecretBytes = 16 << 10
	// remembered is how many values of a rotating secret are still known.
	remembered = 4
)

// Secret is a value in a file that may be replaced at any time. It is safe for
// concurrent use. Its text is never part of an error.
type Secret struct {
	path string

	mu   sync.Mutex
	seen []string // the newest last
}

// NewSecret names the file; what is wrong with it, Read tells.
func NewSecret(path string) *Secret { return &Secret{path: path} }

// Read returns the value, without white space around it.
func (s *Secret) Read() (string, error) {
	info, err := os.Stat(s.path)
	if err != nil {
		return "", fmt.Errorf("look at the secret's file: %w", err)
	}
	if info.Size() > maxSecretBytes {
		return "", fmt.Errorf("%s is larger than %d bytes", s.path, maxSecretBytes)
	}
	text, err := os.ReadFile(s.path)
	if err != nil {
		return "", fmt.Errorf("read the secret's file: %w", err)
	}
	value := strings.TrimSpace(string(text))
	switch {
	case value == "":
		return "", fmt.Errorf("%s is empty", s.path)
	case strings.ContainsAny(value, " \t\r\n\x00"):
		return "", errors.New(s.path + " holds more than one value")
	}
	s.remember(value)
	return value, nil
}

func (s *Secret) remember(value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.seen, value) {
		return
	}
	// A copy: Values has given the slice away.
	s.seen = append(slices.Clone(s.seen), value)
	if len(s.seen) > remembered {
		s.seen = s.seen[1:]
	}
}

// Values are the values that were read lately: what must not be written
// anywhere. It reads the file too, as what is in it now was perhaps not used yet.
func (s *Secret) Values() []string {
	_, _ = s.Read() // what can't be read can't be told
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// Is says whether a value is the secret. It takes the same time for any value.
func (s *Secret) Is(value string) bool {
	want, err := s.Read()
	if err != nil {
		return false
	}
	a, b := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(value))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
