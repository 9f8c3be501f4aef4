package identity

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A pod that the controllers run is controlled by a ReplicaSet, which is controlled by
// the Deployment, which is controlled by the installation. Each step is compared by UID
// with the object that is there now: what was made anew under an old name owns nothing.
//
// It tells what the cluster runs from what somebody else put beside it, a Job, a bare
// pod, another deployment. It is no wall: whoever may create pods writes their owner
// references, and the controller of that ReplicaSet takes such a pod for one of its own.

// link is one step of the way from a pod to its installation: what an object must be
// controlled by. Its last one is not read: installations are the Directory's.
type link struct {
	controller schema.GroupKind
	resource   schema.GroupVersionResource
}

// chain returns the steps, in their order.
func chain() []link {
	return []link{
		{appsv1.SchemeGroupVersion.WithKind("ReplicaSet").GroupKind(), appsv1.SchemeGroupVersion.WithResource("replicasets")},
		{appsv1.SchemeGroupVersion.WithKind("Deployment").GroupKind(), appsv1.SchemeGroupVersion.WithResource("deployments")},
		{controller: schema.GroupKind{Group: "plugins.kandev.ai", Kind: "PluginInstallation"}},
	}
}

// owners finds the installations of pods, and reads each object on the way once.
type owners struct {
	get func(ctx context.Context, resource schema.GroupVersionResource, name string) (*metav1.PartialObjectMetadata, error)
	// known is the installation that a controller leads to.
	known map[controller]string
}

// controller is an object as a reference names it: one whose name and UID don't go
// together names nothing.
type controller struct{ kind, name, uid string }

// installation returns the UID of the installation that a pod belongs to, "" for none.
func (o *owners) installation(ctx context.Context, pod metav1.Object) (string, error) {
	return o.follow(ctx, pod, chain())
}

func (o *owners) follow(ctx context.Context, object metav1.Object, steps []link) (string, error) {
	reference := metav1.GetControllerOfNoCopy(object)
	if reference == nil || reference.Kind != steps[0].controller.Kind {
		return "", nil
	}
	group, err := schema.ParseGroupVersion(reference.APIVersion)
	if err != nil || group.Group != steps[0].controller.Group {
		return "", nil //nolint:nilerr // no such group has a controller of ours
	}
	by := controller{reference.Kind, reference.Name, string(reference.UID)}
	if len(steps) == 1 {
		return by.uid, nil
	}
	if found, ok := o.known[by]; ok {
		return found, nil
	}
	if len(validation.NameIsDNSSubdomain(reference.Name, false)) > 0 {
		// Nothing can have that name, and no request could ask for it: one such pod
		// would leave all the others unknown.
		return "", nil
	}
	owner, err := o.get(ctx, steps[0].resource, reference.Name)
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read %s %s: %w", reference.Kind, reference.Name, err)
	}
	found := ""
	if string(owner.UID) == by.uid && owner.DeletionTimestamp == nil {
		if found, err = o.follow(ctx, owner, steps[1:]); err != nil {
			return "", err
		}
	}
	o.known[by] = found
	return found, nil
}
