// Package controllers connects the authority protocol with the Kubernetes API:
// it implements the fence's ports with client-go, handles every version of
// every approval in its watch, keeps the store's lease by rounds of live reads,
// has one reconciler each for installations, approvals, human policies and passes,
// beside the leader's start, and runs the plugins of installations that ask for it.
//
// What authority is and how it moves is decided in hostsvc/authority and
// hostsvc/fence; nothing here grants anything. The package may import the API
// types, contract, hostsvc/authority and its view, hostsvc/fence,
// controller-runtime and client-go, and no other package of this module.
//
// +kubebuilder:rbac:groups="",resources=namespaces;serviceaccounts,verbs=get;list;watch
// +kubebuilder:rbac:groups=plugins.kandev.ai,resources=plugininstallations;plugincapabilityapprovals;humanpolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=plugins.kandev.ai,resources=plugininstallations/status;plugincapabilityapprovals/status;humanpolicies/status,verbs=patch
// +kubebuilder:rbac:groups=plugins.kandev.ai,resources=plugincapabilityapprovalevents,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create
package controllers
