package identity

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sync/singleflight"

	"github.com/kandev/plugin-host/contract"
)

// Errors of Authenticate. What wraps them is for logs; a caller is told one
// text for each.
var (
	// ErrUnauthenticated: the token proves no installation, now.
	ErrUnauthenticated = errors.New("the token proves no installation")
	// ErrUnavailable: the API server gave no answer, so nothing is known.
	ErrUnavailable = errors.New("the token can't be checked now")
)

const (
	// maxMemory is how long a reviewed token is served from memory at most.
	maxMemory = 10 * time.Minute
	// refusalMemory is how long a refused token, or a pod that was not there,
	// is not asked about again.
	refusalMemory = 5 * time.Second
	// askTimeout bounds one question to the API server.
	askTimeout = 5 * time.Second
	// maxQuestions bounds the reviews in flight at the API server,
	// maxQuestionsOfOne those about one ServiceAccount, which wait included.
	maxQuestions      = 64
	maxQuestionsOfOne = 16
	// maxRefused bounds the reviews of one ServiceAccount in a second that end in
	// a refusal. Beside a flood of forged tokens, a good one that is new gets its
	// turn within seconds; without a bound, the flood would be the API server's.
	maxRefused = 200
	// maxLooks bounds the live reads of pods in flight, of one plugin each.
	maxLooks = 32
	// maxTokens bounds the tokens in memory; a pod has one or two at a time.
	maxTokens = 16 << 10
	// maxRefusals bounds the refused tokens and the absent pods in memory.
	maxRefusals = 4 << 10
)

// Principal is who calls: an installation, through one pod.
type Principal struct {
	InstallationID   string
	InstallationName string
	PluginID         string

	ServiceAccount    Account
	ServiceAccountUID string
	PodName           string
	PodUID            string
	// CredentialID names the token itself, for audit; "" where the API server
	// gives none.
	CredentialID string
}

// Config is what an Authenticator is made of.
type Config struct {
	Reviewer  Reviewer
	Cluster   Cluster
	Directory Directory
	// Now is the clock. Only its monotonic reading is compared, but with the
	// expiry that a token names.
	Now func() time.Time
	// Observer may be nil.
	Observer Observer
}

// Authenticator verifies bearer tokens. It is safe for concurrent use.
type Authenticator struct {
	reviewer  Reviewer
	cluster   Cluster
	directory Directory
	now       func() time.Time
	observer  Observer

	tokens    *memory[tokenKey, *verified]
	refused   *memory[tokenKey, string]
	absent    *memory[podKey, string]
	asking    singleflight.Group
	questions *places
	refusals  *budget
	looking   chan struct{}

	made time.Time
	// standings are by account. The map is replaced, never changed.
	standings atomic.Pointer[map[Account]*standing]
	mu        sync.Mutex
	// arrived wakes Start when an account has come.
	arrived chan struct{}
}

// tokenKey is the SHA-256 of a token: the memory holds no token.
type tokenKey [sha256.Size]byte

// keyOf reads the token in place: a copy of it is the largest cost of a call
// with a known token.
func keyOf(token string) tokenKey {
	return sha256.Sum256(unsafe.Slice(unsafe.StringData(token), len(token))) //nolint:gosec // only read
}

// podKey is a pod as a token names it, with its ServiceAccount. A token that
// names another pod with the UID of a running one must say nothing about the
// latter.
type podKey struct {
	account               Account
	accountUID, name, uid string
	// workloadOf is the installation that it must belong to, "" for none.
	workloadOf string
}

// verified is what the API server vouched for.
type verified struct {
	account      Account
	accountUID   string
	podName      string
	podUID       string
	credentialID string
}

// NewAuthenticator returns an authenticator over its ports.
func NewAuthenticator(config Config) *Authenticator {
	a := &Authenticator{
		reviewer: config.Reviewer, cluster: config.Cluster, directory: config.Directory, now: config.Now,
		observer:  config.Observer,
		tokens:    newMemory[tokenKey, *verified](maxTokens),
		refused:   newMemory[tokenKey, string](maxRefusals),
		absent:    newMemory[podKey, string](maxRefusals),
		questions: newPlaces(maxQuestions, maxQuestionsOfOne),
		refusals:  newBudget(maxRefused),
		looking:   make(chan struct{}, maxLooks),
		made:      config.Now(), arrived: make(chan struct{}, 1),
	}
	if a.observer == nil {
		a.observer = unobserved{}
	}
	a.standings.Store(&map[Account]*standing{})
	return a
}

// Authenticate returns the principal that a bearer token proves at this
// moment. Errors are ErrUnauthenticated or ErrUnavailable, wrapped.
func (a *Authenticator) Authenticate(ctx context.Context, bearer string) (Principal, error) {
	principal, err := a.authenticate(ctx, bearer)
	if err != nil {
		a.observer.Refused(causeOf(err))
	}
	return principal, err
}

// Refuses says at once, by what this process knows and without asking anybody, that
// a bearer token proves nothing at this moment; nil says that Authenticate has to
// look. Its errors are those of Authenticate.
func (a *Authenticator) Refuses(bearer string) error {
	now := a.now()
	key := keyOf(bearer)
	if _, ok := a.tokens.get(key, now); ok {
		return nil
	}
	said, _, err := a.claims(key, bearer, now)
	if err == nil && !a.refusals.left(said.account, now) {
		err = unavailable(CauseCrowded, errFlooded)
	}
	if err != nil {
		a.observer.Refused(causeOf(err))
	}
	return err
}

func (a *Authenticator) authenticate(ctx context.Context, bearer string) (Principal, error) {
	now := a.now()
	key := keyOf(bearer)
	token, ok := a.tokens.get(key, now)
	if !ok {
		var err error
		if token, err = a.verify(ctx, key, bearer, now); err != nil {
			return Principal{}, err
		}
	}
	registration, err := a.registered(token.account, token.accountUID)
	if err != nil {
		return Principal{}, err
	}
	if err := a.checkPrincipal(ctx, podKey{token.account, token.accountUID, token.podName, token.podUID, registration.WorkloadOf}, now); err != nil {
		return Principal{}, err
	}
	return Principal{
		InstallationID: registration.InstallationID, InstallationName: registration.InstallationName,
		PluginID: registration.PluginID, ServiceAccount: token.account, ServiceAccountUID: token.accountUID,
		PodName: token.podName, PodUID: token.podUID, CredentialID: token.credentialID,
	}, nil
}

// registered returns the one installation of a ServiceAccount, if it was pinned
// to this very object.
func (a *Authenticator) registered(account Account, uid string) (Registration, error) {
	registration, ok := a.directory.Registration(account)
	switch {
	case registration.Unknown:
		return Registration{}, unavailable(CauseUnsynced, errUnsynced)
	case !ok:
		return Registration{}, refuse(CauseRegistration, "no installation names the ServiceAccount")
	case registration.Conflict:
		return Registration{}, refuse(CauseRegistration, "more than one installation names the ServiceAccount")
	case registration.InstallationID == "", uid == "", registration.ServiceAccountUID != uid:
		return Registration{}, refuse(CauseRegistration, "the ServiceAccount is not the one that the installation was pinned to")
	}
	return registration, nil
}

var errUnsynced = errors.New("the installations have not all been seen")

const (
	// noPrincipal is one text: which of the two is gone is for whoever reads the
	// cluster.
	noPrincipal    = "the pod or its ServiceAccount does not exist, or is being deleted"
	notTheWorkload = "the pod is none that the installation's workload runs"
)

// checkPrincipal refuses unless the pod of this UID runs under the ServiceAccount of
// this UID, and belongs to the installation whose workload it must be. What was seen
// lets a call in while it is young enough; what it does not show is looked for once
// more, since the pod may be newer. Only "not there" is remembered: a UID never comes
// back, and what controls a pod is there before it.
func (a *Authenticator) checkPrincipal(ctx context.Context, pod podKey, now time.Time) error {
	st := a.standing(pod.account)
	owned := pod.workloadOf != ""
	s, err := a.current(ctx, st, now, owned)
	if err != nil {
		return err
	}
	why, final := s.proves(pod.accountUID, pod.name, pod.uid, pod.workloadOf)
	if why == "" {
		return nil
	}
	if absent, ok := a.absent.get(pod, now); ok || final {
		if ok {
			why = absent
		}
		return refuse(CausePrincipal, why)
	}
	if s, err = a.look(ctx, st, now, owned); err != nil {
		return err
	}
	if why, _ = s.proves(pod.accountUID, pod.name, pod.uid, pod.workloadOf); why == "" {
		return nil
	}
	now = a.now()
	a.absent.put(pod, why, now, now.Add(refusalMemory))
	return refuse(CausePrincipal, why)
}

// verify asks the API server about a token that is not in memory. What the
// token says of itself must hold first, so that only a token of a registered
// ServiceAccount with a running pod costs a review.
func (a *Authenticator) verify(ctx context.Context, key tokenKey, bearer string, now time.Time) (*verified, error) {
	said, registration, err := a.claims(key, bearer, now)
	if err != nil {
		return nil, err
	}
	if err := a.checkPrincipal(ctx, podKey{said.account, said.accountUID, said.podName, said.podUID, registration.WorkloadOf}, now); err != nil {
		return nil, err
	}
	if !a.refusals.left(said.account, now) {
		return nil, unavailable(CauseCrowded, errFlooded)
	}
	return a.ask(ctx, key, bearer, said)
}

// claims returns what a token that is not in memory says of itself, and the
// registration of its ServiceAccount, unless it is refused already.
func (a *Authenticator) claims(key tokenKey, bearer string, now time.Time) (claims, Registration, error) {
	said, err := parseClaims(bearer)
	if err != nil {
		return claims{}, Registration{}, &failure{CauseShape, ErrUnauthenticated, err}
	}
	if !now.Before(said.expires) {
		return claims{}, Registration{}, refuse(CauseExpired, "the token has expired")
	}
	if why, ok := a.refused.get(key, now); ok {
		return claims{}, Registration{}, refuse(CauseReview, why)
	}
	registration, err := a.registered(said.account, said.accountUID)
	return said, registration, err
}

// ask puts the question about a token to the API server, together with everyone
// who has the same one. A caller that goes away takes nothing from the others.
func (a *Authenticator) ask(ctx context.Context, key tokenKey, bearer string, said claims) (*verified, error) {
	answer := a.asking.DoChan(string(key[:]), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		if !a.questions.take(ctx, said.account) {
			return nil, unavailable(CauseCrowded, errCrowded)
		}
		defer a.questions.leave(said.account)
		return a.review(ctx, key, bearer, said)
	})
	select {
	case result := <-answer:
		if result.Err != nil {
			return nil, result.Err
		}
		return result.Val.(*verified), nil //nolint:errcheck,forcetypeassert // what review returns
	case <-ctx.Done():
		return nil, unavailable(CauseNoAnswer, context.Cause(ctx))
	}
}

var (
	errCrowded = errors.New("too many questions to the API server are in flight")
	errFlooded = errors.New("too many tokens of the ServiceAccount were refused a moment ago")
)

func (a *Authenticator) review(ctx context.Context, key tokenKey, bearer string, said claims) (*verified, error) {
	// A review that ended since this caller looked is the answer.
	if token, ok := a.tokens.get(key, a.now()); ok {
		return token, nil
	}
	if why, ok := a.refused.get(key, a.now()); ok {
		return nil, refuse(CauseReview, why)
	}
	begun := a.now()
	review, err := a.reviewer.Review(ctx, bearer, contract.Audience)
	now := a.now()
	if err != nil {
		a.observer.Reviewed(AnswerNone, now.Sub(begun))
		return nil, unavailable(CauseNoAnswer, fmt.Errorf("review the token: %w", err))
	}
	if why := said.disagree(review); why != "" {
		a.observer.Reviewed(AnswerRefused, now.Sub(begun))
		a.refusals.spend(said.account, now)
		a.refused.put(key, why, now, now.Add(refusalMemory))
		return nil, refuse(CauseReview, why)
	}
	a.observer.Reviewed(AnswerAccepted, now.Sub(begun))
	until := now.Add(maxMemory)
	if said.expires.Before(until) {
		until = said.expires
	}
	token := &verified{
		account: said.account, accountUID: review.UID, podName: said.podName, podUID: review.PodUID,
		credentialID: review.CredentialID,
	}
	a.tokens.put(key, token, now, until)
	return token, nil
}

// disagree says why the API server's answer does not prove what the token says
// of itself; "" when it does.
func (c claims) disagree(r Review) string {
	switch {
	case !r.Authenticated:
		return "the API server does not accept the token"
	case !slices.Contains(r.Audiences, contract.Audience):
		return "the API server does not accept the token for this audience"
	case r.Username != serviceAccountPrefix+c.account.Namespace+":"+c.account.Name || r.UID != c.accountUID:
		return "the token belongs to another ServiceAccount"
	case r.PodUID == "" || r.PodUID != c.podUID || r.PodName != c.podName:
		return "the token is not bound to its pod"
	}
	return ""
}

// failure is an error of Authenticate: ErrUnauthenticated or ErrUnavailable,
// and why.
type failure struct {
	cause Cause
	kind  error
	err   error
}

func (f *failure) Error() string { return f.kind.Error() + ": " + f.err.Error() }

func (f *failure) Unwrap() []error { return []error{f.kind, f.err} }

func refuse(cause Cause, why string) error {
	return &failure{cause, ErrUnauthenticated, errors.New(why)}
}

func unavailable(cause Cause, err error) error { return &failure{cause, ErrUnavailable, err} }

func causeOf(err error) Cause {
	var f *failure
	if errors.As(err, &f) {
		return f.cause
	}
	return CauseNoAnswer
}
