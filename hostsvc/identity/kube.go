package identity

import (
	"context"
	"fmt"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The extra values of a bound token (kubernetes.io, "TokenReview").
const (
	extraPodName      = "authentication.kubernetes.io/pod-name"
	extraPodUID       = "authentication.kubernetes.io/pod-uid"
	extraCredentialID = "authentication.kubernetes.io/credential-id"
)

// KubeReviewer reviews tokens by TokenReview. Its identity needs `create` on
// `tokenreviews.authentication.k8s.io`.
type KubeReviewer struct {
	reviews authenticationclient.TokenReviewInterface
}

// NewKubeReviewer returns a reviewer with a connection pool of its own, so that
// no other client's rate limit delays a call. The Authenticator bounds what is
// in flight.
func NewKubeReviewer(config *rest.Config) (*KubeReviewer, error) {
	own := rest.CopyConfig(config)
	own.QPS = -1
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

// KubePods follows the cluster's pods by a metadata-only watch and keeps of
// each its name, its UID and whether it is being deleted. Its identity needs
// `get`, `list` and `watch` on pods.
type KubePods struct {
	live client.Reader

	mu   sync.RWMutex
	pods map[podName]Pod
}

type podName struct{ namespace, name string }

// NewKubePods registers the watch with a cache, which must not be started
// before, or be running already; live reads past any cache.
func NewKubePods(ctx context.Context, informers cache.Cache, live client.Reader) (*KubePods, error) {
	p := &KubePods{live: live, pods: map[podName]Pod{}}
	informer, err := informers.GetInformer(ctx, podMetadata(), cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    p.observe,
		UpdateFunc: func(_, after any) { p.observe(after) },
		DeleteFunc: p.forget,
	}); err != nil {
		return nil, fmt.Errorf("handle pods: %w", err)
	}
	return p, nil
}

func podMetadata() *metav1.PartialObjectMetadata {
	pod := &metav1.PartialObjectMetadata{}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	return pod
}

func (p *KubePods) observe(object any) {
	pod, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	state := podOf(pod)
	p.mu.Lock()
	p.pods[podName{pod.Namespace, pod.Name}] = state
	p.mu.Unlock()
}

func (p *KubePods) forget(object any) {
	if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	pod, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	p.mu.Lock()
	delete(p.pods, podName{pod.Namespace, pod.Name})
	p.mu.Unlock()
}

// Pod implements Pods.
func (p *KubePods) Pod(namespace, name string) (Pod, bool) {
	p.mu.RLock()
	pod, ok := p.pods[podName{namespace, name}]
	p.mu.RUnlock()
	return pod, ok
}

// Live implements Pods.
func (p *KubePods) Live(ctx context.Context, namespace, name string) (Pod, bool, error) {
	pod := podMetadata()
	err := p.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pod)
	if apierrors.IsNotFound(err) {
		return Pod{}, false, nil
	}
	if err != nil {
		return Pod{}, false, fmt.Errorf("read pod %s/%s: %w", namespace, name, err)
	}
	return podOf(pod), true, nil
}

func podOf(pod *metav1.PartialObjectMetadata) Pod {
	return Pod{UID: string(pod.UID), Deleting: pod.DeletionTimestamp != nil}
}
