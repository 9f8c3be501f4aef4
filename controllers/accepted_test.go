package controllers

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/controllers/kinds"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

func TestAccepted_NamesWhatDoesNotFit(t *testing.T) {
	document := func(text string) *apiextensionsv1.JSON { return &apiextensionsv1.JSON{Raw: []byte(text)} }
	const schema = `{"properties": {"days": {"type": "integer", "minimum": 1}, "token": {"secret": true}}, "required": ["token"]}`
	token := []v1alpha1.SecretReference{{Name: "token", SecretName: "tokens", Key: "token"}}
	for name, c := range map[string]struct {
		spec   v1alpha1.PluginInstallationSpec
		status metav1.ConditionStatus
		reason string
		says   string
	}{
		"no configuration": {v1alpha1.PluginInstallationSpec{}, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "the installation can be authorised"},
		"one that fits": {v1alpha1.PluginInstallationSpec{
			Manifest: v1alpha1.PluginManifest{ConfigSchema: document(schema)}, Config: document(`{"days": 2}`), SecretRefs: token,
		}, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "the installation can be authorised"},
		"a value out of bounds": {v1alpha1.PluginInstallationSpec{
			Manifest: v1alpha1.PluginManifest{ConfigSchema: document(schema)}, Config: document(`{"days": 0}`), SecretRefs: token,
		}, metav1.ConditionFalse, v1alpha1.ReasonConfigInvalid, "spec.config.days: should be greater than or equal to 1"},
		"a secret in clear text": {v1alpha1.PluginInstallationSpec{
			Manifest: v1alpha1.PluginManifest{ConfigSchema: document(schema)}, Config: document(`{"token": "x"}`),
		}, metav1.ConditionFalse, v1alpha1.ReasonConfigInvalid, "spec.config.token: is a secret"},
		"a secret that is missing": {v1alpha1.PluginInstallationSpec{
			Manifest: v1alpha1.PluginManifest{ConfigSchema: document(schema)},
		}, metav1.ConditionFalse, v1alpha1.ReasonConfigInvalid, "spec.secretRefs: token is required and missing"},
		"a schema that is none": {v1alpha1.PluginInstallationSpec{
			Manifest: v1alpha1.PluginManifest{ConfigSchema: document(`{"type": "array"}`)},
		}, metav1.ConditionFalse, v1alpha1.ReasonConfigInvalid, "spec.manifest.configSchema.type: must be object"},
		"a pluginID like an installation's ID": {
			v1alpha1.PluginInstallationSpec{PluginID: "3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77"},
			metav1.ConditionFalse, v1alpha1.ReasonPluginIDInvalid, "spec.pluginID: can't be a UUID",
		},
		"compatibility of an installation of before": {v1alpha1.PluginInstallationSpec{
			Compatibility: &v1alpha1.Compatibility{LegacyWriters: []v1alpha1.LegacyWriter{
				{Resource: "tasks", CompatibilityGrant: v1alpha1.CompatibilityGrant{InstallationID: "before"}},
			}},
		}, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "spec.compatibility.legacyWriters[tasks] names another installation than i"},
	} {
		object := &v1alpha1.PluginInstallation{Spec: c.spec}
		object.Status.InstallationID = "i"
		e := &examined{Installation: authority.Installation{ID: "i"}, Principal: kinds.Principal{AccountUID: "a"}}
		got := accepted(e, object, "")
		if got.Status != c.status || got.Reason != c.reason || !strings.Contains(got.Message, c.says) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
