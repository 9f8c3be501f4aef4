package sdk_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/events"
	"github.com/kandev/plugin-host/hostsvc/fence"
	"github.com/kandev/plugin-host/hostsvc/identity"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/query"
	"github.com/kandev/plugin-host/hostsvc/rpc"
	"github.com/kandev/plugin-host/hostsvc/store"
	"github.com/kandev/plugin-host/hostsvc/store/sqlite"
	"github.com/kandev/plugin-host/hostsvc/store/storetest"
)

// realHost is the Host itself on a SQLite database, over TLS. Only who a token
// belongs to, and what the control plane says, is the test's: whatever it says of one
// installation, "alpha".
type realHost struct {
	store *store.Store
	term  fence.Term
	pod   pod

	mu       sync.Mutex
	seen     map[authority.Key]*authority.Observed
	declared authority.Legacy
}

const installation = "alpha"

// Refuses implements rpc.Authenticator.
func (*realHost) Refuses(string) error { return nil }

// Authenticate implements rpc.Authenticator.
func (*realHost) Authenticate(_ context.Context, bearer string) (identity.Principal, error) {
	if bearer != "first-token" {
		return identity.Principal{}, identity.ErrUnauthenticated
	}
	return identity.Principal{InstallationID: installation, PluginID: "kandev.alpha"}, nil
}

// Observe implements admission.View.
func (h *realHost) Observe(key authority.Key) *authority.Observed {
	h.mu.Lock()
	defer h.mu.Unlock()
	if seen := h.seen[key]; seen != nil {
		return seen
	}
	return &authority.Observed{Synced: true}
}

// Legacy implements admission.LegacyView.
func (h *realHost) Legacy(string) authority.Legacy {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.declared
}

// suspend gates the installation, or lets it go on.
func (h *realHost) suspend(suspended bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.declared.Gates = 0
	if suspended {
		h.declared.Gates = authority.GateSuspended
	}
}

// startHost runs a Host with some tasks in workspace "ws".
func startHost(t *testing.T, tasks int) *realHost {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	h := &realHost{
		seen: map[authority.Key]*authority.Observed{},
		declared: authority.Legacy{
			FreshUntil: time.Now().Add(time.Hour), Installed: true,
			LegacyTerms: authority.LegacyTerms{Events: []string{"task.*"}},
		},
	}
	log := slog.New(slog.DiscardHandler)
	dir := t.TempDir()
	engine, err := sqlite.Open(filepath.Join(dir, "host.db"))
	must(err)
	h.store, err = store.Open(t.Context(), engine, store.Options{Now: time.Now, Log: log, Fatal: func(err error) { panic(err) }})
	must(err)
	t.Cleanup(func() { must(h.store.Close()) })
	h.term, err = storetest.Vouch(t.Context(), h.store)
	must(err)
	now := time.Now()
	must(h.store.Seed(t.Context(), "ws", func(tx store.SeedTx) error {
		if err := tx.Workspace(domain.Workspace{Name: "ws", CreatedAt: now, UpdatedAt: now}); err != nil {
			return err
		}
		if err := tx.Workflow(domain.Workflow{ID: "flow", Name: "Flow", CreatedAt: now, UpdatedAt: now}); err != nil {
			return err
		}
		if err := tx.WorkflowStep(domain.WorkflowStep{ID: "todo", WorkflowID: "flow", Name: "Todo", StageType: "work"}); err != nil {
			return err
		}
		for i := range tasks {
			task := domain.NewTask(fmt.Sprintf("task-%02d", i), "ws", "human:ann", domain.TaskDraft{
				WorkflowID: "flow", WorkflowStepID: "todo", Title: fmt.Sprint("Task ", i), ExternalID: fmt.Sprint("external-", i),
			}, domain.Placement{StepID: "todo", Admitted: true}, int32(i), now)
			if err := tx.Task(task); err != nil {
				return err
			}
		}
		return nil
	}))

	key, err := query.NewCursorKey()
	must(err)
	cursors, err := query.NewCursors(key)
	must(err)
	receipts := journal.NewRecorder(h.store, uuid.NewString(), time.Now)
	t.Cleanup(func() { must(receipts.Close(context.Background())) })
	h.pod = pod{caFile: filepath.Join(dir, "tls.crt"), tokenFile: filepath.Join(dir, "token")}
	h.pod.project(t, "first-token")
	certificate, err := newCertificate(h.pod.caFile)
	must(err)
	private, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	must(err)
	keyFile := filepath.Join(dir, "tls.key")
	must(os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	server, err := rpc.NewServer(rpc.Config{
		CertFile: h.pod.caFile, KeyFile: keyFile, Identity: h, Now: time.Now, Log: log, Legacy: h,
		Reader: &query.Reader{Store: h.store, View: h, Receipts: receipts, Cursors: cursors, Now: time.Now, NewAuditID: uuid.NewString},
		Executor: &command.Executor{
			Store: h.store, View: h, Receipts: receipts, Now: time.Now, NewID: uuid.NewString, NewAuditID: uuid.NewString,
		},
		Events: events.NewHub(events.Config{
			Store: h.store, Rows: h.store, View: h, Legacy: h, Receipts: receipts, Cursors: cursors, Now: time.Now,
			NewAuditID: uuid.NewString, Log: log,
			Limits: events.Limits{Check: 10 * time.Millisecond, Heartbeat: 50 * time.Millisecond},
		}),
	})
	must(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	h.pod.address = listener.Addr().String()
	serving, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(serving, listener) }()
	t.Cleanup(func() {
		stop()
		must(<-served)
	})
	h.pod.dial = func(ctx context.Context, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	return h
}

// grant moves what the installation has in "ws" to the next revision: everything, or
// with revoked nothing.
func (h *realHost) grant(t *testing.T, revoked bool) {
	t.Helper()
	key := authority.Key{InstallationID: installation, WorkspaceID: "ws"}
	before, err := h.store.Row(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	row := authority.Row{
		Key: key, State: authority.StateActive, Granted: contract.AllCapabilities, Declared: contract.AllCapabilities,
		Required: contract.SetOf(contract.ReadTasks), Allowed: contract.AllCapabilities,
		Vector: authority.Vector{WorkspaceID: "ws", ManifestDigest: "v1:" + strings.Repeat("ab", 32), PolicyVersion: "test"},
		Seen:   authority.Seen{UID: "approval-uid", Generation: int64(before.Revision) + 5},
		Actor:  authority.Actor{Name: "ann", Assurance: authority.ActorClaimed}, Cause: authority.CauseHuman,
		Revision: before.Revision + 1, UpdatedAt: time.Now(),
	}
	if revoked {
		row.State, row.Granted = authority.StateRevoked, contract.SetOf()
	}
	row.AuditID, row.Sum = authority.AuditID(key, row.Revision), row.Vector.Sum()
	if err := h.store.Fence(t.Context(), h.term, before, row); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen[key] = &authority.Observed{
		Synced: true, Vector: row.Vector.Sum(), Revision: row.Revision,
		Approval: authority.ObservedApproval{UID: row.Seen.UID, Generation: row.Seen.Generation, Capabilities: row.Granted},
	}
}
