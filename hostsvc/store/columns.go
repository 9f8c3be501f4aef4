package store

import (
	"encoding/json"
	"strings"
	"time"
)

// nanos and micros are the stored forms of an instant: NULL for none. Expiry
// dates lie beyond the range of nanoseconds.
func nanos(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixNano()
}

func micros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

func nanoTime(r Row, column int) time.Time {
	if r.Null(column) {
		return time.Time{}
	}
	return time.Unix(0, r.Int(column)).UTC()
}

func microTime(r Row, column int) time.Time {
	if r.Null(column) {
		return time.Time{}
	}
	return time.UnixMicro(r.Int(column)).UTC()
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// clean makes a text of people storable in every database: no NUL.
func clean(text string) string { return strings.ReplaceAll(text, "\x00", "\uFFFD") }

func nullable(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// encodeDetails and decodeDetails are the stored form of what a row holds beside
// its columns: a JSON object, "" for an empty one.
func encodeDetails(details any) (string, error) {
	text, err := json.Marshal(details)
	if err != nil {
		return "", err //nolint:wrapcheck // the caller says of what
	}
	if string(text) == "{}" {
		return "", nil
	}
	return string(text), nil
}

func decodeDetails(r Row, column int, details any) error {
	text := r.Text(column)
	if text == "" {
		return nil
	}
	return json.Unmarshal([]byte(text), details) //nolint:wrapcheck // the caller says of what
}
