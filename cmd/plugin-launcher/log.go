package main

import (
	"context"
	"io"
	"log/slog"
	"strings"

	"golang.org/x/time/rate"
)

// maxTextBytes is where a text is cut in the log: one of the plugin's errors can be
// as long as its messages.
const maxTextBytes = 8 << 10

// newLog returns a log without the values of secrets, whoever says them: errors are
// often the plugin's own words, and it can read what the launcher can.
func newLog(out io.Writer, secrets func() []string) *slog.Logger {
	return slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		var text string
		switch value := a.Value.Any().(type) {
		case string:
			text = value
		case error:
			text = value.Error()
		default: // numbers and times
			return a
		}
		for _, secret := range secrets() {
			text = strings.ReplaceAll(text, secret, "[redacted]")
		}
		if len(text) > maxTextBytes {
			text = strings.ToValidUTF8(text[:maxTextBytes], "") + "…"
		}
		return slog.String(a.Key, text)
	}}))
}

// complaints log what a server says of connections, of TLS that fails for instance.
// How many there are strangers decide, and not how many are logged.
type complaints struct {
	slog.Handler
	limit *rate.Limiter
}

func complaintsTo(log *slog.Logger) complaints {
	const perSecond, atOnce = 1, 20
	return complaints{log.Handler(), rate.NewLimiter(perSecond, atOnce)}
}

// Handle implements slog.Handler.
func (c complaints) Handle(ctx context.Context, r slog.Record) error {
	if !c.limit.Allow() {
		return nil
	}
	return c.Handler.Handle(ctx, r) //nolint:wrapcheck // a handler's error is its own
}
