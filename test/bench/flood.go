package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/store/sqlite"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

const (
	// floodRate is how many bad tokens are sent in a second, on floodConnections
	// by floodSenders.
	floodRate        = 10_000
	floodConnections = 4
	floodSenders     = 64
	// floodTokens are made before anything is measured. They come again after two
	// seconds; of the forged ones no two are alike within their memory.
	floodTokens = 4 * 20_000
	// goodRate is how many calls the good client makes in a second, with at most
	// goodInFlight at once.
	goodRate     = 250
	goodInFlight = 16
)

// measureFlood measures what 10,000 bad tokens a second cost a client with a
// good one: the 99th percentile of its reads, in the same process as the flood's
// senders, the Host and, in the issuer's place, the API server, against the same
// without the flood.
func measureFlood(ctx context.Context, m *measurement) error {
	b, err := newBench()
	if err != nil {
		return err
	}
	return b.close(m.flood(ctx, b))
}

func (m *measurement) flood(ctx context.Context, b *bench) error {
	// Its log would say ten times a second that it is flooded.
	b.config.Log = slog.New(slog.DiscardHandler)
	engine, err := sqlite.Open(filepath.Join(b.dir, "host.db"))
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	h, err := b.start(ctx, engine, true)
	if err != nil {
		return err
	}
	bad, err := b.badTokens()
	if err != nil {
		return err
	}
	flooders := make([]pluginv1.HostClient, floodConnections)
	for i := range flooders {
		if flooders[i], err = b.anonymous(h.address); err != nil {
			return err
		}
	}
	f := &flood{clients: flooders, tokens: bad}
	var ratios, quiet, flooded []float64
	sent := int64(0)
	for range m.pairs {
		before, err := m.goodReads(ctx, h.client)
		if err != nil {
			return err
		}
		stop := f.begin(ctx)
		during, err := m.goodReads(ctx, h.client)
		n, floodErr := stop()
		if err != nil {
			return err
		}
		if floodErr != nil {
			return floodErr
		}
		sent += n
		ratios = append(ratios, during.Seconds()/before.Seconds())
		quiet, flooded = append(quiet, 1e3*before.Seconds()), append(flooded, 1e3*during.Seconds())
	}
	rate := float64(sent) / (float64(m.pairs) * m.slice.Seconds())
	fmt.Printf("flooded on sqlite, %d reads a second, %d rounds of %v: p99 of a read %.2f ms quiet, %.2f ms beside %.0f bad tokens a second\n",
		goodRate, m.pairs, m.slice, median(quiet), median(flooded), rate)
	if rate < 0.9*floodRate {
		return fmt.Errorf("only %.0f bad tokens a second were sent: the machine is too busy to tell", rate)
	}
	m.report(figure{name: "token_flood_good_client_p99", value: median(ratios), unit: "ratio", atMost: bar(2)})
	return nil
}

// goodReads reads at a steady rate for one slice and returns the 99th percentile
// of how long an answer took from the moment that it was due to be asked for: a
// read that waits for those before it waits for the Host.
func (m *measurement) goodReads(ctx context.Context, client pluginv1.HostClient) (time.Duration, error) {
	reads := int(m.slice * goodRate / time.Second)
	took := make([]time.Duration, reads)
	var failures [goodInFlight]error
	var next atomic.Int64
	var readers sync.WaitGroup
	begun := time.Now()
	for r := range goodInFlight {
		readers.Go(func() {
			timer := time.NewTimer(0)
			defer timer.Stop()
			for i := int(next.Add(1)) - 1; i < reads && failures[r] == nil; i = int(next.Add(1)) - 1 {
				due := begun.Add(time.Duration(i) * time.Second / goodRate)
				timer.Reset(time.Until(due))
				<-timer.C
				_, failures[r] = client.GetTaskExact(ctx, &pluginv1.GetTaskExactRequest{
					RequestId: "5b2f3c1e-0f6e-4a55-a6b4-6f6c5d2f9a01", WorkspaceId: workspaceID, TaskId: taskID(i % tasks), CapabilityRevision: 1,
				})
				took[i] = time.Since(due)
			}
		})
	}
	readers.Wait()
	for _, err := range failures {
		if err != nil {
			return 0, fmt.Errorf("a good client's read: %w", err)
		}
	}
	slices.Sort(took)
	return took[len(took)*99/100], nil
}

// badTokens are of four kinds, in turn: malformed, expired, for another
// audience, and right in everything but the signature.
func (b *bench) badTokens() ([]string, error) {
	good, err := b.issuer.token(approved)
	if err != nil {
		return nil, err
	}
	expired, err := b.issuer.sign(approved, claimed{audience: contract.Audience, expires: time.Now().Add(-time.Minute)})
	if err != nil {
		return nil, err
	}
	elsewhere, err := b.issuer.sign(approved, claimed{audience: "another.example", expires: time.Now().Add(time.Hour)})
	if err != nil {
		return nil, err
	}
	tokens := make([]string, floodTokens)
	for i := range tokens {
		random := make([]byte, 64)
		if _, err := rand.Read(random); err != nil {
			return nil, fmt.Errorf("make a signature up: %w", err)
		}
		signature := base64.RawURLEncoding.EncodeToString(random)
		switch i % 4 {
		case 0:
			tokens[i] = good[:len(good)/2] + signature
		case 1:
			tokens[i] = unsigned(expired) + signature
		case 2:
			tokens[i] = unsigned(elsewhere) + signature
		default:
			tokens[i] = unsigned(good) + signature
		}
	}
	return tokens, nil
}

// unsigned is a token up to its signature.
func unsigned(token string) string { return token[:strings.LastIndexByte(token, '.')+1] }

// flood sends bad tokens at a steady rate.
type flood struct {
	clients []pluginv1.HostClient
	tokens  []string
	next    atomic.Int64
}

// begin floods until it is stopped, and returns how many tokens were sent. One
// that is accepted is an error.
func (f *flood) begin(ctx context.Context) (stop func() (int64, error)) {
	ctx, cancel := context.WithCancel(ctx)
	var sent, slot atomic.Int64
	var accepted atomic.Pointer[error]
	var senders sync.WaitGroup
	begun := time.Now()
	for s := range floodSenders {
		client := f.clients[s%len(f.clients)]
		senders.Go(func() {
			timer := time.NewTimer(0)
			defer timer.Stop()
			for {
				due := begun.Add(time.Duration(slot.Add(1)) * time.Second / floodRate)
				timer.Reset(time.Until(due))
				select {
				case <-timer.C:
				case <-ctx.Done():
					return
				}
				token := f.tokens[int(f.next.Add(1))%len(f.tokens)]
				_, err := client.GetTaskExact(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token), &pluginv1.GetTaskExactRequest{})
				switch status.Code(err) {
				case codes.Unauthenticated, codes.Unavailable, codes.Canceled:
					sent.Add(1)
				default:
					err = fmt.Errorf("a bad token was answered %w", err)
					accepted.Store(&err)
				}
			}
		})
	}
	return func() (int64, error) {
		cancel()
		senders.Wait()
		if err := accepted.Load(); err != nil {
			return sent.Load(), *err
		}
		return sent.Load(), nil
	}
}
