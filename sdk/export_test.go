package sdk

import (
	"context"
	"net"
)

// WithDialer lets a test connect over memory, so that time is the bubble's.
func WithDialer(dial func(ctx context.Context, address string) (net.Conn, error)) Option {
	return func(s *settings) { s.dial = dial }
}
