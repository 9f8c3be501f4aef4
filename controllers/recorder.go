package controllers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
)

const (
	reportingController = "plugins.kandev.ai/plugin-host"
	// freshFor is how long after a revision it is still told. A process that takes
	// over tells what the one before did not live to tell, and nothing that is old.
	freshFor = 10 * time.Minute
	// lookBack is how many revisions of one key are told at most when a process
	// sees the key for the first time.
	lookBack = 5
	// maxNotes bounds what waits to be told; beyond it, nothing is added.
	maxNotes = 4096
	// notesAtOnce are told at once, and then noteRate a second: a storm of
	// transitions must not take the API server's time from the transitions.
	notesAtOnce = 100
	noteRate    = 20
	// noteTries is how often one is tried.
	noteTries = 12
	// noteBytes is the API's bound of an event's note.
	noteBytes = 1024
)

// recorder tells transitions as Kubernetes events, for people who look at
// `kubectl describe` and `kubectl get events`. They are a courtesy: they vanish
// after an hour and nothing depends on them; the history of authority is in the
// PluginCapabilityApprovalEvents.
//
// Each transition is told once, whoever tells it and however often its status had
// to be written: the object's name follows from the transition. That is why they
// are created directly and not by client-go's recorder, which names them by the
// time and merges those of one reason, so that a second revocation would lose its
// actor.
//
// It implements manager.Runnable.
type recorder struct {
	history *events
	writer  client.Client
	view    *view.View
	now     func() time.Time
	log     logr.Logger

	queue workqueue.TypedRateLimitingInterface[string]
	pace  *rate.Limiter

	mu sync.Mutex
	// pending makes what waits in the queue.
	pending map[string]makeNote
	// told is the newest revision of each key that this process has queued.
	told map[authority.Key]uint64
}

// makeNote returns an event to create, nil for none.
type makeNote func(context.Context) (*eventsv1.Event, error)

func newRecorder(history *events, writer client.Client, v *view.View, now func() time.Time, log logr.Logger) *recorder {
	return &recorder{
		history: history, writer: writer, view: v, now: now, log: log,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 30*time.Second)),
		pace:    rate.NewLimiter(noteRate, notesAtOnce),
		pending: map[string]makeNote{}, told: map[authority.Key]uint64{},
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (r *recorder) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (r *recorder) Start(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for r.next(ctx) {
		}
	}()
	<-ctx.Done()
	r.queue.ShutDown()
	<-done
	return nil
}

func (r *recorder) next(ctx context.Context) bool {
	id, shutDown := r.queue.Get()
	if shutDown {
		return false
	}
	defer r.queue.Done(id)
	if r.pace.Wait(ctx) != nil {
		return true // the queue shuts down with the context
	}
	r.mu.Lock()
	build := r.pending[id]
	r.mu.Unlock()
	note, err := build(ctx)
	if err == nil && note != nil {
		err = r.writer.Create(ctx, note)
	}
	switch {
	case err == nil, apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err), ctx.Err() != nil:
		// Told, told by another process, or there is no place to tell it.
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
	case r.queue.NumRequeues(id) < noteTries:
		r.queue.AddRateLimited(id)
		return true
	default:
		r.log.Error(err, "A transition is not told as a Kubernetes event", "event", id)
	}
	r.queue.Forget(id)
	r.mu.Lock()
	delete(r.pending, id)
	r.mu.Unlock()
	return true
}

func (r *recorder) add(id string, build makeNote) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, waits := r.pending[id]; waits || len(r.pending) >= maxNotes {
		return
	}
	r.pending[id] = build
	r.queue.Add(id)
}

// revision tells the revisions of a row up to the one in force, whose status is
// published by now.
func (r *recorder) revision(row authority.Row) {
	r.mu.Lock()
	last, known := r.told[row.Key]
	r.told[row.Key] = row.Revision
	r.mu.Unlock()
	if row.Revision <= last || r.now().Sub(row.UpdatedAt) > freshFor {
		return
	}
	if !known && row.Revision > lookBack {
		last = row.Revision - lookBack
	}
	for revision := last + 1; revision <= row.Revision; revision++ {
		r.add(authority.EventName(row.Key, revision), func(ctx context.Context) (*eventsv1.Event, error) {
			event, err := r.history.take(ctx, row.Key, revision)
			if err != nil || r.now().Sub(event.Row.UpdatedAt) > freshFor {
				return nil, err
			}
			return r.revisionNote(event), nil
		})
	}
}

func (r *recorder) revisionNote(event authority.Event) *eventsv1.Event {
	row := &event.Row
	namespace := row.Vector.WorkspaceNamespace
	if bound, ok := r.view.Binding(row.Key.WorkspaceID); ok && namespace == "" {
		namespace = bound.Namespace
	}
	if namespace == "" {
		return nil
	}
	about := corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "PluginCapabilityApproval",
		Namespace: namespace, Name: event.InstallationName, UID: types.UID(row.Seen.UID),
	}
	reason, warn := reasonOf(event)
	note := r.note(about, warn, reason, string(event.Type), storyOf(event), row.AuditID)
	note.Related = &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "PluginCapabilityApprovalEvent", Name: event.Name(),
	}
	return note
}

// reasonOf classifies a revision, and tells whether it is a warning: nobody asked
// for what happened.
func reasonOf(event authority.Event) (reason string, warn bool) {
	row := &event.Row
	closed := row.Gates != 0
	switch cause := row.Cause; {
	case cause == authority.CauseSuspended, cause == authority.CauseGateClosed,
		cause == authority.CausePrincipalChanged && closed:
		return v1alpha1.EventReasonGateClosed, true
	case cause == authority.CauseResumed, cause == authority.CauseGateOpened, cause == authority.CausePrincipalChanged:
		return v1alpha1.EventReasonGateOpened, false
	}
	switch event.Type {
	case authority.EventGrant:
		return v1alpha1.EventReasonGranted, closed
	case authority.EventRevoke:
		if row.State == authority.StateExpired {
			return v1alpha1.EventReasonExpired, true
		}
		return v1alpha1.EventReasonRevoked, row.Cause != authority.CauseHuman
	case authority.EventNarrow:
		return v1alpha1.EventReasonNarrowed, row.Cause != authority.CauseHuman
	default:
		return v1alpha1.EventReasonUpgradeReview, closed
	}
}

// storyOf is one revision in a sentence: which, by whom, what works now, why.
func storyOf(event authority.Event) string {
	row := &event.Row
	var b strings.Builder
	fmt.Fprintf(&b, "revision %d: ", row.Revision)
	switch row.Actor.Assurance {
	case authority.ActorVerified:
		fmt.Fprintf(&b, "%s (%s)", row.Actor.Name, row.Cause)
	case authority.ActorClaimed:
		fmt.Fprintf(&b, "%s, as claimed (%s)", row.Actor.Name, row.Cause)
	case authority.ActorSystem:
		b.WriteString(string(row.Cause))
	default:
		fmt.Fprintf(&b, "somebody unknown (%s)", row.Cause)
	}
	if event.Type == authority.EventGrant && row.ApprovedVia != "" {
		fmt.Fprintf(&b, ", through %s", row.ApprovedVia)
	}
	if event.Type == authority.EventGrant && row.ConfirmedBy != "" {
		fmt.Fprintf(&b, ", confirmed by %s", row.ConfirmedBy)
	}
	switch {
	case row.Gates != 0:
		fmt.Fprintf(&b, "; nothing works while %s", strings.Join(row.Gates.Names(), ", "))
	case event.Effective == 0:
		b.WriteString("; nothing works now")
	default:
		fmt.Fprintf(&b, "; %s works now", list(event.Effective))
	}
	if row.State == authority.StateActive && !row.ExpiresAt.IsZero() {
		fmt.Fprintf(&b, ", until %s", authority.Timestamp(row.ExpiresAt))
	}
	if row.Reason != "" {
		fmt.Fprintf(&b, "; %s", row.Reason)
	}
	return b.String()
}

// status tells what turned between two statuses of an object.
func (r *recorder) status(object client.Object, before, after []metav1.Condition) {
	about := corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
	}
	lost := v1alpha1.ConditionReady
	switch object.(type) {
	case *v1alpha1.PluginCapabilityApproval:
		about.Kind = "PluginCapabilityApproval"
	case *v1alpha1.PluginInstallation:
		about.Kind, lost = "PluginInstallation", v1alpha1.ConditionAccepted
	default:
		return
	}
	if c := turned(before, after, v1alpha1.ConditionReviewRequired, required); c != nil {
		r.condition(about, c, v1alpha1.EventReasonReviewRequired, "Review", c.Reason+": "+c.Message)
	}
	if c := turned(before, after, lost, historyLost); c != nil {
		r.condition(about, c, v1alpha1.EventReasonHistoryLost, "Refuse", c.Message)
	}
	if c := turned(before, after, v1alpha1.ConditionWorkloadReady, reasonIs); c != nil {
		r.workload(about, meta.IsStatusConditionTrue(before, c.Type), c)
	}
	if c := turned(before, after, v1alpha1.ConditionConfigReady, lacks); c != nil {
		r.turn(about, true, c, v1alpha1.EventReasonConfigNotReady, "Configure", c.Message)
	}
	if was := meta.FindStatusCondition(before, v1alpha1.ConditionConfigReady); was != nil && lacks(was) != "" {
		if c := meta.FindStatusCondition(after, was.Type); c != nil && c.Status == metav1.ConditionTrue {
			r.turn(about, false, c, v1alpha1.EventReasonConfigReady, "Configure", c.Message)
		}
	}
}

// lacks is what a configuration lacks.
func lacks(c *metav1.Condition) string {
	if c.Reason != v1alpha1.ReasonSecretsUnresolved {
		return ""
	}
	return c.Message
}

// workload tells each turn of what runs a plugin. That something that didn't run
// starts or stops is no news.
func (r *recorder) workload(about corev1.ObjectReference, ran bool, c *metav1.Condition) {
	switch c.Reason {
	case v1alpha1.ReasonStarting, v1alpha1.ReasonStopping:
		if ran {
			r.turn(about, false, c, v1alpha1.EventReasonWorkloadNotReady, "Run", c.Reason+": "+c.Message)
		}
	case v1alpha1.ReasonRunning:
		r.turn(about, false, c, v1alpha1.EventReasonWorkloadReady, "Run", c.Message)
	default:
		wanted := c.Reason == string(v1alpha1.GateSuspended) || c.Reason == v1alpha1.ReasonScaledToZero
		r.turn(about, !wanted, c, v1alpha1.EventReasonWorkloadNotReady, "Run", c.Reason+": "+c.Message)
	}
}

func reasonIs(c *metav1.Condition) string { return c.Reason }

func required(c *metav1.Condition) string {
	if c.Status != metav1.ConditionTrue {
		return ""
	}
	return c.Reason
}

func historyLost(c *metav1.Condition) string {
	if c.Reason != v1alpha1.ReasonHistoryLost {
		return ""
	}
	return c.Reason
}

// turned returns a condition if what it says, "" for nothing, is something else
// than before.
func turned(before, after []metav1.Condition, kind string, says func(*metav1.Condition) string) *metav1.Condition {
	now := meta.FindStatusCondition(after, kind)
	if now == nil || says(now) == "" {
		return nil
	}
	if was := meta.FindStatusCondition(before, kind); was != nil && says(was) == says(now) {
		return nil
	}
	return now
}

func (r *recorder) condition(about corev1.ObjectReference, c *metav1.Condition, reason, action, text string) {
	r.turn(about, true, c, reason, action, text)
}

func (r *recorder) turn(about corev1.ObjectReference, warn bool, c *metav1.Condition, reason, action, text string) {
	identity := []string{c.Type, c.Reason, strconv.FormatInt(c.ObservedGeneration, 10), c.LastTransitionTime.UTC().String()}
	if c.Reason == v1alpha1.ReasonUnresolved || c.Reason == v1alpha1.ReasonSecretsUnresolved {
		// What is missing next is another matter, though nothing was ready in between.
		identity = append(identity, c.Message)
	}
	note := r.note(about, warn, reason, action, text, identity...)
	r.add(note.Namespace+"/"+note.Name, func(context.Context) (*eventsv1.Event, error) { return note, nil })
}

// proof tells that the admission policies are no longer in force, or are again.
func (r *recorder) proof(t turn) {
	if t.held && t.first {
		return // as it should be, and as it may always have been
	}
	reason, action, text := v1alpha1.EventReasonPoliciesInForce, "Admit", "every admission policy of plugin-host is in force again: acts are admitted"
	if !t.held {
		reason, action = v1alpha1.EventReasonPoliciesNotInForce, "Refuse"
		text = "no act is admitted, existing grants stand and narrowing works: " + t.why
	}
	note := r.note(corev1.ObjectReference{
		APIVersion: policyKind.GroupVersion().String(), Kind: policyKind.Kind, Name: t.policy,
	}, !t.held, reason, action, text, r.now().String())
	r.add(note.Namespace+"/"+note.Name, func(context.Context) (*eventsv1.Event, error) { return note, nil })
}

// note makes an event whose name follows from the object and from what identifies
// the transition.
func (r *recorder) note(about corev1.ObjectReference, warn bool, reason, action, text string, identity ...string) *eventsv1.Event {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{string(about.UID), reason}, identity...), "\x00")))
	namespace := about.Namespace
	if namespace == "" {
		// Where the API wants those of objects without one.
		namespace = metav1.NamespaceDefault
	}
	kind := corev1.EventTypeNormal
	if warn {
		kind = corev1.EventTypeWarning
	}
	instance, err := os.Hostname()
	if err != nil || instance == "" {
		instance = "plugin-host"
	}
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      strings.TrimRight(cut(about.Name, 200), ".-") + "." + hex.EncodeToString(sum[:8]),
		},
		EventTime: metav1.NewMicroTime(r.now()), ReportingController: reportingController, ReportingInstance: cut(instance, 128),
		Type: kind, Reason: reason, Action: action, Regarding: about, Note: cut(text, noteBytes),
	}
}

// cut keeps a text within a number of bytes, and valid.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const dots = "..."
	at := most - len(dots)
	for at > 0 && !utf8.RuneStart(text[at]) {
		at--
	}
	return text[:at] + dots
}
