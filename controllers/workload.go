package controllers

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/controllers/kinds"
)

// Workloads are how the plugins of installations with spec.workload run.
type Workloads struct {
	// HostAddress is what plugins dial, host:port; required for any to run.
	HostAddress string
	// HostPort is the port of the Host's pods behind it.
	HostPort int32
	// HostLabels select the Host's pods in its namespace.
	HostLabels map[string]string
	// CAFile holds the authorities that plugins verify the Host by, PEM; read again
	// each minute.
	CAFile string
	// LauncherImage is the default of spec.workload.image, "" for none.
	LauncherImage string
	// UserNamespaces says whether pods have users of their own; nil: where the API
	// server is of 1.36 or later, which always can.
	UserNamespaces *bool
}

// userNamespacesSince is the version from which the API server always knows them.
const userNamespacesSince = "1.36"

// userNamespaces decides what was left to the cluster.
func (w *Workloads) userNamespaces(config *rest.Config) (bool, error) {
	if w.UserNamespaces != nil {
		return *w.UserNamespaces, nil
	}
	server, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return false, fmt.Errorf("make the client for the API server's version: %w", err)
	}
	info, err := server.ServerVersion()
	if err != nil {
		return false, fmt.Errorf("ask for the API server's version: %w", err)
	}
	version, err := utilversion.ParseGeneric(info.GitVersion)
	if err != nil {
		return false, fmt.Errorf("read the API server's version %q: %w", info.GitVersion, err)
	}
	return version.AtLeast(utilversion.MustParseGeneric(userNamespacesSince)), nil
}

// host is what pods are told, as it is now.
func (w *Workloads) host(namespace string, userNamespaces bool) (*kinds.WorkloadHost, error) {
	if w.HostAddress == "" || w.CAFile == "" {
		return nil, errors.New("the Host was given no address or no CA for the plugins that it runs")
	}
	text, err := os.ReadFile(w.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read the CA for the plugins that the Host runs: %w", err)
	}
	ca, err := certificatesOf(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.CAFile, err)
	}
	return &kinds.WorkloadHost{
		Address: w.HostAddress, CA: ca, Namespace: namespace, PodLabels: w.HostLabels, Port: w.HostPort,
		LauncherImage: w.LauncherImage, UserNamespaces: userNamespaces,
	}, nil
}

// certificatesOf keeps the certificates of a file, and nothing secret that may be
// beside them.
func certificatesOf(text []byte) (string, error) {
	var kept []byte
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return "", fmt.Errorf("parse a certificate: %w", err)
		}
		kept = append(kept, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
	}
	if len(kept) == 0 {
		return "", errors.New("holds no PEM certificate")
	}
	return string(kept), nil
}

// refusal is why nothing can run now, for people.
type refusal struct{ reason, message string }

func (r *refusal) Error() string { return r.reason + ": " + r.message }

func (r *refusal) condition() metav1.Condition {
	return condition(v1alpha1.ConditionWorkloadReady, false, r.reason, shorten(r.message))
}

// refusedBy is the API server's refusal of what spec.workload asks for, or another
// error as it is.
func (r *workloadReconciler) refusedBy(object *v1alpha1.PluginInstallation, err error) error {
	namespace := object.Spec.ServiceAccountRef.Namespace
	switch {
	case apierrors.IsForbidden(err):
		return &refusal{v1alpha1.ReasonForbidden, fmt.Sprintf("%v; if that is a missing right, a platform admin lets the Host run plugins in %s with a RoleBinding there of the ClusterRole plugin-host-workloads", err, namespace)}
	case apierrors.IsInvalid(err) && object.Spec.Workload != nil && object.Spec.Workload.PackageImage != "":
		return &refusal{v1alpha1.ReasonRejected, fmt.Sprintf("%v; spec.workload.packageImage needs a cluster of 1.35 or later: else use an image that holds the launcher and the package", err)}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsNotFound(err):
		return &refusal{v1alpha1.ReasonRejected, err.Error()}
	default:
		return err
	}
}

// unresolved says what a pod names and can't get, "" for nothing.
func unresolved(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		// The scheduler has no reason of its own for a claim.
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && strings.Contains(strings.ToLower(c.Message), "persistentvolumeclaim") {
			return c.Message
		}
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if s.State.Waiting == nil {
			continue
		}
		switch s.State.Waiting.Reason {
		case "CreateContainerConfigError", "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
			return s.State.Waiting.Reason + ": " + s.State.Waiting.Message
		}
	}
	return ""
}

// workloadReady is what a deployment says of its pod.
func workloadReady(o *v1alpha1.PluginInstallation, d *appsv1.Deployment) metav1.Condition {
	no := func(reason, message string) metav1.Condition {
		return condition(v1alpha1.ConditionWorkloadReady, false, reason, message)
	}
	where := "deployment " + d.Namespace + "/" + d.Name
	wanted := int32(1)
	if d.Spec.Replicas != nil {
		wanted = *d.Spec.Replicas
	}
	current := d.Status.ObservedGeneration >= d.Generation
	switch {
	case d.DeletionTimestamp != nil:
		return no(v1alpha1.ReasonStopping, "the former "+where+" ends first")
	case wanted == 0 && d.Status.Replicas > 0:
		return no(v1alpha1.ReasonStopping, "the pod of "+where+" ends")
	case o.Spec.Suspend:
		return no(string(v1alpha1.GateSuspended), "nothing runs: "+gateMessages["Suspended"])
	case wanted == 0:
		return no(v1alpha1.ReasonScaledToZero, "nothing runs: spec.workload.replicas is 0")
	case !current:
		return no(v1alpha1.ReasonStarting, where+" is being rolled out")
	}
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue ||
			c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse {
			return no(v1alpha1.ReasonStuck, shorten(where+": "+c.Message))
		}
	}
	if d.Status.UpdatedReplicas < wanted || d.Status.AvailableReplicas < wanted {
		return no(v1alpha1.ReasonStarting, "the pod of "+where+" isn't ready; its events and its log say why, if that stays")
	}
	message := where + " runs it"
	if w := o.Spec.Workload; !kinds.Pinned(w.Image) || !kinds.Pinned(w.PackageImage) {
		message += "; an image of spec.workload names no digest, so that what runs can be another one than was reviewed"
	}
	return condition(v1alpha1.ConditionWorkloadReady, true, v1alpha1.ReasonRunning, message)
}
