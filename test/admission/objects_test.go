package admission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gcustom"
	gomegatypes "github.com/onsi/gomega/types"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

const (
	readTasks     = v1alpha1.CapabilityID("host.v2.read:tasks")
	readSessions  = v1alpha1.CapabilityID("host.v2.read:sessions")
	writeTasks    = v1alpha1.CapabilityID("host.v2.write:tasks")
	writeSessions = v1alpha1.CapabilityID("host.v2.write:sessions")
)

// patch is a JSON merge patch of a spec, or of a whole object.
type patch = map[string]any

func uniqueName() string { return "t-" + uuid.NewString() }

func digestOf(digit string) string { return "v1:" + strings.Repeat(digit, 64) }

// approval is a grant in payments, as its human writes it.
func approval(approvedBy string) *v1alpha1.PluginCapabilityApproval {
	name := uniqueName()
	return &v1alpha1.PluginCapabilityApproval{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: payments},
		Spec: v1alpha1.PluginCapabilityApprovalSpec{
			InstallationName: name, InstallationID: uuid.NewString(), ManifestDigest: digestOf("a"), WorkspaceID: payments,
			Capabilities: []v1alpha1.CapabilityID{readTasks, writeTasks}, State: v1alpha1.StateActive,
			ApprovedBy: approvedBy, Reason: "reviewed",
		},
	}
}

// granted is an approval that ada has granted, for the time of the spec.
func granted(ctx context.Context, edits ...func(*v1alpha1.PluginCapabilityApproval)) *v1alpha1.PluginCapabilityApproval {
	GinkgoHelper()
	a := approval(ada.name)
	for _, edit := range edits {
		edit(a)
	}
	Expect(ada.Create(ctx, a)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(administrator.Delete(ctx, a))).To(Succeed()) })
	return a
}

func until(text string) *metav1.Time {
	GinkgoHelper()
	at, err := time.Parse(time.RFC3339, text)
	Expect(err).NotTo(HaveOccurred())
	return &metav1.Time{Time: at}
}

func ends(text string) func(*v1alpha1.PluginCapabilityApproval) {
	return func(a *v1alpha1.PluginCapabilityApproval) { a.Spec.ExpiresAt = until(text) }
}

// tries says what who would be told about a change of the spec. Nothing is kept.
func tries(ctx context.Context, who person, object client.Object, spec patch) error {
	GinkgoHelper()
	return sends(ctx, who, object, patch{"spec": spec}, client.DryRunAll)
}

// edits changes the spec.
func edits(ctx context.Context, who person, object client.Object, spec patch) error {
	GinkgoHelper()
	return sends(ctx, who, object, patch{"spec": spec})
}

func sends(ctx context.Context, who person, object client.Object, whole patch, options ...client.PatchOption) error {
	GinkgoHelper()
	copied, ok := object.DeepCopyObject().(client.Object)
	Expect(ok).To(BeTrue())
	if err := who.Patch(ctx, copied, merge(whole), options...); err != nil {
		return fmt.Errorf("patch as %s: %w", who.name, err)
	}
	return nil
}

func merge(whole patch) client.Patch {
	GinkgoHelper()
	body, err := json.Marshal(whole)
	Expect(err).NotTo(HaveOccurred())
	return client.RawPatch(types.MergePatchType, body)
}

// beRefusedBy matches the policy's refusal with the texts in it.
func beRefusedBy(policy string, texts ...string) gomegatypes.GomegaMatcher {
	return gcustom.MakeMatcher(func(err error) (bool, error) {
		if err == nil || !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			return false, nil
		}
		message := err.Error()
		if !strings.Contains(message, "denied request: "+v1alpha1.PolicyRefusalPrefix(policy)) {
			return false, nil
		}
		for _, text := range texts {
			if !strings.Contains(message, text) {
				return false, nil
			}
		}
		return true, nil
	}).WithTemplate("Expected\n{{.FormattedActual}}\n{{.To}} be refused by "+policy+" with {{format .Data 1}}", texts)
}

// beRefusedBySchema matches what the CRD refuses, before any policy.
func beRefusedBySchema(field string) gomegatypes.GomegaMatcher {
	return And(WithTransform(apierrors.IsInvalid, BeTrue()), MatchError(ContainSubstring(field)),
		MatchError(Not(ContainSubstring("denied request"))))
}

func installation() *v1alpha1.PluginInstallation {
	return &v1alpha1.PluginInstallation{
		ObjectMeta: metav1.ObjectMeta{Name: uniqueName()},
		Spec: v1alpha1.PluginInstallationSpec{
			PluginID: "kandev.standup-notes", Version: "1.4.0",
			Manifest:          v1alpha1.PluginManifest{Capabilities: []v1alpha1.ManifestCapability{{ID: readTasks}}},
			ServiceAccountRef: v1alpha1.ServiceAccountReference{Namespace: "plugin-standup", Name: "standup"},
		},
	}
}

func event() *v1alpha1.PluginCapabilityApprovalEvent {
	id := uuid.NewString()
	return &v1alpha1.PluginCapabilityApprovalEvent{
		ObjectMeta: metav1.ObjectMeta{Name: id + "." + payments + ".r1", Labels: map[string]string{v1alpha1.LabelWorkspaceID: payments}},
		Spec: v1alpha1.PluginCapabilityApprovalEventSpec{
			AuditID: "audit", Type: "Grant", InstallationID: id, InstallationName: "standup", WorkspaceID: payments, Revision: 1,
			State: v1alpha1.StateActive, Actor: v1alpha1.Actor{Assurance: "Unknown"}, Cause: "Human",
			Time: metav1.NewMicroTime(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)), DecisionDigest: digestOf("c"),
		},
	}
}

func humanPolicy() *v1alpha1.HumanPolicy {
	return &v1alpha1.HumanPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: uniqueName()},
		Spec:       v1alpha1.HumanPolicySpec{Rules: []v1alpha1.PolicyRule{{Class: "RunsAndSessions", Deny: true}}},
	}
}
