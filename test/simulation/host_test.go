package simulation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/query"
)

var (
	writeMethod = admission.Method{Name: "UpdateTaskExact", Capability: contract.WriteTasks, Writer: true}
	readMethod  = admission.Method{Name: "GetTaskExact", Capability: contract.ReadTasks}
)

// receipts are durable at once: what they are worth is the store's tests' matter.
type receipts struct{}

func (receipts) Append(context.Context, journal.Receipt) error { return nil }

// host is the ports of the executor and the reader, as one call uses them.
type host struct {
	p *process
	a *actor
	// impatient: the caller goes away while its command waits.
	impatient bool
}

func (h *host) AuthorityRow(_ context.Context, key authority.Key) (*authority.Row, error) {
	h.a.at("reads the row before the lock")
	if h.p.noStore {
		return nil, errNoStore
	}
	row := h.p.w.db.row(key)
	if row.Revision == 0 {
		return nil, nil //nolint:nilnil // the port's "no row"
	}
	return &row, nil
}

func (h *host) Write(_ context.Context, _ string, fn func(command.Tx) error) error {
	j := &job{fn: func(t *txn) error { return fn(&commandTx{t: t}) }}
	if h.p.w.mutant == mutantForShare {
		// Row locks that are shared need no queue.
		h.p.attempt(h.a, false, []*job{j})
		return j.err
	}
	h.p.jobs = append(h.p.jobs, j)
	if h.impatient {
		h.a.pause()
		h.a.pause()
		j.gone = true
		if !j.done {
			return context.Canceled
		}
	}
	h.a.until(func() bool { return j.done })
	return j.err
}

func (h *host) Read(_ context.Context, fn func(query.Snapshot) error) error {
	h.a.at("reads a snapshot")
	if h.p.noStore {
		return errNoStore
	}
	return fn(&snapshot{db: h.p.w.db, current: h.p.w.db.current()})
}

// snapshot is one state of the store. Its reader gives way nowhere.
type snapshot struct {
	query.Snapshot // nobody reads the rest here
	db             *database
	current        bool
}

func (s *snapshot) AuthorityRow(key authority.Key) (*authority.Row, error) {
	row := s.db.row(key)
	if row.Revision == 0 {
		return nil, nil //nolint:nilnil // the port's "no row"
	}
	_, vouched := s.db.vouched(key)
	row.Uncompared = !vouched
	return &row, nil
}
func (s *snapshot) Current() bool      { return s.current }
func (s *snapshot) StoreEpoch() uint64 { return s.db.storeEpoch }
func (s *snapshot) Head(string) (newest, oldest domain.Version, err error) {
	return domain.Version(len(s.db.journal)), 1, nil
}

func (s *snapshot) Task(string, string) (task domain.Task, waits, found bool, err error) {
	return domain.Task{Version: domain.Version(len(s.db.journal))}, false, true, nil
}

func (s *snapshot) Predecessors(string, []string, domain.Version) (map[string][]domain.Task, error) {
	return map[string][]domain.Task{}, nil // nothing here waits for anything
}

func (s *snapshot) Tasks(string, query.TaskFilter, domain.Version, string, int) ([]domain.Task, error) {
	return nil, errors.New("nobody lists tasks here")
}

// client is a plugin that calls this replica.
func (p *process) client(a *actor) {
	w := p.w
	a.until(func() bool { return !w.closed })
	for range w.profile.calls {
		if !w.profile.writers {
			until := w.now + time.Duration(w.rng.Int64N(int64(4*time.Second)))
			a.until(func() bool { return w.calm || w.now >= until })
		}
		a.at("calls")
		installation := w.api.installation
		if installation == nil {
			continue
		}
		key := keyOf(installation.ID)
		if w.profile.tokens && !p.authenticate(a) {
			continue
		}
		known := w.db.row(key).Revision
		if w.rng.IntN(4) == 0 {
			p.readTask(a, key)
			continue
		}
		p.write(a, key, known)
	}
}

func (p *process) write(a *actor, key authority.Key, revision uint64) {
	w := p.w
	if revision == 0 {
		return
	}
	w.calls++
	h := &host{p: p, a: a, impatient: w.rng.IntN(6) == 0}
	idem := fmt.Sprint("key-", w.calls)
	x := &command.Executor{
		Store: h, View: p.view, Receipts: receipts{}, Now: p.clock,
		NewID: func() string { return "id" }, NewAuditID: func() string { return "audit" },
	}
	env := admission.Envelope{
		RequestID: "request", WorkspaceID: workspaceID, Revision: revision, IdempotencyKey: idem,
		Guard: &admission.Guard{ExpectNone: true},
	}
	for range 2 {
		op := w.truth.call(a, opWrite, key, revision, idem)
		result, refusal := x.Run(context.Background(), key.InstallationID, writeMethod, env, touch{})
		w.truth.answered(op, result, refusal)
		if refusal == nil {
			w.log(a.name, "write under revision %d: %s", revision, result.State)
			return
		}
		w.log(a.name, "write under revision %d: %v", revision, refusal)
		if refusal.State != contract.StateUnavailable {
			return
		}
		// The same again: the first may have happened.
		h.impatient = false
	}
}

func (p *process) readTask(a *actor, key authority.Key) {
	w := p.w
	r := &query.Reader{
		Store: &host{p: p, a: a}, View: p.view, Receipts: receipts{}, Now: p.clock,
		NewAuditID: func() string { return "audit" },
	}
	env := admission.Envelope{RequestID: "request", WorkspaceID: workspaceID}
	op := w.truth.call(a, opRead, key, 0, "")
	_, receipt, refusal := r.Task(context.Background(), key.InstallationID, readMethod, env, "task")
	w.truth.readDone(op, receipt.Revision, refusal)
	if refusal != nil {
		w.log(a.name, "read: %v", refusal)
	} else {
		w.log(a.name, "read at revision %d", receipt.Revision)
	}
}

// maxTokenMemory is how long a reviewed token is served from memory at most.
const maxTokenMemory = 10 * time.Minute

// authenticate is the Host's check of a token, by the protocol's rule: a review
// is remembered, and whether the pod still runs is asked on every call. It runs
// goroutines of its own in the product, so the rule is modelled here.
func (p *process) authenticate(a *actor) bool {
	w := p.w
	a.at("shows its token")
	uid := w.truth.pod
	shownGone := p.goneUID == uid
	if until, known := p.tokens[uid]; !known || w.now >= until {
		a.at("reviews the token")
		// Until a pod is gone its tokens are good, also while it is being deleted.
		if p.noAPI || w.api.pod.uid != uid {
			return false
		}
		p.tokens[uid] = w.now + maxTokenMemory
	}
	if w.mutant != mutantEvicted {
		switch {
		case p.pod.uid == uid && p.pod.deleting:
			return false
		case p.pod.uid != uid:
			a.at("reads the pod live")
			if p.noAPI || w.api.pod.uid != uid || w.api.pod.deleting {
				return false
			}
		}
	}
	if shownGone {
		w.fail("tokens", "a token of pod %s is accepted by %s, whose watch has shown it to be gone", uid, p.name)
	}
	return true
}

// showPod is the pods' handler.
func (p *process) showPod(pod podState) {
	switch {
	case pod.uid != "" && pod.deleting:
		p.goneUID = pod.uid
	case pod.uid != p.pod.uid && p.pod.uid != "":
		p.goneUID = p.pod.uid
	}
	p.pod = pod
	if p.w.mutant == mutantEvicted && p.goneUID != "" {
		delete(p.tokens, p.goneUID)
	}
}
