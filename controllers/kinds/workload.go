package kinds

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
)

// Names in a plugin's pod.
const (
	// WorkloadContainer is the pod's one container.
	WorkloadContainer = "plugin"
	// WorkloadCASuffix is what the name of the ConfigMap with the Host's CA adds.
	WorkloadCASuffix = "-host-ca"
	// WorkloadTokenFile is the pod's token, WorkloadCAFile the CA of the Host.
	WorkloadTokenFile = "/var/run/secrets/kandev/token" //nolint:gosec // a path
	WorkloadCAFile    = "/var/run/kandev/ca/ca.crt"

	packageFolder  = "/plugin"
	platformFolder = "/var/run/secrets/kandev-platform"
	dataFolder     = "/var/lib/kandev-plugin"
	scratchFolder  = "/tmp"
	launcher       = "/plugin-launcher"
	caKey          = "ca.crt"
	platformToken  = "token"

	portHTTP   = 8080
	portHealth = 8081

	// workloadUser is nobody's on the node, and the group of the pod's volumes.
	workloadUser = 65532
	// tokenSeconds is how long a token lasts; the kubelet renews it well before.
	tokenSeconds = 3600
)

// WorkloadHost is what a plugin's pod has to know of the Host, and what of the
// cluster decides how the pod is made.
type WorkloadHost struct {
	// Address is what plugins dial, host:port.
	Address string
	// CA are the authorities that plugins verify the Host by, PEM.
	CA string
	// Namespace and PodLabels select the Host's pods, Port is the one that they
	// listen on.
	Namespace string
	PodLabels map[string]string
	Port      int32
	// LauncherImage is the default of spec.workload.image, "" for none.
	LauncherImage string
	// UserNamespaces gives the pod users of its own.
	UserNamespaces bool
}

// Workload is what runs a plugin.
type Workload struct {
	CA            *corev1.ConfigMap
	NetworkPolicy *networkingv1.NetworkPolicy
	Deployment    *appsv1.Deployment
}

// WorkloadName names what runs a plugin. Each installation ID has names of its
// own: what an uninstall left behind is never taken over.
func WorkloadName(o *v1alpha1.PluginInstallation) string {
	name := strings.ReplaceAll(o.Name, ".", "-")
	return strings.TrimRight(name[:min(len(name), 40)], "-") + "-" + o.Status.InstallationID[:min(len(o.Status.InstallationID), 8)]
}

// WorkloadLabels select what is made for an installation, its pods included.
func WorkloadLabels(o *v1alpha1.PluginInstallation) map[string]string {
	return map[string]string{v1alpha1.LabelInstallationID: o.Status.InstallationID}
}

// Pinned says whether an image is named by its digest.
func Pinned(image string) bool { return image == "" || strings.Contains(image, "@sha256:") }

// ErrNoLauncherImage says that neither the installation nor the Host names an
// image to run.
var ErrNoLauncherImage = errors.New("spec.workload.image is needed: the Host was given no image of the launcher")

// WorkloadOf makes what spec.workload asks for, of an installation that has its
// ID. It runs nothing while the installation is suspended.
func WorkloadOf(o *v1alpha1.PluginInstallation, host *WorkloadHost) (Workload, error) {
	w := o.Spec.Workload
	image := w.Image
	if image == "" {
		image = host.LauncherImage
	}
	if image == "" {
		return Workload{}, ErrNoLauncherImage
	}
	installation, _, err := InstallationOf(o)
	if err != nil {
		return Workload{}, err
	}
	config, err := contract.CanonicalDigest(struct {
		Config  json.RawMessage            `json:"config"`
		Secrets []v1alpha1.SecretReference `json:"secrets"`
	}{configOf(o), o.Spec.SecretRefs})
	if err != nil {
		return Workload{}, fmt.Errorf("digest spec.config: %w", err)
	}
	meta := metav1.ObjectMeta{
		Namespace: o.Spec.ServiceAccountRef.Namespace, Name: WorkloadName(o),
		Labels: map[string]string{
			v1alpha1.LabelInstallationID:   o.Status.InstallationID,
			"app.kubernetes.io/name":       "kandev-plugin",
			"app.kubernetes.io/managed-by": "plugin-host",
		},
		Annotations: map[string]string{"plugins.kandev.ai/installation": o.Name, "plugins.kandev.ai/plugin-id": o.Spec.PluginID},
		// Deletion of the installation waits for nothing of it (I13).
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "PluginInstallation", Name: o.Name, UID: o.UID, Controller: new(true),
		}},
	}
	ca := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: *meta.DeepCopy(), Data: map[string]string{caKey: host.CA},
	}
	ca.Name += WorkloadCASuffix
	replicas := int32(1)
	if w.Replicas != nil {
		replicas = *w.Replicas
	}
	if o.Spec.Suspend {
		replicas = 0
	}
	pod := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels: meta.Labels,
			// A plugin reads its declarations and its configuration when it starts: another
			// version or configuration is another pod.
			Annotations: map[string]string{
				"kubectl.kubernetes.io/default-container": WorkloadContainer,
				"plugins.kandev.ai/version":               o.Spec.Version,
				"plugins.kandev.ai/manifest-digest":       installation.ManifestDigest,
				"plugins.kandev.ai/config-digest":         config.String(),
			},
		},
		Spec: podOf(o, host, image, ca.Name),
	}
	return Workload{
		CA: ca,
		NetworkPolicy: &networkingv1.NetworkPolicy{
			TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
			ObjectMeta: *meta.DeepCopy(), Spec: policyOf(o, host),
		},
		Deployment: &appsv1.Deployment{
			TypeMeta:   metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment"},
			ObjectMeta: meta,
			Spec: appsv1.DeploymentSpec{
				Replicas: &replicas, RevisionHistoryLimit: new(int32(2)),
				// Two processes of one plugin would each deliver, and share its data.
				Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
				Selector: &metav1.LabelSelector{MatchLabels: WorkloadLabels(o)},
				Template: pod,
			},
		},
	}, nil
}

func configOf(o *v1alpha1.PluginInstallation) json.RawMessage {
	if o.Spec.Config == nil || len(o.Spec.Config.Raw) == 0 {
		return json.RawMessage("null")
	}
	return o.Spec.Config.Raw
}

// launched says whether the launcher runs the plugin, and not the plugin itself.
func launched(w *v1alpha1.Workload) bool { return w.Package != "" || w.Binary != "" }

func podOf(o *v1alpha1.PluginInstallation, host *WorkloadHost, image, caName string) corev1.PodSpec {
	w := o.Spec.Workload
	pod := corev1.PodSpec{
		ServiceAccountName: o.Spec.ServiceAccountRef.Name,
		// The Host's own token below is the only one.
		AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		NodeSelector: map[string]string{corev1.LabelOSStable: string(corev1.Linux)}, OS: &corev1.PodOS{Name: corev1.Linux},
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(workloadUser)), RunAsGroup: new(int64(workloadUser)),
			FSGroup: new(int64(workloadUser)), FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Volumes: []corev1.Volume{
			{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				DefaultMode: new(int32(0o440)),
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
					Audience: contract.Audience, ExpirationSeconds: new(int64(tokenSeconds)), Path: "token",
				}}},
			}}},
			{Name: "host-ca", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: caName}, DefaultMode: new(int32(0o444)),
			}}},
			{Name: "data", VolumeSource: dataOf(w.Data)},
			{Name: "scratch", VolumeSource: emptyDir("64Mi")},
		},
		Containers: []corev1.Container{containerOf(w, host, image)},
	}
	if host.UserNamespaces {
		pod.HostUsers = new(false)
	}
	for key, value := range w.NodeSelector {
		pod.NodeSelector[key] = string(value)
	}
	if w.RuntimeClassName != "" {
		pod.RuntimeClassName = &w.RuntimeClassName
	}
	for _, name := range w.ImagePullSecrets {
		pod.ImagePullSecrets = append(pod.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	if w.PackageImage != "" {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "package", VolumeSource: corev1.VolumeSource{
			Image: &corev1.ImageVolumeSource{Reference: w.PackageImage, PullPolicy: corev1.PullIfNotPresent},
		}})
		c := &pod.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "package", MountPath: packageFolder, ReadOnly: true})
	}
	if w.Platform != nil {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "platform", VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{
				SecretName: w.Platform.SecretName, DefaultMode: new(int32(0o440)),
				// Each is needed, and nothing else of it is the plugin's.
				Items: []corev1.KeyToPath{
					{Key: platformToken, Path: platformToken},
					{Key: corev1.TLSCertKey, Path: corev1.TLSCertKey},
					{Key: corev1.TLSPrivateKeyKey, Path: corev1.TLSPrivateKeyKey},
				},
			},
		}})
		c := &pod.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "platform", MountPath: platformFolder, ReadOnly: true})
	}
	return pod
}

func containerOf(w *v1alpha1.Workload, host *WorkloadHost, image string) corev1.Container {
	c := corev1.Container{
		Name: WorkloadContainer, Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Args: literal(w.Args),
		Env: []corev1.EnvVar{
			{Name: "KANDEV_PLUGIN_HOST_ADDRESS", Value: host.Address},
			{Name: "KANDEV_PLUGIN_HOST_CA_FILE", Value: WorkloadCAFile},
			{Name: "KANDEV_PLUGIN_TOKEN_FILE", Value: WorkloadTokenFile},
		},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Privileged: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		Resources: resourcesOf(w.Resources),
		VolumeMounts: []corev1.VolumeMount{
			{Name: "token", MountPath: strings.TrimSuffix(WorkloadTokenFile, "/token"), ReadOnly: true},
			{Name: "host-ca", MountPath: strings.TrimSuffix(WorkloadCAFile, "/"+caKey), ReadOnly: true},
			{Name: "data", MountPath: dataFolder},
			{Name: "scratch", MountPath: scratchFolder},
		},
	}
	if launched(w) {
		c.Command = []string{launcher}
		how := []string{"--package=" + w.Package}
		if w.Binary != "" {
			how = []string{"--binary=" + w.Binary, "--manifest=" + w.Manifest}
		}
		how = append(how,
			"--plugins-dir="+dataFolder, "--run-dir="+scratchFolder,
			fmt.Sprintf("--http-listen=:%d", portHTTP), fmt.Sprintf("--health-listen=:%d", portHealth))
		if w.Platform != nil {
			how = append(how, "--platform-token-file="+platformFolder+"/"+platformToken,
				"--http-tls-cert-file="+platformFolder+"/"+corev1.TLSCertKey, "--http-tls-key-file="+platformFolder+"/"+corev1.TLSPrivateKeyKey)
		}
		c.Args = literal(append(how, w.Args...))
		c.Ports = []corev1.ContainerPort{
			{Name: "http", ContainerPort: portHTTP, Protocol: corev1.ProtocolTCP},
			{Name: "health", ContainerPort: portHealth, Protocol: corev1.ProtocolTCP},
		}
		c.LivenessProbe = probe("/healthz", 10, 6)
		c.ReadinessProbe = probe("/readyz", 5, 3)
	} else {
		c.Env = append(c.Env, corev1.EnvVar{Name: "KANDEV_PLUGIN_DATA_DIR", Value: dataFolder})
	}
	for _, v := range w.Env {
		variable := corev1.EnvVar{Name: v.Name}
		switch {
		case v.SecretKeyRef != nil:
			variable.ValueFrom = &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: v.SecretKeyRef.Name}, Key: v.SecretKeyRef.Key,
			}}
		case v.Value != nil:
			variable.Value = literal([]string{*v.Value})[0]
		}
		c.Env = append(c.Env, variable)
	}
	return c
}

// literal keeps the kubelet from replacing references to variables: what is written
// is what the plugin gets.
func literal(texts []string) []string {
	kept := make([]string, len(texts))
	for i, text := range texts {
		kept[i] = strings.ReplaceAll(text, "$", "$$")
	}
	return kept
}

func probe(path string, every, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("health")}},
		PeriodSeconds: every, TimeoutSeconds: 5, FailureThreshold: failures,
	}
}

func dataOf(d *v1alpha1.WorkloadData) corev1.VolumeSource {
	switch {
	case d != nil && d.ClaimName != "":
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: d.ClaimName}}
	case d != nil && d.SizeLimit != "":
		return emptyDir(d.SizeLimit)
	default:
		return emptyDir("1Gi")
	}
}

func emptyDir(limit v1alpha1.WorkloadQuantity) corev1.VolumeSource {
	return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(quantity(limit))}}
}

// quantity reads what the schema lets through.
func quantity(q v1alpha1.WorkloadQuantity) resource.Quantity {
	parsed, err := resource.ParseQuantity(string(q))
	if err != nil {
		// The schema's pattern is narrower than the parser.
		return resource.Quantity{}
	}
	return parsed
}

func resourcesOf(r *v1alpha1.WorkloadResources) corev1.ResourceRequirements {
	requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	limits := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi"), corev1.ResourceEphemeralStorage: resource.MustParse("1Gi")}
	if r != nil {
		override(requests, r.Requests)
		override(limits, r.Limits)
	}
	// A default isn't above a limit that was asked for.
	for name, limit := range limits {
		if request, ok := requests[name]; ok && request.Cmp(limit) > 0 && asked(r, name) == "" {
			requests[name] = limit
		}
	}
	return corev1.ResourceRequirements{Requests: requests, Limits: limits}
}

func override(list corev1.ResourceList, asked v1alpha1.WorkloadQuantities) {
	for name, q := range map[corev1.ResourceName]v1alpha1.WorkloadQuantity{
		corev1.ResourceCPU: asked.CPU, corev1.ResourceMemory: asked.Memory, corev1.ResourceEphemeralStorage: asked.EphemeralStorage,
	} {
		if q != "" {
			list[name] = quantity(q)
		}
	}
}

// asked is what was requested of a resource.
func asked(r *v1alpha1.WorkloadResources, name corev1.ResourceName) v1alpha1.WorkloadQuantity {
	switch {
	case r == nil:
		return ""
	case name == corev1.ResourceCPU:
		return r.Requests.CPU
	case name == corev1.ResourceMemory:
		return r.Requests.Memory
	default:
		return r.Requests.EphemeralStorage
	}
}

// policyOf lets the pod reach the Host and the cluster's DNS, and be reached at the
// launcher's HTTP port from the Host's namespace. The kubelet's probes come from the
// node, which no policy keeps out.
func policyOf(o *v1alpha1.PluginInstallation, host *WorkloadHost) networkingv1.NetworkPolicySpec {
	inNamespace := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: name}}
	}
	port := func(protocol corev1.Protocol, number int32) networkingv1.NetworkPolicyPort {
		return networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: new(intstr.FromInt32(number))}
	}
	policy := networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: WorkloadLabels(o)},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		Egress: []networkingv1.NetworkPolicyEgressRule{
			{
				To: []networkingv1.NetworkPolicyPeer{{
					NamespaceSelector: inNamespace(host.Namespace), PodSelector: &metav1.LabelSelector{MatchLabels: host.PodLabels},
				}},
				Ports: []networkingv1.NetworkPolicyPort{port(corev1.ProtocolTCP, host.Port)},
			},
			{
				To:    []networkingv1.NetworkPolicyPeer{{NamespaceSelector: inNamespace(metav1.NamespaceSystem)}},
				Ports: []networkingv1.NetworkPolicyPort{port(corev1.ProtocolUDP, 53), port(corev1.ProtocolTCP, 53)},
			},
		},
	}
	// Where the Host's address is one, there is nothing to look up.
	if name, _, err := net.SplitHostPort(host.Address); err == nil && net.ParseIP(name) != nil {
		policy.Egress = policy.Egress[:1]
	}
	if launched(o.Spec.Workload) {
		policy.Ingress = []networkingv1.NetworkPolicyIngressRule{{
			From:  []networkingv1.NetworkPolicyPeer{{NamespaceSelector: inNamespace(host.Namespace)}},
			Ports: []networkingv1.NetworkPolicyPort{port(corev1.ProtocolTCP, portHTTP)},
		}}
	}
	return policy
}
