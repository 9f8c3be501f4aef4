package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PolicyClass is a class of the human-reserved matrix whose capabilities an
// approval may grant. The reserved classes can't be granted at all and have no
// name here.
//
// +kubebuilder:validation:Enum=ReadProjections;ManagedConversations;MessagesAndTasks;TaskDirectives;RelationsAndTransitions;RunsAndSessions
type PolicyClass string

// PolicyRule tightens one class.
//
// +kubebuilder:validation:XValidation:rule="(has(self.deny) && self.deny) || (has(self.fourEyes) && self.fourEyes) || has(self.maxLifetimeSeconds)",message="a rule must deny, cap the lifetime or demand four eyes"
type PolicyRule struct {
	// class is what the rule is about. Example: `MessagesAndTasks`.
	//
	// +required
	Class PolicyClass `json:"class"`

	// deny leaves none of the class to plugins. What was granted of it ends for
	// good: deleting the policy doesn't bring it back.
	//
	// +optional
	Deny bool `json:"deny,omitempty"`

	// maxLifetimeSeconds caps how long a grant with any of the class lasts, in
	// seconds from the act that granted: 60 to 315360000 (ten years). A grant
	// that is older ends.
	//
	// +optional
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=315360000
	MaxLifetimeSeconds *int64 `json:"maxLifetimeSeconds,omitempty"`

	// fourEyes demands that a second human confirms each grant of the class
	// (spec.confirmedBy of the approval). A grant that one human made ends.
	//
	// +optional
	FourEyes bool `json:"fourEyes,omitempty"`
}

// HumanPolicySpec is what a platform admin takes away from plugins, beyond the
// matrix that is built into the Host. It can't add anything.
type HumanPolicySpec struct {
	// reason is why, for those who read the history, at most 1024 characters.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$`
	Reason string `json:"reason,omitempty"`

	// rules tighten one class each, 1 to 16.
	//
	// +required
	// +listType=map
	// +listMapKey=class
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Rules []PolicyRule `json:"rules"`

	// acceptClaimedFourEyes lets two names that a GitOps identity claims count
	// as two humans. The cluster can't know that two humans looked: only the
	// review in Git can.
	//
	// +optional
	AcceptClaimedFourEyes bool `json:"acceptClaimedFourEyes,omitempty"`
}

// HumanPolicyStatus says whether the policy is the one in force.
type HumanPolicyStatus struct {
	// version is what revisions under this policy record: the version of the
	// built-in matrix, `+`, and the name with the digest of the rules; at most
	// 253 characters.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Version string `json:"version,omitempty"`

	// observedGeneration is the generation that this status speaks of.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Active: True for the newest policy, False with reason
	// Superseded for every other; at most 16.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// HumanPolicy tightens the human-reserved matrix for the whole cluster. Its
// spec is immutable; the newest policy, by creation time and then by name, is
// the one in force, and deleting it puts the one before in force again. It can
// only take away, and what it took from a grant comes back by a new human act
// only.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=hup,categories=plugins,path=humanpolicies
// +kubebuilder:printcolumn:name="Active",type=string,JSONPath=`.status.conditions[?(@.type=="Active")].status`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 100",message="a policy's name has at most 100 characters"
// +kubebuilder:validation:XValidation:rule="self.spec == oldSelf.spec",message="a policy is immutable; create another one, which replaces it",fieldPath=".spec"
type HumanPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what is taken away.
	//
	// +required
	Spec HumanPolicySpec `json:"spec,omitzero"`

	// status says whether it is in force.
	//
	// +optional
	Status HumanPolicyStatus `json:"status,omitzero"`
}

// HumanPolicyList is a list of HumanPolicy.
//
// +kubebuilder:object:root=true
type HumanPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []HumanPolicy `json:"items"`
}
