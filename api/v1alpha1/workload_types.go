package v1alpha1

// Workload is how the plugin runs, as one pod of a Deployment that the controllers
// keep in the namespace of spec.serviceAccountRef, under that ServiceAccount.
//
// The plugin comes in one of three ways. An image of the launcher that also holds
// the package: image and package, or binary and manifest. A package in an image of
// its own, which needs nothing else: packageImage and package, or binary and
// manifest; the cluster mounts it (1.35 or later). A program that speaks to the Host
// by itself: image alone.
//
// +kubebuilder:validation:XValidation:rule="has(self.image) || has(self.packageImage)",message="image or packageImage is required"
// +kubebuilder:validation:XValidation:rule="!has(self.packageImage) || has(self.package) || has(self.binary)",message="packageImage needs package or binary: the path in it"
// +kubebuilder:validation:XValidation:rule="!has(self.package) || !has(self.binary)",message="package and binary exclude each other"
// +kubebuilder:validation:XValidation:rule="has(self.binary) == has(self.manifest)",message="binary and manifest go together"
// +kubebuilder:validation:XValidation:rule="!has(self.platform) || has(self.package) || has(self.binary)",message="platform needs package or binary: the launcher serves it"
type Workload struct {
	// image is the container image that runs, 1 to 512 characters; by digest, so
	// that what was reviewed is what runs. With package or binary, its
	// `/plugin-launcher` is started; else the program that the image names. Default,
	// with packageImage: the launcher's image that the Host was given. Example:
	// `registry.example.com/standup@sha256:8f2c...`.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[!-~]+$`
	Image string `json:"image,omitempty"`

	// packageImage is an image that holds the plugin and isn't run: it is mounted
	// read-only at `/plugin`. 1 to 512 characters; by digest. Example:
	// `registry.example.com/standup-package@sha256:41d9...`.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[!-~]+$`
	PackageImage string `json:"packageImage,omitempty"`

	// package is the absolute path of the plugin's package, a gzipped tar, 2 to 512
	// characters. Example: `/plugin/standup-1.4.0.tar.gz`.
	//
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^/[!-~]+$`
	Package string `json:"package,omitempty"`

	// binary is the absolute path of a plugin's executable that isn't packed, 2 to
	// 512 characters. Example: `/plugin/standup`.
	//
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^/[!-~]+$`
	Binary string `json:"binary,omitempty"`

	// manifest is the absolute path of that executable's manifest.yaml, 2 to 512
	// characters. Example: `/plugin/manifest.yaml`.
	//
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^/[!-~]+$`
	Manifest string `json:"manifest,omitempty"`

	// imagePullSecrets are the names of Secrets in the plugin's namespace to pull
	// the images with, each a DNS subdomain, at most 8.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	ImagePullSecrets []string `json:"imagePullSecrets,omitempty"`

	// args are further arguments, at most 64 of at most 1024 characters: of the
	// launcher after its own, or of the image's program. No secrets: whoever sees the
	// pod sees them. Example: `[--signature-key-file=/plugin/key.pem]`.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	Args []string `json:"args,omitempty"`

	// env are further variables of the environment, at most 64, each name once.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Env []WorkloadVariable `json:"env,omitempty"`

	// platform lets the platform call the plugin's actions and those webhooks that
	// only it may call; it needs package or binary. Without it, they are refused.
	//
	// +optional
	Platform *WorkloadPlatform `json:"platform,omitempty"`

	// replicas is 1, or 0 to run nothing. Suspending the installation runs nothing
	// either. Default: 1.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	Replicas *int32 `json:"replicas,omitempty"`

	// resources are what the container is given and limited to.
	//
	// +optional
	Resources *WorkloadResources `json:"resources,omitempty"`

	// data is where the plugin keeps its files. Default: a volume that ends with the
	// pod, of at most 1Gi.
	//
	// +optional
	Data *WorkloadData `json:"data,omitempty"`

	// nodeSelector are labels that the node must have, at most 16.
	//
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=16
	NodeSelector map[string]WorkloadLabel `json:"nodeSelector,omitempty"`

	// runtimeClassName is the RuntimeClass of the pod, a DNS subdomain of 1 to 253
	// characters, for a sandbox where the cluster has one. Example: `gvisor`.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	RuntimeClassName string `json:"runtimeClassName,omitempty"`
}

// WorkloadLabel is the value of a label, at most 63 characters.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
type WorkloadLabel string

// WorkloadVariable is one variable of the environment.
//
// +kubebuilder:validation:XValidation:rule="has(self.value) != has(self.secretKeyRef)",message="one of value and secretKeyRef is required"
type WorkloadVariable struct {
	// name is 1 to 128 letters, digits and `_`, beginning with no digit. Names that
	// begin with `KANDEV_` or `PLUGIN_` are the launcher's own. Example:
	// `LOG_LEVEL`.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*$`
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('KANDEV_') && !self.startsWith('PLUGIN_')",message="names that begin with KANDEV_ or PLUGIN_ are the launcher's own"
	Name string `json:"name"`

	// value is its value, at most 4096 characters. No secrets: whoever sees the
	// installation sees it. Example: `debug`.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Value *string `json:"value,omitempty"`

	// secretKeyRef gives the value from a Secret in the plugin's namespace.
	//
	// +optional
	SecretKeyRef *WorkloadSecretKey `json:"secretKeyRef,omitempty"`
}

// WorkloadSecretKey is one key of a Secret in the plugin's namespace.
type WorkloadSecretKey struct {
	// name of the Secret, a DNS subdomain of 1 to 253 characters. Example:
	// `standup-tokens`.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`

	// key in that Secret, 1 to 253 letters, digits, `.`, `_` and `-`. Example:
	// `token`.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._-]+$`
	Key string `json:"key"`
}

// WorkloadPlatform is how the platform and the plugin's launcher prove themselves to
// each other.
type WorkloadPlatform struct {
	// secretName is a Secret in the plugin's namespace, a DNS subdomain of 1 to 253
	// characters. Its keys: `token`, the bearer of the platform, another one for each
	// installation; `tls.crt` and `tls.key`, by which the launcher serves. The pod
	// doesn't start without them, and a change is seen without a restart. The plugin
	// can read it. Example: `standup-platform`.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	SecretName string `json:"secretName"`
}

// WorkloadResources are what is set aside for the container, and its limits.
type WorkloadResources struct {
	// requests are set aside for the container. Default: cpu 50m, memory 64Mi.
	//
	// +optional
	Requests WorkloadQuantities `json:"requests,omitzero"`

	// limits are what it can use at most. Default: memory 512Mi, ephemeralStorage
	// 1Gi, and cpu without a limit.
	//
	// +optional
	Limits WorkloadQuantities `json:"limits,omitzero"`
}

// WorkloadQuantities are amounts of each resource.
type WorkloadQuantities struct {
	// cpu is an amount of processor time. Example: `250m`.
	//
	// +optional
	CPU WorkloadQuantity `json:"cpu,omitempty"`

	// memory is an amount of memory. Example: `128Mi`.
	//
	// +optional
	Memory WorkloadQuantity `json:"memory,omitempty"`

	// ephemeralStorage is an amount of the node's disk. Example: `1Gi`.
	//
	// +optional
	EphemeralStorage WorkloadQuantity `json:"ephemeralStorage,omitempty"`
}

// WorkloadQuantity is a positive quantity as Kubernetes writes it: up to 12 digits
// and a suffix. It is a text so that no client fails to decode an installation.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=14
// +kubebuilder:validation:Pattern=`^[1-9][0-9]{0,11}(m|k|Ki|M|Mi|G|Gi|T|Ti)?$`
type WorkloadQuantity string

// WorkloadData is the volume of the plugin's files, at most one of the two.
//
// +kubebuilder:validation:XValidation:rule="!has(self.claimName) || !has(self.sizeLimit)",message="claimName and sizeLimit exclude each other"
type WorkloadData struct {
	// claimName is a PersistentVolumeClaim in the plugin's namespace, a DNS subdomain
	// of 1 to 253 characters, that somebody else has made and keeps: it outlives the
	// pod, the version and the installation. Example: `standup-data`.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	ClaimName string `json:"claimName,omitempty"`

	// sizeLimit is the most that a volume holds which ends with the pod. Default:
	// 1Gi. Example: `200Mi`.
	//
	// +optional
	SizeLimit WorkloadQuantity `json:"sizeLimit,omitempty"`
}
