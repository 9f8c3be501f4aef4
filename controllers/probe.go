package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

// How the admission policies are tried: what the API shows of them, and a request
// for each that it alone refuses.

// faultError says that a policy is not in force. Every other error of an attempt
// leaves that open.
type faultError struct{ policy, problem string }

func (e *faultError) Error() string { return "admission policy " + e.policy + " " + e.problem }

// prove returns the pins of the policies, which are in force.
func (p *proof) prove(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	if p.namespace == "" {
		return "", &faultError{v1alpha1.PolicyApprovals, "can't be tried: this process doesn't know its own namespace"}
	}
	before, err := p.pinsNow(ctx)
	if err != nil {
		return "", err
	}
	group, running := errgroup.WithContext(ctx)
	for _, name := range v1alpha1.AdmissionPolicies() {
		group.Go(func() error {
			if err := p.inspect(running, name); err != nil {
				return err
			}
			return p.try(running, name)
		})
	}
	if err := group.Wait(); err != nil {
		return "", err //nolint:wrapcheck // each says what it did
	}
	// What was tried is what is pinned only if it is still there.
	after, err := p.pinsNow(ctx)
	if err != nil {
		return "", err
	}
	if before != after {
		return "", &faultError{v1alpha1.PolicyApprovals, "or another one was changed while they were tried"}
	}
	return after, nil
}

// inspect checks what the API shows of a policy and its binding. What the policy
// says can't be checked against anything that its editor couldn't edit as well;
// what would switch it off unnoticed can.
func (p *proof) inspect(ctx context.Context, name string) error {
	var policy admissionregistrationv1.ValidatingAdmissionPolicy
	var binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
	for _, object := range []client.Object{&policy, &binding} {
		err := p.live.Get(ctx, client.ObjectKey{Name: name}, object)
		if apierrors.IsNotFound(err) {
			return &faultError{name, "or its binding doesn't exist"}
		}
		if err != nil {
			return fmt.Errorf("read admission policy %s: %w", name, err)
		}
		if object.GetDeletionTimestamp() != nil {
			return &faultError{name, "or its binding is being deleted"}
		}
	}
	bound := binding.Spec.MatchResources
	switch {
	case policy.Spec.FailurePolicy != nil && *policy.Spec.FailurePolicy != admissionregistrationv1.Fail:
		return &faultError{name, "lets pass what it fails to evaluate (failurePolicy)"}
	case policy.Spec.ParamKind != nil || binding.Spec.ParamRef != nil:
		return &faultError{name, "depends on a parameter object (paramKind), which ours don't"}
	case len(policy.Spec.Validations) == 0:
		return &faultError{name, "has no validations"}
	case binding.Spec.PolicyName != name:
		return &faultError{name, "isn't what its binding binds"}
	case !slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Deny):
		return &faultError{name, "doesn't deny (validationActions of its binding)"}
	case selects(policy.Spec.MatchConstraints) || selects(bound) || bound != nil && len(bound.ResourceRules) > 0:
		return &faultError{name, "leaves out some namespaces or objects, by itself or by its binding"}
	}
	return nil
}

// selects tells whether a match leaves out what its rules let in.
func selects(match *admissionregistrationv1.MatchResources) bool {
	if match == nil {
		return false
	}
	chosen := func(s *metav1.LabelSelector) bool {
		return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0
	}
	return chosen(match.NamespaceSelector) || chosen(match.ObjectSelector) || len(match.ExcludeResourceRules) > 0
}

// try makes the dry-run request that the policy alone refuses.
func (p *proof) try(ctx context.Context, policy string) error {
	err := p.writer.Create(ctx, p.request(policy), client.DryRunAll)
	var refused apierrors.APIStatus
	switch {
	case err == nil:
		return &faultError{policy, "didn't refuse the request that it must refuse"}
	case !errors.As(err, &refused), unanswered(err):
		return fmt.Errorf("try admission policy %s: %w", policy, err)
	case !v1alpha1.PolicyRefuses(policy, refused.Status().Message):
		return &faultError{policy, "didn't refuse the request that it must refuse; something else did: " + shorten(refused.Status().Message)}
	}
	return nil
}

// unanswered tells whether an error says nothing about admission.
func unanswered(err error) bool {
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsUnauthorized(err)
}

// request is an approval that would grant nothing, even if it came into being.
func (p *proof) request(policy string) *v1alpha1.PluginCapabilityApproval {
	name := v1alpha1.PolicyProbeName(policy)
	return &v1alpha1.PluginCapabilityApproval{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name},
		Spec: v1alpha1.PluginCapabilityApprovalSpec{
			InstallationName: name, InstallationID: "00000000-0000-0000-0000-000000000000",
			ManifestDigest: "v1:" + strings.Repeat("0", 64), WorkspaceID: "policy-probe",
			State: v1alpha1.StateRevoked, ApprovedBy: "plugin-host",
		},
	}
}

// pinsNow reads the pins live: one line for each policy and each binding. One
// that is missing has a line too.
func (p *proof) pinsNow(ctx context.Context) (string, error) {
	var text strings.Builder
	for _, kind := range []apischema.GroupVersionKind{policyKind, bindingKind} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := p.live.List(ctx, list); err != nil {
			return "", fmt.Errorf("list the %s objects: %w", kind.Kind, err)
		}
		for _, name := range v1alpha1.AdmissionPolicies() {
			pin := "absent"
			for i := range list.Items {
				if o := &list.Items[i]; o.Name == name && o.DeletionTimestamp == nil {
					pin = fmt.Sprintf("%s %d", o.UID, o.Generation)
				}
			}
			fmt.Fprintf(&text, "%s %s %s\n", kind.Kind, name, pin)
		}
	}
	return text.String(), nil
}
