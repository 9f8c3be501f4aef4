package sdk

import (
	"context"
	"net"

	"google.golang.org/grpc"
)

// WithDialer lets a test connect over memory, so that time is the bubble's.
func WithDialer(dial func(ctx context.Context, address string) (net.Conn, error)) Option {
	return func(s *settings) { s.dial = dial }
}

// WithDialOptions lets a test stand in the way of the connection.
func WithDialOptions(options ...grpc.DialOption) Option {
	return func(s *settings) { s.dialOptions = options }
}
