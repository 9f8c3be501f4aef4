package controllers_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
)

func uidOf(ctx context.Context, namespace string) types.UID {
	GinkgoHelper()
	var o corev1.Namespace
	Expect(api.Get(ctx, client.ObjectKey{Name: namespace}, &o)).To(Succeed())
	return o.UID
}

// passOn makes a namespace the workspace that another one was.
func passOn(ctx context.Context, workspace, namespace string, from types.UID) {
	GinkgoHelper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q},"annotations":{%q:%q}}}`,
		v1alpha1.LabelWorkspaceID, workspace, v1alpha1.AnnotationRebindFrom, from)
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	Expect(api.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

var _ = Describe("I7: a workspace that passes on to another namespace", func() {
	It("starts there with no authority, and a new act grants", func(ctx SpecContext) {
		db := newDatabase(ctx, onSQLite)
		h := start(db)
		s := newScene(ctx, readTasks, writeTasks)
		granted := s.grant(ctx, writeTasks)
		used := s.spec(ctx, writeTasks)
		key, former := s.key(ctx), s.namespace
		from := uidOf(ctx, former)

		By("taking the label from the one namespace and giving it to the other, with the same manifest in it")
		s.namespace = unique("team")
		newNamespace(ctx, s.namespace)
		s.apply(ctx, used)
		label(ctx, former, "")
		passOn(ctx, s.workspace, s.namespace, from)
		o := s.converged(ctx, h, usedAgain)
		revoked(Default, o)
		Expect(o.Status.Revision).To(BeNumerically(">", granted.Status.Revision))
		s.refused(ctx, h, key, contract.ReasonCapabilityRevoked)
		Expect(story(ctx, key)[1]).To(Or(Equal("Revoke WorkspaceRemoved"), Equal("Revoke ApprovalDeleted")))

		By("granting anew")
		anew := used
		anew.SupersedesAct = o.Status.Act
		s.apply(ctx, anew)
		s.converged(ctx, h, active)
		s.allowed(ctx, h)

		By("starting again: the binding is durable, and the annotation says nothing any more")
		h.kill()
		h = start(db)
		s.converged(ctx, h, active)
		s.allowed(ctx, h)
	})

	It("stays where it is when another namespace is named than the one it leaves", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		other := unique("team")
		newNamespace(ctx, other)
		passOn(ctx, s.workspace, other, uidOf(ctx, s.plugin))
		s.settled(ctx, gated(v1alpha1.GateWorkspaceConflict))
		label(ctx, other, "")
		s.converged(ctx, h, active)
		s.allowed(ctx, h)
	})
})
