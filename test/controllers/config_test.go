package controllers_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

// configIs waits until the installation says why its configuration is ready or not.
func (s *scene) configIs(ctx context.Context, reason, message string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		o := s.installation(ctx)
		g.Expect(why(o.Status.Conditions, v1alpha1.ConditionConfigReady)).To(Equal(reason))
		g.Expect(says(o.Status.Conditions, v1alpha1.ConditionConfigReady)).To(Equal(message))
		g.Expect(isTrue(o.Status.Conditions, v1alpha1.ConditionConfigReady)).To(Equal(reason == v1alpha1.ReasonSecretsResolved))
		g.Expect(o.Status.ObservedGeneration).To(Equal(o.Generation))
	}).WithTimeout(patience).Should(Succeed())
}

// letRead gives the processes one Secret of a namespace.
func letRead(ctx context.Context, namespace, secret string) {
	GinkgoHelper()
	Expect(api.Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "plugin-host-plugin-secrets"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{secret}, Verbs: []string{"get"}}},
	})).To(Succeed())
	Expect(api.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "plugin-host-plugin-secrets"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "plugin-host-plugin-secrets"},
		Subjects:   hostSubjects(),
	})).To(Succeed())
}

var _ = Describe("spec.secretRefs", func() {
	It("says which reference has no value and why, once for each turn, whichever process leads", func(ctx SpecContext) {
		db := newDatabase(ctx, onSQLite)
		h := newHost(db)
		startHost(h)
		s := newScene(ctx, readTasks)
		s.registered(ctx)
		Expect(why(s.installation(ctx).Status.Conditions, v1alpha1.ConditionConfigReady)).To(BeEmpty())

		refer := func(key string) {
			s.editInstallation(ctx, func(o *v1alpha1.PluginInstallation) {
				o.Spec.Manifest.ConfigSchema = &apiextensionsv1.JSON{Raw: []byte(`{"type":"object","properties":{"token":{"type":"string","secret":true}}}`)}
				o.Spec.SecretRefs = []v1alpha1.SecretReference{{Name: "token", SecretName: "given", Key: key}}
			})
		}
		at := func(fault, key string) string {
			return "spec.secretRefs[token]: " + fault + " (Secret " + s.plugin + "/given, key " + key + ")"
		}
		const not, is = corev1.EventTypeWarning + " " + v1alpha1.EventReasonConfigNotReady, corev1.EventTypeNormal + " " + v1alpha1.EventReasonConfigReady
		turns := func(expected ...string) {
			GinkgoHelper()
			Eventually(func() []string {
				var turns []string
				for _, e := range told(ctx, metav1.NamespaceDefault, "PluginInstallation", s.plugin) {
					Expect(e.Note).NotTo(ContainSubstring("s3cr3t"))
					turns = append(turns, e.Type+" "+e.Reason)
				}
				return turns
			}).Should(Equal(expected))
		}
		const resolved = "every reference of spec.secretRefs has its value"
		refer("token")
		s.configIs(ctx, v1alpha1.ReasonSecretsUnresolved, at("the Host may not read its Secret", "token"))
		letRead(ctx, s.plugin, "given")
		s.configIs(ctx, v1alpha1.ReasonSecretsUnresolved, at("its Secret isn't there", "token"))
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.plugin, Name: "given"}, StringData: map[string]string{"token": "s3cr3t", "more": "s3cr3t"}}
		Expect(api.Create(ctx, secret)).To(Succeed())
		s.configIs(ctx, v1alpha1.ReasonSecretsResolved, resolved)

		// Another version that asks for what was read already.
		s.editInstallation(ctx, func(o *v1alpha1.PluginInstallation) { o.Spec.Version = "1.0.1" })
		s.configIs(ctx, v1alpha1.ReasonSecretsResolved, resolved)
		refer("none")
		s.configIs(ctx, v1alpha1.ReasonSecretsUnresolved, at("its Secret has no such key", "none"))

		// The next process has read nothing yet; what it reads, it says. What this one
		// hasn't told when it ends, nobody tells.
		turns(not, not, is, not)
		h.stop()
		Eventually(h.done).WithTimeout(patience).Should(BeClosed())
		Expect(api.Delete(ctx, secret)).To(Succeed())
		beside(h)
		s.configIs(ctx, v1alpha1.ReasonSecretsUnresolved, at("its Secret isn't there", "none"))
		s.editInstallation(ctx, func(o *v1alpha1.PluginInstallation) {
			o.Spec.Manifest.ConfigSchema = &apiextensionsv1.JSON{Raw: []byte(`{"type":"object","required":["channel"],"properties":{"channel":{"type":"string"},"token":{"type":"string","secret":true}}}`)}
		})
		s.configIs(ctx, v1alpha1.ReasonConfigInvalid, "see Accepted; the plugin gets no configuration")
		s.editInstallation(ctx, func(o *v1alpha1.PluginInstallation) { o.Spec.SecretRefs = nil })
		Eventually(func() string {
			return why(s.installation(ctx).Status.Conditions, v1alpha1.ConditionConfigReady)
		}).WithTimeout(patience).Should(BeEmpty())

		turns(not, not, is, not, not)
		Expect(api.Delete(ctx, s.installation(ctx), client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
	})
})
