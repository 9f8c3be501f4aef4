package identity

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	// maxQuestions bounds the questions to the API server in flight,
	// maxQuestionsOfOne those about one ServiceAccount.
	maxQuestions      = 64
	maxQuestionsOfOne = 16
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

// Authenticator verifies bearer tokens. It is safe for concurrent use.
type Authenticator struct {
	reviewer  Reviewer
	pods      Pods
	directory Directory
	now       func() time.Time

	tokens    *memory[tokenKey, *verified]
	refused   *memory[tokenKey, string]
	absent    *memory[podKey, struct{}]
	asking    singleflight.Group
	questions *places
}

// tokenKey is the SHA-256 of a token: the memory holds no token.
type tokenKey [sha256.Size]byte

// keyOf reads the token in place: a copy of it is the largest cost of a call
// with a known token.
func keyOf(token string) tokenKey {
	return sha256.Sum256(unsafe.Slice(unsafe.StringData(token), len(token))) //nolint:gosec // only read
}

// podKey is a pod as a token names it. A token that names another pod with the
// UID of a running one must say nothing about the latter.
type podKey struct{ namespace, name, uid string }

// verified is what the API server vouched for.
type verified struct {
	account      Account
	accountUID   string
	podName      string
	podUID       string
	credentialID string
}

// NewAuthenticator returns an authenticator over its ports.
func NewAuthenticator(reviewer Reviewer, pods Pods, directory Directory, now func() time.Time) *Authenticator {
	return &Authenticator{
		reviewer: reviewer, pods: pods, directory: directory, now: now,
		tokens:    newMemory[tokenKey, *verified](maxTokens),
		refused:   newMemory[tokenKey, string](maxRefusals),
		absent:    newMemory[podKey, struct{}](maxRefusals),
		questions: newPlaces(maxQuestions, maxQuestionsOfOne),
	}
}

// Authenticate returns the principal that a bearer token proves at this
// moment. Errors are ErrUnauthenticated or ErrUnavailable, wrapped.
func (a *Authenticator) Authenticate(ctx context.Context, bearer string) (Principal, error) {
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
	if err := a.checkPod(ctx, token.account, token.podName, token.podUID, now); err != nil {
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
		return Registration{}, fmt.Errorf("%w: the installations have not all been seen", ErrUnavailable)
	case !ok:
		return Registration{}, refuse("no installation names the ServiceAccount")
	case registration.Conflict:
		return Registration{}, refuse("more than one installation names the ServiceAccount")
	case registration.InstallationID == "", uid == "", registration.ServiceAccountUID != uid:
		return Registration{}, refuse("the ServiceAccount is not the one that the installation was pinned to")
	}
	return registration, nil
}

// checkPod refuses unless the pod of this UID exists and is not being deleted.
// The watch decides; where it has not shown this pod, or shows another one of
// the name, a live read does: a watch may lag. Only "not there" is remembered,
// a UID never comes back; "there" is the watch's to say.
func (a *Authenticator) checkPod(ctx context.Context, account Account, name, uid string, now time.Time) error {
	pod, found := a.pods.Pod(account.Namespace, name)
	if !found || pod.UID != uid {
		return a.checkLivePod(ctx, account, name, uid, now)
	}
	if pod.Deleting {
		return refuse("the pod is being deleted")
	}
	return nil
}

func (a *Authenticator) checkLivePod(ctx context.Context, account Account, name, uid string, now time.Time) error {
	key := podKey{account.Namespace, name, uid}
	if _, absent := a.absent.get(key, now); absent {
		return refuse("the pod does not exist, or is being deleted")
	}
	question := strings.Join([]string{"pod", account.Namespace, account.Name, name, uid}, "\x00")
	_, err := a.ask(ctx, account, question, func(ctx context.Context) (any, error) {
		pod, found, err := a.pods.Live(ctx, account.Namespace, name)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: read the pod: %w", ErrUnavailable, err)
		case !found || pod.UID != uid || pod.Deleting:
			now := a.now()
			a.absent.put(key, struct{}{}, now, now.Add(refusalMemory))
			return nil, refuse("the pod does not exist, or is being deleted")
		}
		return nil, nil //nolint:nilnil // the answer is that nothing is wrong
	})
	return err
}

// verify asks the API server about a token that is not in memory. What the
// token says of itself must hold first, so that only a token of a registered
// ServiceAccount with a running pod costs a review.
func (a *Authenticator) verify(ctx context.Context, key tokenKey, bearer string, now time.Time) (*verified, error) {
	said, err := parseClaims(bearer)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnauthenticated, err)
	}
	if !now.Before(said.expires) {
		return nil, refuse("the token has expired")
	}
	if why, ok := a.refused.get(key, now); ok {
		return nil, refuse(why)
	}
	if _, err := a.registered(said.account, said.accountUID); err != nil {
		return nil, err
	}
	if err := a.checkPod(ctx, said.account, said.podName, said.podUID, now); err != nil {
		return nil, err
	}
	token, err := a.ask(ctx, said.account, "token\x00"+string(key[:]), func(ctx context.Context) (any, error) {
		return a.review(ctx, key, bearer, said)
	})
	if err != nil {
		return nil, err
	}
	return token.(*verified), nil //nolint:errcheck,forcetypeassert // what review returns
}

func (a *Authenticator) review(ctx context.Context, key tokenKey, bearer string, said claims) (*verified, error) {
	// A review that ended since this caller looked is the answer.
	if token, ok := a.tokens.get(key, a.now()); ok {
		return token, nil
	}
	if why, ok := a.refused.get(key, a.now()); ok {
		return nil, refuse(why)
	}
	review, err := a.reviewer.Review(ctx, bearer, contract.Audience)
	if err != nil {
		return nil, fmt.Errorf("%w: review the token: %w", ErrUnavailable, err)
	}
	now := a.now()
	if why := said.disagree(review); why != "" {
		a.refused.put(key, why, now, now.Add(refusalMemory))
		return nil, refuse(why)
	}
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
	case strings.TrimPrefix(r.Username, serviceAccountPrefix) != c.account.Namespace+":"+c.account.Name || r.UID != c.accountUID:
		return "the token belongs to another ServiceAccount"
	case r.PodUID == "" || r.PodUID != c.podUID || r.PodName != c.podName:
		return "the token is not bound to its pod"
	}
	return ""
}

// ask puts one question about an account to the API server, together with
// everyone who has the same one. A caller that goes away takes nothing from the
// others.
func (a *Authenticator) ask(ctx context.Context, account Account, key string, question func(context.Context) (any, error)) (any, error) {
	answer := a.asking.DoChan(key, func() (any, error) {
		if !a.questions.take(account) {
			return nil, fmt.Errorf("%w: too many questions to the API server are in flight", ErrUnavailable)
		}
		defer a.questions.leave(account)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		return question(ctx)
	})
	select {
	case result := <-answer:
		return result.Val, result.Err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
}

func refuse(why string) error { return fmt.Errorf("%w: %s", ErrUnauthenticated, why) }
