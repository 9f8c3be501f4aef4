package authority

import (
	"encoding/base32"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// actSuffixLength is the length of an act's random part, in base32 characters.
const actSuffixLength = 6

// NewActSuffix draws the unpredictable part of an act's name. It must not be
// guessable: a refused approval that carried a future name would lie in wait.
func NewActSuffix(random io.Reader) (string, error) {
	var raw [5]byte
	if _, err := io.ReadFull(random, raw[:]); err != nil {
		return "", fmt.Errorf("draw the random part of an act's name: %w", err)
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(raw[:]))[:actSuffixLength], nil
}

// ActName is the name of the act recorded by a revision.
func ActName(revision uint64, suffix string) string {
	return strconv.FormatUint(revision, 10) + "-" + suffix
}
