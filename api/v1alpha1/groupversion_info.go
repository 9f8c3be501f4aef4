package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "plugins.kandev.ai", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package with scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&PluginInstallation{}, &PluginInstallationList{},
		&PluginCapabilityApproval{}, &PluginCapabilityApprovalList{},
		&PluginCapabilityApprovalEvent{}, &PluginCapabilityApprovalEventList{},
		&HumanPolicy{}, &HumanPolicyList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
