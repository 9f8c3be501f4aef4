package controllers_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
	"github.com/kandev/plugin-host/hostsvc/identity"
)

// registrations are those of a process, as its binary passes them on.
type registrations struct{ view *view.View }

func (r registrations) Registration(account identity.Account) (identity.Registration, bool) {
	p, ok := r.view.Principal(account.Namespace, account.Name)
	return identity.Registration{
		InstallationID: p.InstallationID, InstallationName: p.InstallationName, PluginID: p.PluginID,
		ServiceAccountUID: p.ServiceAccountUID, WorkloadOf: p.WorkloadOf, Conflict: p.Conflict, Unknown: p.Unknown,
	}, ok
}

// authenticator is that of a process, with the rights that the processes have.
func (h *host) authenticator() *identity.Authenticator {
	GinkgoHelper()
	own := rest.CopyConfig(config)
	own.Impersonate = rest.ImpersonationConfig{UserName: hostUser}
	reviewer, err := identity.NewKubeReviewer(own)
	Expect(err).NotTo(HaveOccurred())
	cluster, err := identity.NewKubeCluster(own)
	Expect(err).NotTo(HaveOccurred())
	return identity.NewAuthenticator(identity.Config{Reviewer: reviewer, Cluster: cluster, Directory: registrations{h.view}, Now: time.Now})
}

// replicaSet is what the deployment's controller makes, which these tests are without.
func replicaSet(ctx context.Context, d *appsv1.Deployment) *appsv1.ReplicaSet {
	GinkgoHelper()
	made := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, GenerateName: d.Name + "-", Labels: d.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Selector: d.Spec.Selector, Template: d.Spec.Template},
	}
	Expect(api.Create(ctx, made)).To(Succeed())
	return made
}

// tokenOf makes a pod of the deployment's template, and returns its token.
func tokenOf(ctx context.Context, d *appsv1.Deployment, owners ...metav1.OwnerReference) string {
	GinkgoHelper()
	pod := templated(d)
	pod.OwnerReferences = owners
	Expect(api.Create(ctx, pod)).To(Succeed())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences:      []string{contract.Audience},
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: pod.Spec.ServiceAccountName}}
	Expect(api.SubResource("token").Create(ctx, account, request)).To(Succeed())
	return request.Status.Token
}

var _ = Describe("The pods of spec.workload", func() {
	It("are the plugin, and no other pod under its ServiceAccount is (I1)", func(ctx SpecContext) {
		h, _ := startWithWorkloads(newDatabase(ctx, onSQLite))
		s := newWorkloadScene(ctx, true)
		s.workloadIs(ctx, v1alpha1.ReasonStarting)
		d := deployment(ctx, s.plugin, nil)
		byReplicaSet := func(r *appsv1.ReplicaSet) metav1.OwnerReference {
			return *metav1.NewControllerRef(r, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
		}
		now, next := replicaSet(ctx, d), replicaSet(ctx, d)
		forged := byReplicaSet(now)
		forged.UID = d.UID
		ours, rollout := tokenOf(ctx, d, byReplicaSet(now)), tokenOf(ctx, d, byReplicaSet(next))
		bare, other := tokenOf(ctx, d), tokenOf(ctx, d, forged)
		auth := h.authenticator()
		is := func(token string, match OmegaMatcher) {
			GinkgoHelper()
			Eventually(func() error {
				_, err := auth.Authenticate(ctx, token)
				return err
			}).Should(match)
		}
		for _, token := range []string{ours, rollout} {
			is(token, Succeed())
			principal, err := auth.Authenticate(ctx, token)
			Expect(err).NotTo(HaveOccurred())
			Expect(principal.InstallationID).To(Equal(s.installation(ctx).Status.InstallationID))
		}
		for _, token := range []string{bare, other} {
			_, err := auth.Authenticate(ctx, token)
			Expect(err).To(MatchError(identity.ErrUnauthenticated))
		}

		By("refusing the old pods once the deployment is another one")
		Expect(api.Delete(ctx, d, client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
		collect(ctx, d)
		deployment(ctx, s.plugin, func(g Gomega, made *appsv1.Deployment) { g.Expect(made.UID).NotTo(Equal(d.UID)) })
		fresh := h.authenticator() // one that remembers nothing
		_, err := fresh.Authenticate(ctx, ours)
		Expect(err).To(MatchError(identity.ErrUnauthenticated))

		By("taking any pod again once somebody else runs the plugin")
		s.editInstallation(ctx, func(o *v1alpha1.PluginInstallation) { o.Spec.Workload = nil })
		is(bare, Succeed())
	})
})
