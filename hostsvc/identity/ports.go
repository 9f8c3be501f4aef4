package identity

import (
	"context"
	"time"
)

// Account names a ServiceAccount.
type Account struct {
	Namespace string
	Name      string
}

// Reviewer asks the API server about a token.
type Reviewer interface {
	// Review returns what the API server says of the token for one audience.
	// An error means that it gave no answer.
	Review(ctx context.Context, token, audience string) (Review, error)
}

// Review is the API server's answer about a token.
type Review struct {
	Authenticated bool
	// Audiences are those of the request that the token is good for.
	Audiences []string
	// Username is "system:serviceaccount:<namespace>:<name>" for a
	// ServiceAccount, and UID is that ServiceAccount's.
	Username     string
	UID          string
	PodName      string
	PodUID       string
	CredentialID string
}

// Cluster knows what stands behind a ServiceAccount.
type Cluster interface {
	// Look reads the ServiceAccount and its pods past every cache: what it
	// returns was so at some moment after the call. owned asks for the installations
	// of the pods too. An error means that the API server gave no answer.
	Look(ctx context.Context, account Account, owned bool) (Sighting, error)
	// Follow tells gone the UID of each pod of the account that is deleted, or
	// begins to be, after the sighting. It returns when the watch or ctx ends.
	// It may be late, or silent: it makes denial prompt, and nothing is allowed
	// because of it.
	Follow(ctx context.Context, account Account, from Sighting, gone func(podUID string)) error
}

// Sighting is a ServiceAccount with its pods at one moment.
type Sighting struct {
	// AccountUID is "" while there is no such ServiceAccount, or it is being
	// deleted.
	AccountUID string
	// Pods are by name.
	Pods map[string]Pod
	// Owned: the pods come with their installations.
	Owned bool
	// Version is what Follow starts from.
	Version string
}

// Pod is what matters of a pod.
type Pod struct {
	UID string
	// Deleting: it has a deletion timestamp.
	Deleting bool
	// Installation is the UID of the installation object that the pod's controllers
	// lead to, "" for none.
	Installation string
}

// Directory knows which installation a ServiceAccount was registered for.
type Directory interface {
	// Registration must neither block nor allocate. It is false for a
	// ServiceAccount that no installation names, and for one whose registration
	// is Unknown.
	Registration(account Account) (Registration, bool)
}

// Registration is one installation's claim on a ServiceAccount.
type Registration struct {
	InstallationID   string
	InstallationName string
	PluginID         string
	// ServiceAccountUID is the pinned one, "" while none is pinned: then no
	// token is accepted.
	ServiceAccountUID string
	// WorkloadOf is the UID of the installation's object if the controllers run its
	// plugin: then only pods that belong to it are the plugin's. "" means that somebody
	// else runs it, and any pod under the ServiceAccount is.
	WorkloadOf string
	// Conflict: another installation names the same ServiceAccount. Neither is
	// derived from it.
	Conflict bool
	// Unknown: not everything has been seen that decides whose the
	// ServiceAccount is. Then nothing is known, not even that it is nobody's.
	Unknown bool
}

// Observer is told how the checks end and what they cost, for metrics. It must
// not block.
type Observer interface {
	// Refused counts a token that proved nothing, or could not be checked.
	Refused(cause Cause)
	// Reviewed counts a question about a token to the API server.
	Reviewed(answer Answer, took time.Duration)
	// Looked counts a live read of a ServiceAccount and its pods.
	Looked(answered bool, took time.Duration)
}

// Cause is why a token was not accepted. There are no others.
type Cause string

// Causes of ErrUnauthenticated, and then of ErrUnavailable.
const (
	CauseShape        Cause = "shape"
	CauseExpired      Cause = "expired"
	CauseRegistration Cause = "registration"
	CausePrincipal    Cause = "principal"
	CauseReview       Cause = "review"

	CauseUnsynced Cause = "unsynced"
	CauseNoAnswer Cause = "no_answer"
	CauseCrowded  Cause = "crowded"
)

// Causes lists every cause.
var Causes = [...]Cause{
	CauseShape, CauseExpired, CauseRegistration, CausePrincipal, CauseReview, CauseUnsynced, CauseNoAnswer, CauseCrowded,
}

// Answer is how a question about a token ended.
type Answer string

// Answers of the API server.
const (
	AnswerAccepted Answer = "accepted"
	AnswerRefused  Answer = "refused"
	AnswerNone     Answer = "none"
)

// Answers lists every answer.
var Answers = [...]Answer{AnswerAccepted, AnswerRefused, AnswerNone}

// unobserved is an Observer that nobody listens to.
type unobserved struct{}

// Refused implements Observer.
func (unobserved) Refused(Cause) {}

// Reviewed implements Observer.
func (unobserved) Reviewed(Answer, time.Duration) {}

// Looked implements Observer.
func (unobserved) Looked(bool, time.Duration) {}
