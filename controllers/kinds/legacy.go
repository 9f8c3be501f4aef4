package kinds

import (
	"fmt"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

// LegacyOf translates what an installation object declares and is granted for v1
// calls. A grant counts that names the very ID in status, and no declaration is
// granted that the manifest doesn't make.
func LegacyOf(o *v1alpha1.PluginInstallation) authority.LegacyTerms {
	declared := legacyOf(o.Spec.Manifest.Legacy)
	var terms authority.LegacyTerms
	terms.Declared, _ = declared.Set()
	if declared != nil {
		for i, pattern := range declared.Events {
			if contract.CheckEventPattern(fmt.Sprintf("events[%d]", i), pattern) == nil {
				terms.Events = append(terms.Events, pattern)
			}
		}
	}
	granted := o.Spec.Compatibility
	id := o.Status.InstallationID
	if granted == nil || id == "" {
		return terms
	}
	for _, writer := range granted.LegacyWriters {
		c, ok := contract.ParseLegacyCapability(contract.LegacyWritePrefix + string(writer.Resource))
		if ok && writer.InstallationID == id {
			terms.Writers |= contract.LegacySetOf(c) & terms.Declared
		}
	}
	terms.ImplicitExpectNone = granted.ImplicitExpectNone != nil && granted.ImplicitExpectNone.InstallationID == id
	return terms
}

// OtherGrants lists the fields of the compatibility grants that name another
// installation than the object is, and so grant nothing.
func OtherGrants(o *v1alpha1.PluginInstallation) []string {
	granted := o.Spec.Compatibility
	if granted == nil || o.Status.InstallationID == "" {
		return nil
	}
	var fields []string
	for _, writer := range granted.LegacyWriters {
		if writer.InstallationID != o.Status.InstallationID {
			fields = append(fields, fmt.Sprintf("spec.compatibility.legacyWriters[%s]", writer.Resource))
		}
	}
	if granted.ImplicitExpectNone != nil && granted.ImplicitExpectNone.InstallationID != o.Status.InstallationID {
		fields = append(fields, "spec.compatibility.implicitExpectNone")
	}
	return fields
}

// legacyOf is the declaration as it is digested, nil for none.
func legacyOf(m *v1alpha1.LegacyManifest) *contract.LegacyDeclaration {
	if m == nil {
		return nil
	}
	return &contract.LegacyDeclaration{
		APIRead: texts(m.APIRead), APIWrite: texts(m.APIWrite), Events: m.Events,
		State: m.State, Secrets: m.Secrets, AgentInvoke: m.AgentInvoke,
	}
}

func texts[T ~string](list []T) []string {
	var all []string
	for _, one := range list {
		all = append(all, string(one))
	}
	return all
}
