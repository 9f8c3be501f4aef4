package controllers

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/controllers/kinds"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

// fieldOwner owns the status of our kinds.
const fieldOwner = client.FieldOwner("plugin-host")

// maxInactive is the schema's bound of status.inactiveCapabilities.
const maxInactive = 64

// statuses writes status by server-side apply, bound to the version that it was
// computed from. It implements fence.Status.
type statuses struct {
	writer client.Client
	now    func() time.Time
	// doubt says why nobody has checked a version of an approval.
	doubt func(uid string, generation int64) string
	// told is given the conditions before and after each write.
	told func(object client.Object, before, after []metav1.Condition)

	mu sync.Mutex
	// written are the statuses that this process wrote last, digested.
	written map[types.UID][sha256.Size]byte
}

func newStatuses(writer client.Client, now func() time.Time) *statuses {
	return &statuses{
		writer: writer, now: now, written: map[types.UID][sha256.Size]byte{},
		doubt: func(string, int64) string { return doubtAlways }, told: func(client.Object, []metav1.Condition, []metav1.Condition) {},
	}
}

// tampered passes updates of a status that this process has not written: it is
// to be written again, for a status that somebody else wrote grants nothing but
// is believed.
func (s *statuses) tampered(statusOf func(client.Object) any) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		DeleteFunc: func(e event.DeleteEvent) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.written, e.Object.GetUID())
			return false
		},
		UpdateFunc: func(e event.UpdateEvent) bool {
			after := digestOf(statusOf(e.ObjectNew))
			if after == digestOf(statusOf(e.ObjectOld)) {
				return false
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.written[e.ObjectNew.GetUID()] != after
		},
	}
}

func approvalStatus(o client.Object) any {
	if approval, ok := o.(*v1alpha1.PluginCapabilityApproval); ok {
		return &approval.Status
	}
	return nil
}

func installationStatus(o client.Object) any {
	if installation, ok := o.(*v1alpha1.PluginInstallation); ok {
		return &installation.Status
	}
	return nil
}

// digestOf identifies a status; one that can't be encoded equals no other one's.
func digestOf(status any) [sha256.Size]byte {
	text, err := json.Marshal(status)
	if err != nil {
		return [sha256.Size]byte{}
	}
	return sha256.Sum256(text)
}

// Apply implements fence.Status.
func (s *statuses) Apply(ctx context.Context, object fence.Object, report authority.Report) error {
	approval, ok := object.Read.(*v1alpha1.PluginCapabilityApproval)
	if !ok {
		return fmt.Errorf("write the status of approval %s/%s: what was read of it is a %T", object.Namespace, object.Name, object.Read)
	}
	status := reported(report, &approval.Spec, s.doubt(object.UID, approval.Generation))
	if before := approval.Status; report.Waiting != nil && before.InstallationID == status.InstallationID && before.Revision > status.Revision {
		// A revision never goes back, and this one says what is lost.
		status.Revision, status.Act = before.Revision, before.Act
	}
	return s.applyApproval(ctx, approval, status)
}

// reported is the status of a row. Conditions are not stamped yet.
func reported(r authority.Report, spec *v1alpha1.PluginCapabilityApprovalSpec, doubt string) v1alpha1.PluginCapabilityApprovalStatus {
	row := r.Row
	status := v1alpha1.PluginCapabilityApprovalStatus{
		InstallationID: row.Key.InstallationID,
		Revision:       int64(row.Revision),
		Act:            row.Act, State: v1alpha1.State(row.State.String()), ExpiresAt: kinds.MicroTime(row.ExpiresAt),
		EffectiveCapabilities: kinds.IDsOf(r.Effective),
		EffectiveSummary:      strconv.Itoa(r.Effective.Len()) + "/" + strconv.Itoa(r.Declared.Len()),
		Gates:                 gatesOf(&row),
		ManifestDigest:        row.Vector.ManifestDigest, HumanPolicyVersion: row.Vector.PolicyVersion,
		ApprovedBy: row.ApprovedBy, ApprovedVia: row.ApprovedVia, ConfirmedBy: row.ConfirmedBy,
		ApproverAssurance: approverOf(&row), IssuedAt: seconds(row.IssuedAt), UpdatedAt: seconds(row.UpdatedAt),
		LastAuditID: row.AuditID,
		Conditions:  []metav1.Condition{approvalReady(r, spec), approvalFenced(r), reviewRequired(r, spec, doubt)},
	}
	switch {
	case row.State == authority.StateNone:
		status.State = v1alpha1.StatePending
	case row.Hold != nil && row.Hold.State != authority.StateActive:
		status.State = v1alpha1.StateRevoked
	}
	for _, inactive := range r.Inactive[:min(len(r.Inactive), maxInactive)] {
		status.InactiveCapabilities = append(status.InactiveCapabilities, v1alpha1.InactiveCapability{
			ID: inactive.ID, Reason: v1alpha1.InactiveReason(inactive.Reason),
		})
	}
	return status
}

// approverOf says how far the name of the row's approver can be trusted.
func approverOf(row *authority.Row) v1alpha1.ApproverAssurance {
	switch {
	case row.ApprovedBy == "":
		return ""
	case row.Unproven:
		return v1alpha1.ApproverUnproven
	case row.ApprovedVia != "":
		return v1alpha1.ApproverClaimed
	default:
		return v1alpha1.ApproverVerified
	}
}

// pending is the status of an approval that speaks for no row. What an earlier
// status said of a sequence stays known.
func pending(before v1alpha1.PluginCapabilityApprovalStatus, reason, message string) v1alpha1.PluginCapabilityApprovalStatus {
	return v1alpha1.PluginCapabilityApprovalStatus{
		InstallationID: before.InstallationID, Revision: before.Revision, Act: before.Act,
		State: v1alpha1.StatePending, EffectiveSummary: "0/0", Conditions: absent(reason, message),
	}
}

// applyApproval writes the status if it differs from what the object, read
// live, has.
func (s *statuses) applyApproval(ctx context.Context, object *v1alpha1.PluginCapabilityApproval, status v1alpha1.PluginCapabilityApprovalStatus) error {
	status.ObservedGeneration = object.Generation
	status.Conditions = stamp(status.Conditions, object.Status.Conditions, object.Generation, s.now())
	if err := s.apply(ctx, object, "PluginCapabilityApproval", &object.Status, &status); err != nil {
		return err
	}
	s.told(object, object.Status.Conditions, status.Conditions)
	return nil
}

// applyInstallation is the same for installations.
func (s *statuses) applyInstallation(ctx context.Context, object *v1alpha1.PluginInstallation, status v1alpha1.PluginInstallationStatus) error {
	status.ObservedGeneration = object.Generation
	status.Conditions = stamp(status.Conditions, object.Status.Conditions, object.Generation, s.now())
	if err := s.apply(ctx, object, "PluginInstallation", &object.Status, &status); err != nil {
		return err
	}
	s.told(object, object.Status.Conditions, status.Conditions)
	return nil
}

// apply does nothing when nothing changes: the steady state writes nothing. The
// resource version makes it fail on any other version of the object, so that
// owning our fields by force takes nothing from anyone who acted meanwhile.
func (s *statuses) apply(ctx context.Context, object client.Object, kind string, before, after any) error {
	was, err := runtime.DefaultUnstructuredConverter.ToUnstructured(before)
	if err != nil {
		return fmt.Errorf("encode the status of %s %s: %w", kind, object.GetName(), err)
	}
	will, err := runtime.DefaultUnstructuredConverter.ToUnstructured(after)
	if err != nil {
		return fmt.Errorf("encode the status of %s %s: %w", kind, object.GetName(), err)
	}
	if equality.Semantic.DeepEqual(was, will) {
		return nil
	}
	s.mu.Lock()
	s.written[object.GetUID()] = digestOf(after)
	s.mu.Unlock()
	applied := &unstructured.Unstructured{Object: map[string]any{"status": will}}
	applied.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	applied.SetNamespace(object.GetNamespace())
	applied.SetName(object.GetName())
	applied.SetUID(object.GetUID())
	applied.SetResourceVersion(object.GetResourceVersion())
	err = s.writer.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), fieldOwner, client.ForceOwnership)
	if err == nil && !equality.Semantic.DeepEqual(applied.Object["status"], will) {
		// Applying leaves what somebody else has put beside it.
		cleaned := applied.DeepCopy()
		cleaned.Object["status"] = will
		err = s.writer.Status().Patch(ctx, cleaned, client.MergeFromWithOptions(applied, client.MergeFromWithOptimisticLock{}), fieldOwner)
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return fence.ErrConflict
	case err != nil:
		return fmt.Errorf("apply the status of %s %s: %w", kind, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

func seconds(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	rounded := metav1.NewTime(t.UTC().Truncate(time.Second))
	return &rounded
}
