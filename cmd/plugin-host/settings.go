package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kandev/plugin-host/hostsvc/query"
	"github.com/kandev/plugin-host/hostsvc/vault"
)

// The engines that --store names.
const (
	storeSQLite   = "sqlite"
	storePostgres = "postgres"
)

// settings are the flags.
type settings struct {
	kubeconfig string

	store           string
	sqlitePath      string
	postgresDSNFile string
	seedFile        string
	adoptFrom       string
	eventRetention  time.Duration
	// receiptRetention is 0 for ever.
	receiptRetention time.Duration

	grpcListen    string
	tlsCertFile   string
	tlsKeyFile    string
	cursorKeyFile string
	// secretKeyFile is "" for a Host that keeps no secrets.
	secretKeyFile string
	healthListen  string
	metricsListen string

	namespace               string
	leaderElect             bool
	leaderElectionNamespace string
	leaderLease             time.Duration
	lease                   time.Duration

	workload workloadSettings
}

// shortestLease is the least that a lease can last: its renewals need time.
const shortestLease = time.Second

func parse(args []string, out io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("plugin-host", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "`file` that says how to reach the cluster; empty: as a pod of it")
	s.storeFlags(flags)
	flags.StringVar(&s.adoptFrom, "store-adopt-from", "", "`uid` of the kube-system namespace of the cluster whose store this was: take it over; all that was granted there ends")
	flags.StringVar(&s.seedFile, "seed-file", "", "`file` to import at the start, in the format of plugin-host import; what is there already is left alone")
	flags.DurationVar(&s.eventRetention, "event-retention", defaultRetention, "how old an event of authority must be to be pruned from the API once the store has it, a `duration`; 0: only what a workspace has too many of goes")
	flags.DurationVar(&s.receiptRetention, "receipt-retention", defaultReceiptRetention, "how old a receipt of a call must be to be removed from the store, a `duration`; 0: none is removed")
	flags.StringVar(&s.grpcListen, "grpc-listen", ":8443", "`address` of the Host, gRPC over TLS")
	flags.StringVar(&s.tlsCertFile, "tls-cert-file", "", "`file` of the serving certificate, PEM; read again when it changes")
	flags.StringVar(&s.tlsKeyFile, "tls-key-file", "", "`file` of its private key, PEM")
	flags.StringVar(&s.cursorKeyFile, "cursor-key-file", "", "`file` with lines of 32 bytes in base64: the first seals list cursors, all open them")
	flags.StringVar(&s.secretKeyFile, "secret-key-file", "", "`file` with lines of 32 bytes in base64: the first seals the secrets that plugins keep, all open them; empty: plugins keep none")
	flags.StringVar(&s.healthListen, "health-listen", ":8081", "`address` of /healthz and /readyz, HTTP")
	flags.StringVar(&s.metricsListen, "metrics-listen", ":9443", "`address` of /metrics and the archived history, HTTPS; who asks needs a token that may get the path; 0: none")
	flags.StringVar(&s.namespace, "namespace", os.Getenv("POD_NAMESPACE"), "the Host's own `namespace`, where the cluster remembers its store; empty: that of --leader-election-namespace, else that of the pod")
	flags.BoolVar(&s.leaderElect, "leader-elect", true, "let one process at a time move authority")
	flags.StringVar(&s.leaderElectionNamespace, "leader-election-namespace", "", "`namespace` of the leader's lease; empty: --namespace")
	flags.DurationVar(&s.leaderLease, "leader-lease-duration", 15*time.Second, "`time` that a leader which gives no sign keeps its lease; another process leads after it")
	flags.DurationVar(&s.lease, "lease-duration", 15*time.Second, "`time` that commands commit after the last comparison with the API server: what is revoked ends at most two seconds later, whatever fails")
	s.workload.register(flags)
	if err := flags.Parse(args); err != nil {
		return s, err //nolint:wrapcheck // it names the flag
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	err := s.check()
	return s, err
}

// storeFlags are the flags that say where the store is.
func (s *settings) storeFlags(flags *flag.FlagSet) {
	flags.StringVar(&s.store, "store", storeSQLite, "`engine` of the store: sqlite or postgres")
	flags.StringVar(&s.sqlitePath, "sqlite-path", "", "`file` of the SQLite database; made if it doesn't exist")
	flags.StringVar(&s.postgresDSNFile, "postgres-dsn-file", "", "`file` that holds the connection string of PostgreSQL")
}

func (s *settings) checkStore() error {
	switch s.store {
	case storeSQLite:
		if s.sqlitePath == "" {
			return errors.New("--sqlite-path is required")
		}
	case storePostgres:
		if s.postgresDSNFile == "" {
			return errors.New("--postgres-dsn-file is required")
		}
	default:
		return fmt.Errorf("--store: %q is neither %q nor %q", s.store, storeSQLite, storePostgres)
	}
	return nil
}

func (s *settings) check() error {
	required := []struct{ flag, value string }{
		{"tls-cert-file", s.tlsCertFile}, {"tls-key-file", s.tlsKeyFile}, {"cursor-key-file", s.cursorKeyFile},
	}
	if err := s.checkStore(); err != nil {
		return err
	}
	if s.namespace == "" {
		s.namespace = s.leaderElectionNamespace
	}
	if s.kubeconfig != "" {
		required = append(required, struct{ flag, value string }{"namespace", s.namespace})
	}
	if err := s.workload.check(); err != nil {
		return err
	}
	if s.eventRetention < 0 {
		return fmt.Errorf("--event-retention: %s is no age", s.eventRetention)
	}
	if s.receiptRetention < 0 {
		return fmt.Errorf("--receipt-retention: %s is no age", s.receiptRetention)
	}
	for _, r := range required {
		if r.value == "" {
			return fmt.Errorf("--%s is required", r.flag)
		}
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"leader-lease-duration", s.leaderLease}, {"lease-duration", s.lease}} {
		if d.value < shortestLease {
			return fmt.Errorf("--%s: %v is less than %v", d.flag, d.value, shortestLease)
		}
	}
	return nil
}

// defaultRetention is 90 days.
const defaultRetention = 90 * 24 * time.Hour

// defaultReceiptRetention is a year.
const defaultReceiptRetention = 365 * 24 * time.Hour

// podNamespace is where a pod finds the name of its namespace.
const podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// ownNamespace is the Host's own namespace.
func (s *settings) ownNamespace() (string, error) {
	if s.namespace != "" {
		return s.namespace, nil
	}
	text, err := os.ReadFile(podNamespace)
	if err != nil {
		return "", fmt.Errorf("--namespace is required outside a pod: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// cluster returns how to reach the API server, without a client-side limit:
// the server has its own fairness.
func (s *settings) cluster() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	config.QPS = -1
	config.UserAgent = "plugin-host"
	return config, nil
}

func (s *settings) postgresDSN() (string, error) {
	text, err := os.ReadFile(s.postgresDSNFile) //nolint:gosec // the operator names the file
	if err != nil {
		return "", fmt.Errorf("--postgres-dsn-file: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// keys reads lines of keys of so many bytes in base64. No error holds any part of
// one.
func keys(name, path string, size int) ([][]byte, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", name, err)
	}
	var all [][]byte
	lines := bufio.NewScanner(bytes.NewReader(text))
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(key) != size {
			return nil, fmt.Errorf("--%s: line %d isn't %d bytes in base64", name, number, size)
		}
		all = append(all, key)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("--%s: a line is too long", name)
	}
	return all, nil
}

// cursors reads the keys of list cursors.
func (s *settings) cursors() (*query.Cursors, error) {
	const name = "cursor-key-file"
	ring, err := keys(name, s.cursorKeyFile, query.CursorKeySize)
	if err != nil {
		return nil, err
	}
	cursors, err := query.NewCursors(ring...)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", name, err)
	}
	return cursors, nil
}

// vault reads the keys of plugins' secrets; nil without them.
func (s *settings) vault() (*vault.Vault, error) {
	const name = "secret-key-file"
	if s.secretKeyFile == "" {
		return nil, nil //nolint:nilnil // no vault is what was asked for
	}
	ring, err := keys(name, s.secretKeyFile, vault.KeySize)
	if err != nil {
		return nil, err
	}
	sealed, err := vault.New(ring...)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", name, err)
	}
	return sealed, nil
}
