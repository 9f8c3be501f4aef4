package identity

import "context"

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

// Pods knows the pods of the cluster.
type Pods interface {
	// Pod answers from a watch. It must neither block nor allocate; a pod that
	// the watch has not shown yet is not found.
	Pod(namespace, name string) (Pod, bool)
	// Live asks the API server. An error means that it gave no answer.
	Live(ctx context.Context, namespace, name string) (Pod, bool, error)
}

// Pod is what matters of a pod.
type Pod struct {
	UID string
	// Deleting: it has a deletion timestamp.
	Deleting bool
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
	// Conflict: another installation names the same ServiceAccount. Neither is
	// derived from it.
	Conflict bool
	// Unknown: not everything has been seen that decides whose the
	// ServiceAccount is. Then nothing is known, not even that it is nobody's.
	Unknown bool
}
