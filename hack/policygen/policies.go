package main

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
)

const (
	approvals     = "plugincapabilityapprovals"
	installations = "plugininstallations"
	events        = "plugincapabilityapprovalevents"
	humanPolicies = "humanpolicies"
	namespaces    = "namespaces"
)

const (
	create = admissionregistrationv1.Create
	update = admissionregistrationv1.Update
	remove = admissionregistrationv1.Delete
)

// maxValidations is the most validations that may ask the authorizer in one
// policy: each costs 350,000, and a policy may spend 10,000,000.
const maxValidations = 28

// policy is one ValidatingAdmissionPolicy before it is written out.
type policy struct {
	name string
	// why stands at the head of it in the file.
	why   string
	rules []admissionregistrationv1.NamedRuleWithOperations
	// conditions say which requests it looks at.
	conditions []admissionregistrationv1.MatchCondition
	// variables come after those that every policy has.
	variables   []admissionregistrationv1.Variable
	validations []validation
}

// validation is a rule with what it says when it isn't satisfied.
type validation struct {
	expression string
	// message is text, and says an expression instead.
	message string
	says    string
	// invalid: what was written is wrong, whoever wrote it.
	invalid bool
}

func policies() []policy {
	return []policy{
		approvalsPolicy(), installationsPolicy(), workspacesPolicy(), statusPolicy(), eventsPolicy(), humanPoliciesPolicy(),
	}
}

// commonVariables are the first ones of every policy, at these places: an overlay
// replaces the expressions of the first two by their index.
func commonVariables() []admissionregistrationv1.Variable {
	return []admissionregistrationv1.Variable{
		{Name: "gitOpsIdentities", Expression: `[]`},
		{Name: "controllers", Expression: `'system:serviceaccount:plugin-host-system:plugin-host'`},
		{Name: "requester", Expression: `request.userInfo.username`},
		{Name: "gitOps", Expression: `variables.requester in variables.gitOpsIdentities`},
		// Some distributions call their administrator system:admin.
		{Name: "machine", Expression: `!variables.gitOps &&
(variables.requester.startsWith('system:') && variables.requester != 'system:admin' ||
request.userInfo.?groups.orValue([]).exists(g, g in ['system:serviceaccounts', 'system:nodes', 'system:unauthenticated']))`},
	}
}

func approvalsPolicy() policy {
	others := make([]string, 0, len(v1alpha1.AdmissionPolicies()))
	for _, name := range v1alpha1.AdmissionPolicies() {
		if name != v1alpha1.PolicyApprovals {
			others = append(others, quote(v1alpha1.PolicyProbeName(name)))
		}
	}
	p := policy{
		name: v1alpha1.PolicyApprovals,
		why: `Who may write the spec of an approval. Narrowing is free. A second human may
confirm. Everything else grants: it needs the verb approve for every capability
that is listed then, and the name of who writes.`,
		rules: []admissionregistrationv1.NamedRuleWithOperations{rule(v1alpha1.GroupVersion.Group, "*", []string{approvals}, create, update)},
		conditions: []admissionregistrationv1.MatchCondition{
			specChanges(),
			// Each other policy has its own probe. Only a dry run is let pass: nothing
			// of that name is ever stored.
			{Name: "no-other-policys-probe", Expression: fmt.Sprintf(
				"oldObject != null || !request.?dryRun.orValue(false) ||\n!(object.metadata.?name.orValue('') in [\n%s])", strings.Join(others, ",\n"))},
		},
		variables: approvalVariables(),
	}
	p.refuse(probe(p.name), validation{
		expression: `variables.narrows || !variables.machine`,
		says:       `variables.requester + ' may only narrow an approval: ServiceAccounts, nodes and other components of the cluster grant nothing, unless an administrator named them as a GitOps identity'`,
	}, validation{
		expression: `variables.narrows || variables.unknown.size() == 0`,
		says:       `'spec.capabilities: no plugin can be granted ' + variables.unknown[0] + ': it is reserved for humans, or newer than this policy'`,
		invalid:    true,
	}, validation{
		expression: `variables.narrows || variables.confirms || variables.gitOps ||
variables.approvedBy == variables.requester && variables.approvedVia == ''`,
		says: `'spec.approvedBy must be ' + variables.requester + ', who writes this grant, and spec.approvedVia absent' + variables.notNarrowing`,
	}, validation{
		expression: `variables.narrows || !variables.gitOps || variables.approvedVia == variables.requester`,
		says:       `'spec.approvedVia must be ' + variables.requester + ', the GitOps identity that writes this grant'`,
	}, validation{
		expression: `variables.narrows || !variables.gitOps ||
!variables.approvedBy.startsWith('system:') && !(variables.approvedBy in variables.gitOpsIdentities)`,
		message: `spec.approvedBy must be the human who granted, not a GitOps identity or a component of the cluster`,
	}, validation{
		expression: `variables.narrows || variables.confirms || variables.gitOps || variables.confirmedBy == ''`,
		says:       `'spec.confirmedBy must be absent in a grant: the second human sets it to their own name, by a write that changes nothing else' + variables.notNarrowing`,
	}, validation{
		expression: `variables.narrows || !variables.gitOps || variables.confirmedBy == '' ||
variables.confirmedBy != variables.approvedBy && !variables.confirmedBy.startsWith('system:') && !(variables.confirmedBy in variables.gitOpsIdentities)`,
		message: `spec.confirmedBy must be a human other than spec.approvedBy`,
	}, validation{
		expression: `variables.changedBy == '' || variables.changedBy == variables.requester ||
oldObject != null && variables.changedBy == oldObject.spec.?changedBy.orValue('')`,
		says: `'spec.changedBy must be absent, unchanged, or ' + variables.requester + ', who writes'`,
	})
	for _, id := range contract.Capabilities() {
		p.refuse(validation{
			expression: fmt.Sprintf("variables.narrows || !(%s in variables.capabilities) ||\n"+
				`authorizer.group(%s).resource(%s).namespace(request.namespace).name(%s).check(%s).allowed()`, quote(id.String()),
				quote(v1alpha1.GroupVersion.Group), quote(v1alpha1.ResourceCapabilities), quote(id.String()), quote(v1alpha1.VerbApprove)),
			says: fmt.Sprintf(`variables.requester + %s + request.namespace + variables.notNarrowing`, quote(fmt.Sprintf(
				" may not grant %s: it takes the verb %s on %s.%s with that name, in the namespace ",
				id, v1alpha1.VerbApprove, v1alpha1.ResourceCapabilities, v1alpha1.GroupVersion.Group))),
		})
	}
	return p
}

// approvalVariables are what an approval's rules are about, for validation and
// for stamping alike.
func approvalVariables() []admissionregistrationv1.Variable {
	known := make([]string, 0, len(contract.Capabilities()))
	for _, id := range contract.Capabilities() {
		known = append(known, quote(id.String()))
	}
	// An absent field and its default are the same.
	same := func(fields ...string) string {
		equal := make([]string, len(fields))
		for i, field := range fields {
			equal[i] = fmt.Sprintf(`object.spec.?%[1]s.orValue('') == oldObject.spec.?%[1]s.orValue('')`, field)
		}
		return strings.Join(equal, " &&\n")
	}
	return []admissionregistrationv1.Variable{
		{Name: "capabilities", Expression: `object.spec.?capabilities.orValue([])`},
		{Name: "unknown", Expression: fmt.Sprintf("variables.capabilities.filter(c, !(c in [\n%s]))", strings.Join(known, ",\n"))},
		{Name: "approvedBy", Expression: `object.spec.?approvedBy.orValue('')`},
		{Name: "approvedVia", Expression: `object.spec.?approvedVia.orValue('')`},
		{Name: "confirmedBy", Expression: `object.spec.?confirmedBy.orValue('')`},
		{Name: "changedBy", Expression: `object.spec.?changedBy.orValue('')`},
		{Name: "sameReview", Expression: "oldObject != null &&\n" +
			same("installationName", "installationID", "workspaceID", "manifestDigest", "supersedesAct", "approvedBy", "approvedVia")},
		// The state, the set and the end, each as it was or less. Two spellings of
		// one instant are the same.
		{Name: "narrows", Expression: `variables.sameReview &&
object.spec.?confirmedBy.orValue('') == oldObject.spec.?confirmedBy.orValue('') &&
variables.capabilities.all(c, c in oldObject.spec.?capabilities.orValue([])) &&
(object.spec.?state.orValue('Active') == oldObject.spec.?state.orValue('Active') || object.spec.?state.orValue('Active') == 'Revoked') &&
(!has(oldObject.spec.expiresAt) || has(object.spec.expiresAt) &&
(object.spec.expiresAt == oldObject.spec.expiresAt || timestamp(object.spec.expiresAt) <= timestamp(oldObject.spec.expiresAt)))`},
		{Name: "confirms", Expression: `variables.sameReview &&
variables.confirmedBy == variables.requester && variables.approvedBy != variables.requester &&
` + same("state", "expiresAt", "changedBy", "reason") + ` &&
variables.capabilities == oldObject.spec.?capabilities.orValue([])`},
		{Name: "notNarrowing", Expression: `oldObject == null ? '' :
' (narrowing needs none of this: it removes capabilities, revokes or sets an earlier end, and changes nothing else but the reason and changedBy)'`},
	}
}

func installationsPolicy() policy {
	p := policy{
		name: v1alpha1.PolicyInstallations,
		why: `Who may write the spec of an installation: people, by their RBAC rights, and
GitOps identities. Suspending is free, and so is taking compatibility away. What
compatibility is granted needs the verb approve for each entry that is new or
another one, and the name of who writes.`,
		rules: []admissionregistrationv1.NamedRuleWithOperations{
			rule(v1alpha1.GroupVersion.Group, "*", []string{installations}, create, update),
		},
		conditions: []admissionregistrationv1.MatchCondition{specChanges()},
		variables: []admissionregistrationv1.Variable{
			// Each entry stands for itself: one that is as it was isn't granted anew.
			{Name: "writers", Expression: `object.spec.?compatibility.?legacyWriters.orValue([])`},
			{Name: "formerWriters", Expression: `oldObject == null ? [] : oldObject.spec.?compatibility.?legacyWriters.orValue([])`},
			{Name: "newWriters", Expression: `variables.writers.filter(w, !variables.formerWriters.exists(f, f == w))`},
			{Name: "implicit", Expression: `has(object.spec.compatibility) && has(object.spec.compatibility.implicitExpectNone)`},
			{Name: "newImplicit", Expression: `variables.implicit &&
(oldObject == null || !has(oldObject.spec.compatibility) || !has(oldObject.spec.compatibility.implicitExpectNone) ||
object.spec.compatibility.implicitExpectNone != oldObject.spec.compatibility.implicitExpectNone)`},
			{Name: "narrows", Expression: `oldObject != null &&
(object.spec.?suspend.orValue(false) || !oldObject.spec.?suspend.orValue(false)) &&
variables.newWriters.size() == 0 && !variables.newImplicit &&
` + sameInstallation()},
		},
	}
	p.probed()
	p.refuse(validation{
		expression: `variables.narrows || !variables.machine`,
		says: `variables.requester + ' may only suspend an installation or take its compatibility away: ` +
			`ServiceAccounts, nodes and other components of the cluster install nothing, unless an administrator named them as a GitOps identity'`,
	})
	known := make([]string, 0, len(v1alpha1.LegacyWriteResources()))
	for _, resource := range v1alpha1.LegacyWriteResources() {
		known = append(known, quote(string(resource)))
	}
	p.refuse(validation{
		expression: fmt.Sprintf("variables.newWriters.all(w, w.resource in [%s])", strings.Join(known, ", ")),
		message:    `spec.compatibility.legacyWriters: a resource is newer than this policy`,
		invalid:    true,
	})
	p.refuse(namesItsGranter("variables.newWriters.all(g, %s)", "g", "spec.compatibility.legacyWriters")...)
	p.refuse(namesItsGranter("!variables.newImplicit || (%s)", "object.spec.compatibility.implicitExpectNone", "spec.compatibility.implicitExpectNone")...)
	for _, resource := range v1alpha1.LegacyWriteResources() {
		p.refuse(mayApprove(fmt.Sprintf("!variables.newWriters.exists(w, w.resource == %s)", quote(string(resource))),
			v1alpha1.LegacyWriterPrefix+string(resource)))
	}
	p.refuse(mayApprove("!variables.newImplicit", v1alpha1.CompatImplicitExpectNone))
	return p
}

// sameInstallation compares whatever of an installation is neither suspend nor
// compatibility.
func sameInstallation() string {
	var equal []string
	for _, field := range []string{"pluginID", "version", "manifest", "serviceAccountRef", "config", "secretRefs", "workload"} {
		equal = append(equal, fmt.Sprintf(
			"has(object.spec.%[1]s) == has(oldObject.spec.%[1]s) && (!has(object.spec.%[1]s) || object.spec.%[1]s == oldObject.spec.%[1]s)", field))
	}
	return strings.Join(equal, " &&\n")
}

// namesItsGranter are the rules of the names in a grant of compatibility, as
// approvals have them. all says for which grants the condition in it must hold.
func namesItsGranter(all, grant, field string) []validation {
	human := fmt.Sprintf(`variables.gitOps || %[1]s.approvedBy == variables.requester && %[1]s.?approvedVia.orValue('') == ''`, grant)
	via := fmt.Sprintf(`!variables.gitOps || %[1]s.?approvedVia.orValue('') == variables.requester &&
!%[1]s.approvedBy.startsWith('system:') && !(%[1]s.approvedBy in variables.gitOpsIdentities)`, grant)
	return []validation{{
		expression: fmt.Sprintf(all, human),
		says:       fmt.Sprintf(`'%s: approvedBy must be ' + variables.requester + ', who writes this grant, and approvedVia absent (taking it away needs none of this)'`, field),
	}, {
		expression: fmt.Sprintf(all, via),
		says:       fmt.Sprintf(`'%s: approvedVia must be ' + variables.requester + ', the GitOps identity that writes this grant, and approvedBy the human who granted'`, field),
	}}
}

// mayApprove asks for the right to grant a name in the whole cluster, unless the
// condition holds.
func mayApprove(unless, name string) validation {
	return validation{
		expression: fmt.Sprintf("%s ||\nauthorizer.group(%s).resource(%s).name(%s).check(%s).allowed()", unless,
			quote(v1alpha1.GroupVersion.Group), quote(v1alpha1.ResourceCapabilities), quote(name), quote(v1alpha1.VerbApprove)),
		says: fmt.Sprintf(`variables.requester + ' may not grant %s: it takes the verb %s on %s.%s with that name, in the whole cluster'`,
			name, v1alpha1.VerbApprove, v1alpha1.ResourceCapabilities, v1alpha1.GroupVersion.Group),
	}
}

func workspacesPolicy() policy {
	const key, value = "object.metadata.?%ss[?'%s'].orValue('')", "oldObject.metadata.?%ss[?'%s'].orValue('')"
	label, annotation := fmt.Sprintf(key, "label", v1alpha1.LabelWorkspaceID), fmt.Sprintf(key, "annotation", v1alpha1.AnnotationRebindFrom)
	set := func(now, before string) string {
		return fmt.Sprintf("%s != '' && (oldObject == null || %s != %s)", now, now, before)
	}
	p := policy{
		name: v1alpha1.PolicyWorkspaces,
		why: `Who may make a namespace a workspace, or pass a workspace on to another
namespace. Taking the label or the annotation away is free. The subresources are
here because a write of them can change labels too.`,
		rules: []admissionregistrationv1.NamedRuleWithOperations{
			rule("", "v1", []string{namespaces, namespaces + "/status", namespaces + "/finalize"}, create, update),
		},
		conditions: []admissionregistrationv1.MatchCondition{{
			Name: "binding-set-or-changed",
			Expression: fmt.Sprintf("request.resource.resource != '%s' ||\n%s ||\n%s", namespaces,
				set(label, fmt.Sprintf(value, "label", v1alpha1.LabelWorkspaceID)),
				set(annotation, fmt.Sprintf(value, "annotation", v1alpha1.AnnotationRebindFrom))),
		}},
		variables: []admissionregistrationv1.Variable{{Name: "workspaceID", Expression: label}},
	}
	p.probed()
	p.refuse(validation{
		expression: `!variables.machine`,
		says: fmt.Sprintf(`variables.requester + ' may not set %s or %s: ServiceAccounts, nodes and other components of the cluster bind no workspace, unless an administrator named them as a GitOps identity'`,
			v1alpha1.LabelWorkspaceID, v1alpha1.AnnotationRebindFrom),
	}, validation{
		expression: `variables.workspaceID.matches('^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$')`,
		says: fmt.Sprintf(`'the label %s must be a workspace ID, 1 to 63 lower-case letters, digits and -, and %s needs it: found "' + variables.workspaceID + '"'`,
			v1alpha1.LabelWorkspaceID, v1alpha1.AnnotationRebindFrom),
		invalid: true,
	}, validation{
		expression: fmt.Sprintf(`authorizer.group(%s).resource(%s).name(variables.workspaceID).check(%s).allowed()`,
			quote(v1alpha1.GroupVersion.Group), quote(v1alpha1.ResourceWorkspaces), quote(v1alpha1.VerbBind)),
		says: fmt.Sprintf(`variables.requester + ' may not bind the workspace ' + variables.workspaceID + ': it takes the verb %s on %s.%s with that name, in the whole cluster'`,
			v1alpha1.VerbBind, v1alpha1.ResourceWorkspaces, v1alpha1.GroupVersion.Group),
	})
	return p
}

func statusPolicy() policy {
	p := policy{
		name: v1alpha1.PolicyStatus,
		why:  `Status is what the controllers observed: they alone write it.`,
		rules: []admissionregistrationv1.NamedRuleWithOperations{rule(v1alpha1.GroupVersion.Group, "*",
			[]string{approvals + "/status", installations + "/status", humanPolicies + "/status"}, update)},
		conditions: []admissionregistrationv1.MatchCondition{{
			Name:       "status-changes",
			Expression: `oldObject == null || object.?status.orValue({}) != oldObject.?status.orValue({})`,
		}},
	}
	p.probed()
	p.refuse(validation{
		expression: `variables.requester == variables.controllers`,
		says:       `'status is written by ' + variables.controllers + ' alone, not by ' + variables.requester`,
	})
	return p
}

func eventsPolicy() policy {
	p := policy{
		name: v1alpha1.PolicyEvents,
		why: `The history of authority is written and pruned by the controllers alone, and
never changes.`,
		rules: []admissionregistrationv1.NamedRuleWithOperations{rule(v1alpha1.GroupVersion.Group, "*", []string{events}, create, update, remove)},
		conditions: []admissionregistrationv1.MatchCondition{{
			Name: "content-changes",
			Expression: `request.operation != 'UPDATE' || object.spec != oldObject.spec ||
object.metadata.?labels.orValue({}) != oldObject.metadata.?labels.orValue({})`,
		}},
	}
	p.probed()
	p.refuse(validation{
		expression: `request.operation != 'UPDATE'`,
		message:    `an event and its labels never change`,
	}, validation{
		expression: `variables.requester == variables.controllers`,
		says:       `'events are created and pruned by ' + variables.controllers + ' alone, not by ' + variables.requester`,
	})
	return p
}

func humanPoliciesPolicy() policy {
	p := policy{
		name: v1alpha1.PolicyHumanPolicies,
		why: `Who may tighten the human policy, or loosen it again: people, by their RBAC
rights, and GitOps identities.`,
		rules: []admissionregistrationv1.NamedRuleWithOperations{rule(v1alpha1.GroupVersion.Group, "*", []string{humanPolicies}, create, remove)},
	}
	p.probed()
	p.refuse(validation{
		expression: `!variables.machine`,
		says:       `variables.requester + ' may not write a human policy: ServiceAccounts, nodes and other components of the cluster decide nothing for humans, unless an administrator named them as a GitOps identity'`,
	})
	return p
}

// probed lets the policy see, of approvals, the one name that it refuses.
func (p *policy) probed() {
	r := rule(v1alpha1.GroupVersion.Group, "*", []string{approvals}, create)
	r.ResourceNames = []string{v1alpha1.PolicyProbeName(p.name)}
	p.rules = append(p.rules, r)
	p.refuse(probe(p.name))
}

// probe comes first in every policy: the API server answers with the first
// refusal.
func probe(name string) validation {
	return validation{
		expression: fmt.Sprintf("request.resource.resource != %s || request.operation != 'CREATE' ||\nobject.metadata.?name.orValue('') != %s",
			quote(approvals), quote(v1alpha1.PolicyProbeName(name))),
		message: v1alpha1.PolicyProbeRefusal,
	}
}

func (p *policy) refuse(v ...validation) { p.validations = append(p.validations, v...) }

// specChanges leaves out garbage collection, finalizers, labels, and writes that
// change nothing.
func specChanges() admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{Name: "spec-changes", Expression: `oldObject == null || object.spec != oldObject.spec`}
}

func rule(group, version string, resources []string, operations ...admissionregistrationv1.OperationType) admissionregistrationv1.NamedRuleWithOperations {
	return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: operations,
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{version}, Resources: resources, Scope: new(admissionregistrationv1.AllScopes),
		},
	}}
}

// object writes the policy out, with every default spelled: what is applied is
// what the cluster has.
func (p *policy) object() (*admissionregistrationv1.ValidatingAdmissionPolicy, error) {
	object := &admissionregistrationv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: p.name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionregistrationv1.Fail),
			MatchConstraints: &admissionregistrationv1.MatchResources{
				MatchPolicy:       new(admissionregistrationv1.Equivalent),
				NamespaceSelector: &metav1.LabelSelector{},
				ObjectSelector:    &metav1.LabelSelector{},
				ResourceRules:     p.rules,
			},
			MatchConditions: p.conditions,
			Variables:       append(commonVariables(), p.variables...),
		},
	}
	asking := 0
	for _, v := range p.validations {
		if strings.Contains(v.expression, "authorizer.") {
			asking++
		}
		reason := metav1.StatusReasonForbidden
		if v.invalid {
			reason = metav1.StatusReasonInvalid
		}
		written := admissionregistrationv1.Validation{Expression: v.expression, Reason: &reason}
		if v.says != "" {
			written.MessageExpression = quote(v1alpha1.PolicyRefusalPrefix(p.name)) + " +\n" + v.says
		} else {
			written.Message = v1alpha1.PolicyRefusalPrefix(p.name) + v.message
		}
		object.Spec.Validations = append(object.Spec.Validations, written)
	}
	if asking > maxValidations {
		return nil, fmt.Errorf("%s asks the authorizer %d times, more than %d: divide it", p.name, asking, maxValidations)
	}
	return object, nil
}

func (p *policy) binding() *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicyBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: p.name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        p.name,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
}

// stamp is the policy that fills in the human's own name. It is a convenience:
// the validating policy checks the result like any other.
func stamp() (*admissionregistrationv1.MutatingAdmissionPolicy, *admissionregistrationv1.MutatingAdmissionPolicyBinding) {
	const name = "plugin-host-approver"
	object := &admissionregistrationv1.MutatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			FailurePolicy:      new(admissionregistrationv1.Fail),
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			MatchConstraints: &admissionregistrationv1.MatchResources{
				MatchPolicy:       new(admissionregistrationv1.Equivalent),
				NamespaceSelector: &metav1.LabelSelector{},
				ObjectSelector:    &metav1.LabelSelector{},
				ResourceRules:     []admissionregistrationv1.NamedRuleWithOperations{rule(v1alpha1.GroupVersion.Group, "*", []string{approvals}, create, update)},
			},
			MatchConditions: []admissionregistrationv1.MatchCondition{
				{Name: "has-spec", Expression: `has(object.spec)`},
				{Name: "nobody-named", Expression: `object.spec.?approvedBy.orValue('') == ''`},
				// Else an edit of a label or of the reason would change the approver.
				{Name: "grant-changes", Expression: stampedChange()},
			},
			Variables: commonVariables(),
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeJSONPatch,
				JSONPatch: &admissionregistrationv1.JSONPatch{Expression: `variables.machine || variables.gitOps ? [] :
[JSONPatch{op: 'add', path: '/spec/approvedBy', value: variables.requester}]`},
			}},
		},
	}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingAdmissionPolicyBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}
	return object, binding
}

// stampedChange tells whether the write changes what is granted.
func stampedChange() string {
	expression := "oldObject == null ||\nobject.spec.?capabilities.orValue([]) != oldObject.spec.?capabilities.orValue([])"
	for _, field := range []string{"installationID", "workspaceID", "manifestDigest", "supersedesAct", "state", "expiresAt"} {
		expression += fmt.Sprintf(" ||\nobject.spec.?%[1]s.orValue('') != oldObject.spec.?%[1]s.orValue('')", field)
	}
	return expression
}

// quote makes text a CEL string. What is quoted here has nothing to escape.
func quote(text string) string { return "'" + text + "'" }
