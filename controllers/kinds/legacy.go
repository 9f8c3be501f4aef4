package kinds

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

// LegacyOf translates what an installation object declares and asks for v1 calls. A
// grant is one that names the very ID in status, and no declaration is granted that
// the manifest doesn't make. Which of the grants count is for authority.LegacyHistory.
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

// GrantsOf lists the grants of compatibility that name the very ID in status.
func GrantsOf(o *v1alpha1.PluginInstallation) []authority.LegacyGrant {
	granted, id := o.Spec.Compatibility, o.Status.InstallationID
	if granted == nil || id == "" {
		return nil
	}
	var grants []authority.LegacyGrant
	add := func(field string, grant v1alpha1.CompatibilityGrant, of authority.LegacyGrant) {
		text, err := json.Marshal([]any{field, grant})
		if err != nil || grant.InstallationID != id {
			return
		}
		sum := sha256.Sum256(text)
		of.Object, of.Field = string(o.UID), field
		of.ID = of.Object + "/" + hex.EncodeToString(sum[:])
		grants = append(grants, of)
	}
	for _, writer := range granted.LegacyWriters {
		if c, ok := contract.ParseLegacyCapability(contract.LegacyWritePrefix + string(writer.Resource)); ok {
			add(fmt.Sprintf("spec.compatibility.legacyWriters[%s]", writer.Resource), writer.CompatibilityGrant,
				authority.LegacyGrant{Writers: contract.LegacySetOf(c)})
		}
	}
	if granted.ImplicitExpectNone != nil {
		add("spec.compatibility.implicitExpectNone", *granted.ImplicitExpectNone, authority.LegacyGrant{ImplicitExpectNone: true})
	}
	return grants
}

// How UnverifiedMessage lists fields, so that UnverifiedGrants finds them.
const between, behind = " and ", ": "

// UnverifiedMessage is what an installation says in ReviewRequired of the fields of
// grants that count for nothing, since nobody has checked who wrote them.
func UnverifiedMessage(fields []string) string {
	return strings.Join(fields, between) + behind +
		"nobody has checked who wrote this, for it came while the admission policies were not proven in force; it grants nothing, and never will; a human who wants that changes the entry, its reason for instance, once they are in force"
}

// UnverifiedGrants lists the fields that the controllers said so of, of this version
// of the object.
func UnverifiedGrants(o *v1alpha1.PluginInstallation) []string {
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReviewRequired)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonNotVerified || c.ObservedGeneration != o.Generation {
		return nil
	}
	fields, _, _ := strings.Cut(c.Message, behind)
	return strings.Split(fields, between)
}

// GrantObject is the UID of the object that a grant of this ID is of.
func GrantObject(id string) string {
	object, _, _ := strings.Cut(id, "/")
	return object
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
