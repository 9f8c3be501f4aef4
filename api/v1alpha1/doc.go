// Package v1alpha1 holds the Kubernetes API of group plugins.kandev.ai: what
// humans ask for (spec) and what is in force (status). It is types, schema
// markers and constants only; it decides nothing and imports apimachinery
// alone, so that clients can use it without the rest of this module.
//
// Every string, list and map has a bound in the schema, because the rules in
// the schema are paid for by size. A field belongs either to the person who
// applies the object or to the controllers, never to both: server-side apply
// round-trips.
//
// +kubebuilder:object:generate=true
// +groupName=plugins.kandev.ai
// +versionName=v1alpha1
package v1alpha1
