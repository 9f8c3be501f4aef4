package admission_test

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

// narrows is the definition of narrowing in Go, field by field, to compare the
// policy with.
func narrows(before, after v1alpha1.PluginCapabilityApprovalSpec) bool {
	for _, id := range after.Capabilities {
		if !slices.Contains(before.Capabilities, id) {
			return false
		}
	}
	if after.State != before.State && after.State != v1alpha1.StateRevoked {
		return false
	}
	if before.ExpiresAt != nil && (after.ExpiresAt == nil || after.ExpiresAt.After(before.ExpiresAt.Time)) {
		return false
	}
	return after.InstallationName == before.InstallationName && after.InstallationID == before.InstallationID &&
		after.WorkspaceID == before.WorkspaceID && after.ManifestDigest == before.ManifestDigest &&
		after.SupersedesAct == before.SupersedesAct && after.ApprovedBy == before.ApprovedBy &&
		after.ApprovedVia == before.ApprovedVia && after.ConfirmedBy == before.ConfirmedBy
}

var _ = Describe("narrowing", func() {
	It("is exactly what it is defined as, for any two specs", func(ctx SpecContext) {
		const pairs = 250
		seed := uint64(GinkgoRandomSeed())
		random := rand.New(rand.NewPCG(seed, 1))
		ids := []v1alpha1.CapabilityID{readTasks, writeTasks, readSessions, writeSessions}
		start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

		scramble := func(spec *v1alpha1.PluginCapabilityApprovalSpec) {
			spec.Capabilities = nil
			for _, i := range random.Perm(len(ids))[:random.IntN(len(ids)+1)] {
				spec.Capabilities = append(spec.Capabilities, ids[i])
			}
			spec.State = []v1alpha1.State{v1alpha1.StateActive, v1alpha1.StateRevoked}[random.IntN(2)]
			spec.ExpiresAt = nil
			if random.IntN(3) > 0 {
				zone := time.FixedZone("", (random.IntN(25)-12)*3600)
				spec.ExpiresAt = &metav1.Time{Time: start.Add(time.Duration(random.IntN(4)) * time.Hour).In(zone)}
			}
		}
		counts := map[bool]int{}
		a := granted(ctx)
		for range pairs {
			scramble(&a.Spec)
			Expect(ada.Update(ctx, a)).To(Succeed(), "seed %d", seed)
			after := a.DeepCopy()
			scramble(&after.Spec)
			// Most pairs differ in those alone, or few would narrow.
			for _, other := range []func(){
				func() { after.Spec.InstallationID = uuid.NewString() },
				func() { after.Spec.ManifestDigest = digestOf("b") },
				func() { after.Spec.SupersedesAct = "1-abcdef" },
				func() { after.Spec.ApprovedBy = dora.name },
				func() { after.Spec.ApprovedVia = flux.name },
				func() { after.Spec.ConfirmedBy = grace.name },
				func() { after.Spec.Reason = "another" },
				func() { after.Spec.ChangedBy = dora.name },
			} {
				if random.IntN(16) == 0 {
					other()
				}
			}
			// Who may grant nothing may narrow and, in their own name, list nothing.
			expected := narrows(a.Spec, after.Spec)
			counts[expected]++
			listsNothing := len(after.Spec.Capabilities) == 0 && after.Spec.ApprovedBy == dora.name &&
				after.Spec.ApprovedVia == "" && after.Spec.ConfirmedBy == ""
			err := dora.Update(ctx, after.DeepCopy(), client.DryRunAll)
			if expected || listsNothing {
				Expect(err).NotTo(HaveOccurred(), "seed %d: %+v -> %+v", seed, a.Spec, after.Spec)
			} else {
				Expect(err).To(beRefusedBy(v1alpha1.PolicyApprovals), "seed %d: %+v -> %+v", seed, a.Spec, after.Spec)
			}
		}
		Expect(counts[true]).To(BeNumerically(">", pairs/50), "both answers are tried")
		Expect(counts[false]).To(BeNumerically(">", pairs/10))
	})
})
