package identity

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// The extra values of a bound token (kubernetes.io, "TokenReview").
const (
	extraPodName      = "authentication.kubernetes.io/pod-name"
	extraPodUID       = "authentication.kubernetes.io/pod-uid"
	extraCredentialID = "authentication.kubernetes.io/credential-id"
)

// fieldServiceAccountName is the API server's field selector on pods.
const fieldServiceAccountName = "spec.serviceAccountName"

const (
	// connectTimeout bounds one attempt to connect to the API server.
	connectTimeout = 3 * time.Second
	// watchLife is when the API server is asked to end a watch, so that one that
	// has gone silent is replaced.
	watchLife = 5 * time.Minute
)

// ownConnections returns config with connections of its own and no limit of
// the client's: no other client delays a call, and no call delays another
// client, the leader's lease before all. The Authenticator bounds what is in
// flight.
func ownConnections(config *rest.Config) *rest.Config {
	own := rest.CopyConfig(config)
	own.QPS = -1
	// Clients of equal settings share their connections; a dialer is compared by
	// its address.
	own.Dial = (&net.Dialer{Timeout: connectTimeout}).DialContext
	return own
}

// KubeReviewer reviews tokens by TokenReview. Its identity needs `create` on
// `tokenreviews.authentication.k8s.io`.
type KubeReviewer struct {
	reviews authenticationclient.TokenReviewInterface
}

// NewKubeReviewer returns a reviewer with connections of its own.
func NewKubeReviewer(config *rest.Config) (*KubeReviewer, error) {
	own := ownConnections(config)
	own.Timeout = askTimeout
	authentication, err := authenticationclient.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("create the client for token reviews: %w", err)
	}
	return &KubeReviewer{reviews: authentication.TokenReviews()}, nil
}

// Review implements Reviewer.
func (r *KubeReviewer) Review(ctx context.Context, token, audience string) (Review, error) {
	answer, err := r.reviews.Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return Review{}, fmt.Errorf("create a token review: %w", err)
	}
	user := answer.Status.User
	return Review{
		Authenticated: answer.Status.Authenticated, Audiences: answer.Status.Audiences,
		Username: user.Username, UID: user.UID, PodName: only(user.Extra[extraPodName]),
		PodUID: only(user.Extra[extraPodUID]), CredentialID: only(user.Extra[extraCredentialID]),
	}, nil
}

// only returns the single value of an extra; several prove nothing.
func only(values authenticationv1.ExtraValue) string {
	if len(values) != 1 {
		return ""
	}
	return values[0]
}

// KubeCluster reads and follows the metadata of plugins' pods and
// ServiceAccounts, and of no others: its cost follows the plugins, not the
// cluster. Its identity needs `get` on ServiceAccounts, `list` and `watch` on pods,
// and where the controllers run plugins `get` on ReplicaSets and Deployments.
type KubeCluster struct {
	objects metadata.Interface
}

// NewKubeCluster returns a cluster with connections of its own.
func NewKubeCluster(config *rest.Config) (*KubeCluster, error) {
	objects, err := metadata.NewForConfig(ownConnections(config))
	if err != nil {
		return nil, fmt.Errorf("create the client for pods: %w", err)
	}
	return &KubeCluster{objects: objects}, nil
}

func (c *KubeCluster) pods(account Account) (metadata.ResourceInterface, metav1.ListOptions) {
	return c.objects.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(account.Namespace),
		metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(fieldServiceAccountName, account.Name).String()}
}

// Look implements Cluster. The ServiceAccount is read first: the pods that come
// with it are then no older. What owns the pods is read after them.
func (c *KubeCluster) Look(ctx context.Context, account Account, owned bool) (Sighting, error) {
	s := Sighting{Owned: owned}
	serviceAccount, err := c.objects.Resource(corev1.SchemeGroupVersion.WithResource("serviceaccounts")).
		Namespace(account.Namespace).Get(ctx, account.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return s, fmt.Errorf("read ServiceAccount %s/%s: %w", account.Namespace, account.Name, err)
	case serviceAccount.DeletionTimestamp == nil:
		s.AccountUID = string(serviceAccount.UID)
	}
	pods, options := c.pods(account)
	list, err := pods.List(ctx, options)
	if err != nil {
		return s, fmt.Errorf("list the pods of ServiceAccount %s/%s: %w", account.Namespace, account.Name, err)
	}
	s.Version, s.Pods = list.ResourceVersion, make(map[string]Pod, len(list.Items))
	of := owners{known: map[controller]string{}, get: func(ctx context.Context, resource schema.GroupVersionResource, name string) (*metav1.PartialObjectMetadata, error) {
		return c.objects.Resource(resource).Namespace(account.Namespace).Get(ctx, name, metav1.GetOptions{})
	}}
	for i := range list.Items {
		pod := &list.Items[i]
		seen := Pod{UID: string(pod.UID), Deleting: pod.DeletionTimestamp != nil}
		if owned && !seen.Deleting {
			if seen.Installation, err = of.installation(ctx, pod); err != nil {
				return s, fmt.Errorf("find what runs pod %s/%s: %w", pod.Namespace, pod.Name, err)
			}
		}
		s.Pods[pod.Name] = seen
	}
	return s, nil
}

// Follow implements Cluster.
func (c *KubeCluster) Follow(ctx context.Context, account Account, from Sighting, gone func(podUID string)) error {
	pods, options := c.pods(account)
	life := int64(watchLife.Seconds())
	options.ResourceVersion, options.TimeoutSeconds = from.Version, &life
	events, err := pods.Watch(ctx, options)
	if err != nil {
		return fmt.Errorf("watch the pods of ServiceAccount %s/%s: %w", account.Namespace, account.Name, err)
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		if event.Type == watch.Error {
			return fmt.Errorf("watch the pods of ServiceAccount %s/%s: %w", account.Namespace, account.Name, apierrors.FromObject(event.Object))
		}
		pod, ok := event.Object.(*metav1.PartialObjectMetadata)
		if !ok {
			return errors.New("the watch of pods delivered something else")
		}
		if event.Type == watch.Deleted || pod.DeletionTimestamp != nil {
			gone(string(pod.UID))
		}
	}
	return nil
}
