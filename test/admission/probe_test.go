package admission_test

import (
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

var _ = Describe("the policies", func() {
	It("are those with the names, all denying, failing closed, and without parameters that could go stale", func(ctx SpecContext) {
		var policies admissionregistrationv1.ValidatingAdmissionPolicyList
		var bindings admissionregistrationv1.ValidatingAdmissionPolicyBindingList
		Expect(administrator.List(ctx, &policies)).To(Succeed())
		Expect(administrator.List(ctx, &bindings)).To(Succeed())
		var named, bound []string
		for _, policy := range policies.Items {
			named = append(named, policy.Name)
			Expect(policy.Spec.ParamKind).To(BeNil(), policy.Name)
			Expect(*policy.Spec.FailurePolicy).To(Equal(admissionregistrationv1.Fail), policy.Name)
			Expect(len(policy.Spec.Validations)).To(BeNumerically("<=", 32), policy.Name)
		}
		for _, binding := range bindings.Items {
			bound = append(bound, binding.Name)
			Expect(binding.Spec.PolicyName).To(Equal(binding.Name))
			Expect(binding.Spec.ParamRef).To(BeNil(), binding.Name)
			Expect(binding.Spec.MatchResources).To(BeNil(), binding.Name)
			Expect(binding.Spec.ValidationActions).To(ConsistOf(admissionregistrationv1.Deny), binding.Name)
		}
		Expect(named).To(ConsistOf(v1alpha1.AdmissionPolicies()))
		Expect(bound).To(ConsistOf(v1alpha1.AdmissionPolicies()))
	})

	It("leave no way to write that nobody thought of", func(ctx SpecContext) {
		var policies admissionregistrationv1.ValidatingAdmissionPolicyList
		Expect(administrator.List(ctx, &policies)).To(Succeed())
		judged := map[string]bool{}
		for _, policy := range policies.Items {
			for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
				if len(rule.ResourceNames) > 0 || !slices.Contains(rule.APIGroups, v1alpha1.GroupVersion.Group) {
					continue
				}
				for _, resource := range rule.Resources {
					for _, operation := range rule.Operations {
						judged[string(operation)+" "+resource] = true
					}
				}
			}
		}
		served, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
		Expect(err).NotTo(HaveOccurred())
		writes := map[string]string{"create": "CREATE", "update": "UPDATE", "patch": "UPDATE", "delete": "DELETE", "deletecollection": "DELETE"}
		var free []string
		for _, resource := range served.APIResources {
			for _, verb := range resource.Verbs {
				way := writes[verb] + " " + resource.Name
				if writes[verb] != "" && !judged[way] && !slices.Contains(free, way) {
					free = append(free, way)
				}
			}
		}
		Expect(free).To(ConsistOf(
			"DELETE plugincapabilityapprovals", "DELETE plugininstallations", // taking away is free
			"UPDATE humanpolicies", // its schema lets nothing change
		))
	})

	It("have nothing that the API server warns of", func(ctx SpecContext) {
		for _, name := range v1alpha1.AdmissionPolicies() {
			var policy admissionregistrationv1.ValidatingAdmissionPolicy
			Eventually(ctx, func(g Gomega) {
				g.Expect(administrator.Get(ctx, client.ObjectKey{Name: name}, &policy)).To(Succeed())
				g.Expect(policy.Status.ObservedGeneration).To(Equal(policy.Generation))
			}).Should(Succeed())
			Expect(policy.Status.TypeChecking).NotTo(BeNil(), name)
			Expect(policy.Status.TypeChecking.ExpressionWarnings).To(BeEmpty(), name)
		}
	})

	It("refuse their probes to everybody, in a dry run and in earnest, in every namespace", func(ctx SpecContext) {
		for _, policy := range v1alpha1.AdmissionPolicies() {
			for _, who := range everybody() {
				for _, namespace := range []string{payments, hostNamespace} {
					Expect(probe(ctx, who, namespace, policy)).To(beProbed(policy), "%s by %s", policy, who.name)
				}
				a := approval(who.name)
				a.Name = v1alpha1.PolicyProbeName(policy)
				a.Spec.InstallationName = a.Name
				Expect(who.Create(ctx, a)).To(Satisfy(apierrors.IsForbidden), "%s by %s", policy, who.name)
			}
		}
	})

	It("are probed with no more than the right to create approvals in one namespace", func(ctx SpecContext) {
		create(ctx, &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Name: "prober", Namespace: hostNamespace},
			Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"plugincapabilityapprovals"}, Verbs: []string{"create"},
			}},
		})
		prober := serviceAccount(ctx, hostNamespace, "prober")
		create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "prober", Namespace: hostNamespace},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "prober"}, Subjects: []rbacv1.Subject{user(prober.name)},
		})
		for _, policy := range v1alpha1.AdmissionPolicies() {
			Eventually(ctx, probe).WithArguments(prober, hostNamespace, policy).Should(beProbed(policy))
		}
		a := approval(prober.name)
		a.Namespace = hostNamespace
		Expect(prober.Create(ctx, a)).To(beRefusedBy(v1alpha1.PolicyApprovals, "may only narrow"), "the right is good for nothing else")
	})

	It("are told apart: one that isn't in force is found out, and it comes back", Serial, func(ctx SpecContext) {
		for _, policy := range v1alpha1.AdmissionPolicies() {
			binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
			Expect(administrator.Get(ctx, client.ObjectKey{Name: policy}, binding)).To(Succeed())
			Expect(administrator.Delete(ctx, binding)).To(Succeed())
			// Policies are in force again after this spec, whatever happens in it.
			binding.ResourceVersion, binding.UID = "", ""
			DeferCleanup(func(ctx SpecContext) {
				Expect(client.IgnoreAlreadyExists(administrator.Create(ctx, binding.DeepCopy()))).To(Succeed())
				Eventually(ctx, probe).WithArguments(controllers, hostNamespace, policy).Should(beProbed(policy))
			})
		}
		for _, policy := range v1alpha1.AdmissionPolicies() {
			Eventually(ctx, probe).WithArguments(controllers, hostNamespace, policy).ShouldNot(beProbed(policy))
		}
		// Now the policies themselves, deleted and created again together with their
		// bindings: what comes back is enforced, with nothing left of before.
		for _, object := range objects(overlay()) {
			if object.GetKind() == "ValidatingAdmissionPolicy" {
				Expect(administrator.Delete(ctx, object)).To(Succeed())
			}
		}
		apply(ctx, overlay())
		back := time.Now()
		for _, policy := range v1alpha1.AdmissionPolicies() {
			Eventually(ctx, probe).WithArguments(controllers, hostNamespace, policy).Should(beProbed(policy))
		}
		AddReportEntry("in force again after", time.Since(back).Round(time.Millisecond).String())
	})

	It("stand alone: one that is missing opens no way past the others", Serial, func(ctx SpecContext) {
		for _, missing := range []string{v1alpha1.PolicyApprovals, v1alpha1.PolicyInstallations} {
			binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
			Expect(administrator.Get(ctx, client.ObjectKey{Name: missing}, binding)).To(Succeed())
			Expect(administrator.Delete(ctx, binding)).To(Succeed())
			back := func(ctx SpecContext) {
				binding.ResourceVersion, binding.UID = "", ""
				Expect(client.IgnoreAlreadyExists(administrator.Create(ctx, binding.DeepCopy()))).To(Succeed())
				Eventually(ctx, probe).WithArguments(controllers, hostNamespace, missing).Should(beProbed(missing))
			}
			DeferCleanup(back)
			Eventually(ctx, probe).WithArguments(controllers, hostNamespace, missing).Should(Succeed())
			for _, policy := range v1alpha1.AdmissionPolicies() {
				if policy != missing {
					Expect(probe(ctx, controllers, hostNamespace, policy)).To(beProbed(policy))
				}
			}
			if missing != v1alpha1.PolicyApprovals {
				a := approval(bot.name)
				a.Name = v1alpha1.PolicyProbeName(missing)
				a.Spec.InstallationName = a.Name
				Expect(bot.Create(ctx, a)).To(beRefusedBy(v1alpha1.PolicyApprovals, "may only narrow"), "in earnest it is an approval like any other")
			}
			back(ctx)
		}
	})
})
