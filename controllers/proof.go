package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

const (
	// proofEvery is the time between two proofs while nothing is wrong, proofRetry
	// while something is.
	proofEvery = 30 * time.Second
	proofRetry = 2 * time.Second
	// proofPause is the least time between a change and the attempt that it causes:
	// somebody who edits a policy all the time must not keep the API server busy.
	proofPause = 200 * time.Millisecond
	// proofTimeout bounds one attempt.
	proofTimeout = 10 * time.Second
	// proofPatience is how many attempts in a row may stay without an answer before
	// what they ask counts as not so.
	proofPatience = 3
	// proofArrival is how many attempts in a row may find policies that this
	// process has never seen in force not to be so yet, and be taken for policies
	// that were installed a moment ago.
	proofArrival = 5
)

// proof tells whether the admission policies are in force (WideningProven): only
// then are the names in an approval what somebody has checked, and only then is
// an act admitted. While they are not, existing authority stands and narrowing
// works.
//
// Every replica tries for itself: each policy must refuse a request of its own
// that nothing else would refuse. The leader records what was proven in the
// store: the pins, which are the uid and generation of each policy and binding.
// An object that was replaced or edited meanwhile never has its old pins again,
// so equal pins mean that the policies stood all the time between.
//
// It implements manager.Runnable.
type proof struct {
	live   client.Reader
	writer client.Client
	store  Store
	leader *leader
	// namespace is where the requests that must be refused are tried.
	namespace string
	// settle is how long policies that were never proven must hold before they
	// count: each API server begins to enforce them by itself, about a second
	// after they were written.
	settle time.Duration
	log    logr.Logger
	// writtenAnew tells whether a version of an object after since, and up to
	// generation, is of a write that the policies check whole.
	writtenAnew func(ctx context.Context, object fence.Object, since, generation int64) (bool, error)
	// turned is told each time that the leader finds the proof lost or regained.
	turned func(turn)
	// observed is told what each attempt has found, unless that is unknown.
	observed func(proven bool)
	// resume is to have computed again what waited for the proof.
	resume func(context.Context) error
	// granted is told when grants of compatibility have come to stand otherwise.
	granted func()

	// wake asks for an attempt at once.
	wake chan struct{}
	// changes counts what the watches have shown of the policies.
	changes atomic.Uint64
	// silent counts the attempts in a row without an answer.
	silent int

	// recording is held by who changes what the store keeps of the proof.
	recording sync.Mutex
	// loading is held by who reads it.
	loading sync.Mutex
	// loaded: it was read once.
	loaded atomic.Bool

	mu sync.Mutex
	// arrived: they were in force once. losses counts the attempts before that.
	arrived bool
	losses  int
	standing
	// known is closed while the state is known.
	known chan struct{}
	// told is the state that turned was told last.
	told proofState
	// grants decides which grants of compatibility count.
	grants authority.LegacyHistory
}

// standing is what the last attempt has found.
type standing struct {
	state proofState
	// why says what is wrong, for people; "" while nothing is.
	why string
	// pins are those that the proof is of, epoch the store's when it was recorded.
	pins  string
	epoch uint64
	// distrusted are the generations up to which nobody has checked an object, by
	// its uid.
	distrusted map[string]int64
	// noticed is how many changes the attempt knows of.
	noticed uint64
}

type proofState uint8

// The states of a proof. While it is unknown, what depends on it waits: for a
// bounded time, since attempts are.
const (
	proofUnknown proofState = iota
	proofHeld
	proofLost
)

func newProof(live client.Reader, writer client.Client, store Store, l *leader, namespace string, settle time.Duration, log logr.Logger) *proof {
	return &proof{
		live: live, writer: writer, store: store, leader: l, namespace: namespace, settle: settle, log: log,
		wake:     make(chan struct{}, 1),
		granted:  func() {},
		standing: standing{distrusted: map[string]int64{}}, known: make(chan struct{}),
	}
}

// The kinds that the pins are made of.
var (
	policyKind  = admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy")
	bindingKind = admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding")
)

// register has every change of a policy or a binding of ours cause an attempt.
func (p *proof) register(ctx context.Context, informers cache.Cache) error {
	names := v1alpha1.AdmissionPolicies()
	for _, kind := range []apischema.GroupVersionKind{policyKind, bindingKind} {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(kind)
		informer, err := informers.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %s: %w", kind.Kind, err)
		}
		_, err = informer.AddEventHandler(handlerOf(func(o client.Object, _ bool) {
			if slices.Contains(names, o.GetName()) {
				p.changes.Add(1)
				p.poke()
			}
		}))
		if err != nil {
			return fmt.Errorf("handle %s: %w", kind.Kind, err)
		}
	}
	return nil
}

func (p *proof) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (p *proof) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (p *proof) Start(ctx context.Context) error {
	for {
		_, leading := p.leads()
		wait := time.NewTimer(p.attempt(ctx))
		_, begins := p.leader.state()
		wake := p.wake
		if leading {
			begins = nil
		}
		if p.silent > 0 {
			// Patience is a matter of time.
			wake, begins = nil, nil
		}
		select {
		case <-wait.C:
		case <-wake:
			pause := time.NewTimer(proofPause)
			select {
			case <-pause.C:
			case <-begins:
			case <-ctx.Done():
			}
			pause.Stop()
		case <-begins:
			// What only the leader may record, it now may.
		case <-ctx.Done():
			wait.Stop()
			return nil
		}
		wait.Stop()
	}
}

// attempt proves the policies once, and returns when to do it again.
func (p *proof) attempt(ctx context.Context) time.Duration {
	noticed := p.changes.Load()
	pins, err := p.prove(ctx)
	if err == nil {
		err = p.hold(ctx, pins, noticed)
	}
	var fault *faultError
	switch {
	case ctx.Err() != nil:
		return proofRetry
	case err == nil:
		p.silent = 0
		return proofEvery
	case errors.Is(err, errNotRecorded):
		p.silent = 0
		p.publish(ctx, v1alpha1.PolicyApprovals, standing{state: proofUnknown})
	case errors.As(err, &fault):
		p.silent = 0
		p.lose(ctx, fault.policy, fault.Error())
	default:
		p.log.Error(err, "The admission policies could not be tried")
		p.silent++
		if p.silent >= proofPatience {
			p.lose(ctx, v1alpha1.PolicyApprovals, "the API server or the store doesn't answer: "+err.Error())
		}
	}
	return proofRetry
}

// proven is what the store keeps of a proof. A store epoch begins with none: what
// an older store knew of distrust is older than what happened.
func proven(term fence.Term, pins string) string {
	return fmt.Sprintf("store epoch %d\n%s", term.StoreEpoch, pins)
}

// lapsed is what the store keeps once the policies were found not to be in force:
// the next proof must ask what came meanwhile, though no pin may have changed.
func lapsed(term fence.Term) string { return fmt.Sprintf("store epoch %d\nlapsed\n", term.StoreEpoch) }

// hold takes a successful attempt over, once the leader has recorded its pins.
func (p *proof) hold(ctx context.Context, pins string, noticed uint64) error {
	term, err := p.store.Term(ctx)
	if err != nil {
		return fmt.Errorf("read the term in force: %w", err)
	}
	recorded, distrusted, err := p.load(ctx)
	if err != nil {
		return err
	}
	if recorded.of != proven(term, pins) {
		if leading, ok := p.leads(); !ok || leading != term {
			// The leader records it; until then nothing is held here.
			return errNotRecorded
		}
		if err := p.settled(ctx, pins); err != nil {
			return err
		}
		if distrusted, err = p.record(ctx, term, pins); err != nil {
			return err
		}
	}
	p.publish(ctx, v1alpha1.PolicyApprovals, standing{state: proofHeld, pins: pins, epoch: term.StoreEpoch, distrusted: distrusted, noticed: noticed})
	return nil
}

var errNotRecorded = errors.New("the leader has not recorded a proof of these admission policies yet")

// settled proves the policies again after a while, for all API servers to enforce
// them by then.
func (p *proof) settled(ctx context.Context, pins string) error {
	timer := time.NewTimer(p.settle)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return fmt.Errorf("wait for the admission policies: %w", ctx.Err())
	}
	again, err := p.prove(ctx)
	if err != nil {
		return err
	}
	if again != pins {
		return &faultError{v1alpha1.PolicyApprovals, "or another one was changed while they were tried"}
	}
	return nil
}

// record makes a proof durable, with what came before it and nobody had checked:
// each version that is not processed yet, or, where the store has no proof of
// this epoch at all, each version that there is.
func (p *proof) record(ctx context.Context, term fence.Term, pins string) (map[string]int64, error) {
	p.recording.Lock()
	defer p.recording.Unlock()
	recorded, _, err := p.load(ctx)
	if err != nil {
		return nil, err
	}
	seen := map[string]int64{}
	if strings.HasPrefix(recorded.of, proven(term, "")) {
		rows, err := p.store.Rows(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the rows: %w", err)
		}
		for i := range rows {
			// An object that is gone for one key can be new to another.
			if mark := &rows[i].Seen; !mark.Gone {
				seen[mark.UID] = max(seen[mark.UID], mark.Generation)
			}
		}
	}
	unchecked := map[string]int64{}
	for next := ""; ; {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("PluginCapabilityApprovalList"))
		if err := p.live.List(ctx, list, client.Limit(eventPage), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("list the approvals: %w", err)
		}
		for i := range list.Items {
			if o := &list.Items[i]; o.Generation > seen[string(o.UID)] {
				unchecked[string(o.UID)] = o.Generation
			}
		}
		if next = list.Continue; next == "" {
			break
		}
	}
	approvals := len(unchecked)
	if err := p.recordGrants(ctx, &recorded, unchecked); err != nil {
		return nil, err
	}
	recorded.of = proven(term, pins)
	if err := p.store.Prove(ctx, term, recorded.text(), unchecked); err != nil {
		return nil, fmt.Errorf("record the proof of the admission policies: %w", err)
	}
	if len(unchecked) > 0 {
		p.log.Info("The admission policies are in force; nobody has checked what came before", "approvals", approvals, "compatibility", len(unchecked)-approvals)
	}
	_, distrusted, err := p.load(ctx)
	return distrusted, err
}

// lose takes over that a policy is not in force.
func (p *proof) lose(ctx context.Context, policy, why string) {
	if term, ok := p.leads(); ok {
		if err := p.lapse(ctx, term); err != nil && ctx.Err() == nil {
			p.log.Error(err, "That the admission policies are not in force could not be recorded; trying again")
		}
	}
	p.publish(ctx, policy, standing{state: proofLost, why: why})
}

// arriving tells whether the policies may just have been installed together with
// us: an API server enforces them about a second after they were written.
func (p *proof) arriving() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.arrived && p.losses < proofArrival
}

// leads returns the term of this process, if it leads.
func (p *proof) leads() (fence.Term, bool) {
	term, leading := p.leader.state()
	select {
	case <-leading:
		return term, true
	default:
		return fence.Term{}, false
	}
}

// lapse makes durable that there was a time without the policies.
func (p *proof) lapse(ctx context.Context, term fence.Term) error {
	p.recording.Lock()
	defer p.recording.Unlock()
	recorded, _, err := p.load(ctx)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(recorded.of, proven(term, "")) || recorded.of == lapsed(term) {
		// Without a proof of this epoch the next one asks more already.
		return nil
	}
	recorded.of = lapsed(term)
	if err := p.store.Prove(ctx, term, recorded.text(), nil); err != nil {
		return fmt.Errorf("record the lapse of the admission policies: %w", err)
	}
	return nil
}

// publish takes a new standing over, and tells what turned.
func (p *proof) publish(ctx context.Context, policy string, next standing) {
	_, leading := p.leads()
	p.mu.Lock()
	switch next.state {
	case proofHeld:
		p.arrived = true
	case proofLost:
		p.losses++
	default:
	}
	was := p.told
	if leading && next.state != proofUnknown {
		p.told = next.state
	}
	// What was distrusted since the store was read stays so.
	if next.distrusted == nil {
		next.distrusted = map[string]int64{}
	}
	for uid, upTo := range p.distrusted {
		next.distrusted[uid] = max(next.distrusted[uid], upTo)
	}
	switch known := p.state != proofUnknown; {
	case next.state != proofUnknown && !known:
		close(p.known)
	case next.state == proofUnknown && known:
		p.known = make(chan struct{})
	}
	other := next.state == proofHeld && next.pins != p.pins
	p.standing = next
	turned := p.told != was
	p.mu.Unlock()
	if next.state != proofUnknown {
		p.observed(next.state == proofHeld)
	}
	if turned {
		p.tell(policy, next, was == proofUnknown)
	}
	// Whoever waits goes on once they are in force, and is told why as soon as it shows
	// that they aren't.
	if !leading || !other && (!turned || next.state != proofLost) {
		return
	}
	if err := p.resume(ctx); err != nil && ctx.Err() == nil {
		p.log.Error(err, "What waited for the admission policies waits on, until something else moves it")
	}
}

func (p *proof) tell(policy string, now standing, first bool) {
	if now.state == proofHeld {
		p.log.Info("The admission policies are in force: acts are admitted")
	} else {
		p.log.Info("The admission policies are not in force: no act is admitted", "why", now.why)
	}
	p.turned(turn{policy: policy, held: now.state == proofHeld, why: now.why, first: first})
}

// turn is a change of the standing that the leader has noticed.
type turn struct {
	// policy is the one that it was noticed by.
	policy string
	held   bool
	why    string
	// first: the leader knew nothing before.
	first bool
}

// checked tells whether somebody has checked the names in a version of an
// approval that was read before this call: whether an act of it may be admitted.
// For a version that is none by the row it is only what this process knows at
// once.
func (p *proof) checked(ctx context.Context, row *authority.Row, object fence.Object, a *authority.Approval) (bool, error) {
	if a.Revoked || a.SupersedesAct != row.Act {
		return p.believed(a.UID, a.Generation), nil
	}
	now, err := p.await(ctx)
	if err != nil {
		return false, err
	}
	upTo := p.distrusts(a.UID)
	if now.state != proofHeld || a.Generation <= upTo {
		return false, nil
	}
	// Of a version that was processed, that it is not distrusted was settled then.
	if processed := row.Seen.UID == a.UID && row.Seen.Generation >= a.Generation; upTo > 0 && !processed {
		// The policies let everybody narrow, and a second human confirm: who did so
		// with a version that nobody has checked has checked nothing of what is left.
		anew, err := p.writtenAnew(ctx, object, upTo, a.Generation)
		if err != nil || !anew {
			return false, err
		}
	}
	// Between two attempts the policies may have been away, or other ones. If the
	// pins are what they were when they were proven, this version came under them.
	pins, err := p.pinsNow(ctx)
	if err != nil {
		return false, err
	}
	if pins != now.pins {
		p.poke()
		return false, nil
	}
	return true, nil
}

// await returns the standing once it is known.
func (p *proof) await(ctx context.Context) (standing, error) {
	for {
		term, leading := p.leads()
		p.mu.Lock()
		if leading && p.state == proofHeld && p.epoch != term.StoreEpoch {
			// This process has begun another epoch since.
			p.state, p.known = proofUnknown, make(chan struct{})
			p.poke()
		}
		now, known := p.standing, p.known
		p.mu.Unlock()
		if now.state != proofUnknown {
			return now, nil
		}
		select {
		case <-known:
		case <-ctx.Done():
			return standing{}, fmt.Errorf("wait for the proof of the admission policies: %w", ctx.Err())
		}
	}
}

// believed tells whether a version is checked as far as this process knows, for
// what must not wait and grants nothing by it.
func (p *proof) believed(uid string, generation int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state == proofHeld && p.noticed == p.changes.Load() && generation > p.distrusted[uid]
}

// distrusts returns the generation up to which nobody has checked an object, or
// ever will; 0 for none.
func (p *proof) distrusts(uid string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.distrusted[uid]
}

// doubt says, to people, why nobody has checked a version.
func (p *proof) doubt(uid string, generation int64) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case generation <= p.distrusted[uid]:
		return doubtAlways
	case p.state == proofLost:
		return fmt.Sprintf(doubtNow, shorten(p.why))
	default:
		// They are other ones than were proven, and are being looked at.
		return fmt.Sprintf(doubtNow, "nobody has found them so yet")
	}
}

// resume has the approvals computed again that ask for what nobody has checked:
// some may only have waited for the proof.
func resume(ctx context.Context, cached client.Reader, pass func(authority.Key)) error {
	var approvals v1alpha1.PluginCapabilityApprovalList
	if err := cached.List(ctx, &approvals, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the approvals: %w", err)
	}
	for i := range approvals.Items {
		o := &approvals.Items[i]
		c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReviewRequired)
		if c != nil && c.Reason == v1alpha1.ReasonNotVerified {
			pass(authority.Key{InstallationID: o.Status.InstallationID, WorkspaceID: o.Spec.WorkspaceID})
		}
	}
	return nil
}

// distrust notes what the ledger has recorded.
func (p *proof) distrust(uid string, generation int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.distrusted[uid] = max(p.distrusted[uid], generation)
}

// distrusting is a ledger whose distrust takes effect in this process at once.
type distrusting struct {
	Store
	proof *proof
}

// Distrust implements fence.Ledger.
func (d distrusting) Distrust(ctx context.Context, uid string, generation int64) error {
	if err := d.Store.Distrust(ctx, uid, generation); err != nil {
		return err
	}
	d.proof.distrust(uid, generation)
	return nil
}
