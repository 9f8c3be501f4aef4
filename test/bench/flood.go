package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
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
// good one: the 99th percentile of its reads, in the same process as the Host and,
// in the issuer's place, the API server, against the same without the flood. Who
// floods is a process of its own on the same machine: its garbage is not the Host's.
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
	f, err := b.flooder(ctx, h.address, bad)
	if err != nil {
		return err
	}
	var ratios, quiet, flooded []float64
	sent := int64(0)
	for range m.pairs {
		before, err := m.goodReads(ctx, h.client)
		if err != nil {
			return err
		}
		if err := f.begin(); err != nil {
			return err
		}
		during, err := m.goodReads(ctx, h.client)
		n, floodErr := f.end()
		if err := errors.Join(err, floodErr); err != nil {
			return err
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

// flooder is the process that floods.
type flooder struct {
	orders  io.Writer
	answers *bufio.Scanner
}

// The process's orders, one a line; it answers each with a line.
const (
	orderBegin = "begin"
	orderEnd   = "end"
)

// flooder starts the process, which ends with its standard input.
func (b *bench) flooder(ctx context.Context, address string, tokens []string) (*flooder, error) {
	if err := os.WriteFile(filepath.Join(b.dir, "tokens"), []byte(strings.Join(tokens, "\n")), 0o600); err != nil {
		return nil, fmt.Errorf("write the bad tokens: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	process := exec.CommandContext(ctx, self, "-flood", address, "-flood-folder", b.dir)
	process.Stderr = os.Stderr
	orders, err := process.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("connect to the flood: %w", err)
	}
	answers, err := process.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("connect to the flood: %w", err)
	}
	if err := process.Start(); err != nil {
		return nil, fmt.Errorf("start the flood: %w", err)
	}
	b.later(func() error {
		if err := errors.Join(orders.Close(), process.Wait()); err != nil {
			return fmt.Errorf("end the flood: %w", err)
		}
		return nil
	})
	return &flooder{orders: orders, answers: bufio.NewScanner(answers)}, nil
}

func (f *flooder) order(what string) (answer string, err error) {
	if _, err := fmt.Fprintln(f.orders, what); err != nil {
		return "", fmt.Errorf("tell the flood to %s: %w", what, err)
	}
	if !f.answers.Scan() {
		return "", fmt.Errorf("tell the flood to %s: it is gone: %w", what, f.answers.Err())
	}
	return f.answers.Text(), nil
}

func (f *flooder) begin() error {
	_, err := f.order(orderBegin)
	return err
}

// end returns how many tokens were sent. One that was accepted is an error.
func (f *flooder) end() (sent int64, err error) {
	answer, err := f.order(orderEnd)
	if err != nil {
		return 0, err
	}
	if sent, err = strconv.ParseInt(answer, 10, 64); err != nil {
		return 0, fmt.Errorf("the flood: %s", answer)
	}
	return sent, nil
}

// floodFrom is the process that floods: it sends at a steady rate between the
// orders to begin and to end.
func floodFrom(ctx context.Context, address, folder string, orders io.Reader, answers io.Writer) error {
	text, err := os.ReadFile(filepath.Join(folder, "tokens"))
	if err != nil {
		return fmt.Errorf("read the bad tokens: %w", err)
	}
	b := &bench{roots: x509.NewCertPool()}
	certificate, err := os.ReadFile(filepath.Join(folder, "tls.crt"))
	if err != nil || !b.roots.AppendCertsFromPEM(certificate) {
		return fmt.Errorf("read the Host's certificate: %w", err)
	}
	f := &flood{tokens: strings.Split(string(text), "\n"), clients: make([]pluginv1.HostClient, floodConnections)}
	for i := range f.clients {
		if f.clients[i], err = b.anonymous(address); err != nil {
			return b.close(err)
		}
	}
	var end func() (int64, error)
	for lines := bufio.NewScanner(orders); lines.Scan(); {
		answer := ""
		switch lines.Text() {
		case orderBegin:
			end = f.begin(ctx)
		case orderEnd:
			sent, err := end()
			if answer = strconv.FormatInt(sent, 10); err != nil {
				answer = err.Error()
			}
		}
		if _, err := fmt.Fprintln(answers, answer); err != nil {
			return b.close(fmt.Errorf("answer: %w", err))
		}
	}
	return b.close(nil)
}

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
