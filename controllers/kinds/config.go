package kinds

import (
	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/configschema"
)

// ConfigFault says what is wrong with an installation's configuration, or with the
// schema that it must fit; nil for nothing.
func ConfigFault(o *v1alpha1.PluginInstallation) *contract.FieldError {
	var text []byte
	if o.Spec.Manifest.ConfigSchema != nil {
		text = o.Spec.Manifest.ConfigSchema.Raw
	}
	schema, fault := configschema.Compile(text)
	if fault != nil {
		return fault
	}
	text = nil
	if o.Spec.Config != nil {
		text = o.Spec.Config.Raw
	}
	secrets := make([]string, len(o.Spec.SecretRefs))
	for i, ref := range o.Spec.SecretRefs {
		secrets[i] = ref.Name
	}
	return schema.Check(text, secrets)
}
