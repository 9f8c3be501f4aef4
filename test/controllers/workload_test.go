package controllers_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/controllers"
	"github.com/kandev/plugin-host/controllers/kinds"
	"github.com/kandev/plugin-host/sdk"
)

// certificate is a CA as PEM, with its key.
func certificate() (cert, key []byte) {
	GinkgoHelper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	Expect(err).NotTo(HaveOccurred())
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	Expect(err).NotTo(HaveOccurred())
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

// startWithWorkloads runs a process that can run plugins.
func startWithWorkloads(db *database) (h *host, ca []byte) {
	GinkgoHelper()
	h = newHost(db)
	ca, key := certificate()
	file := filepath.Join(GinkgoT().TempDir(), "ca.crt")
	Expect(os.WriteFile(file, append(key, ca...), 0o600)).To(Succeed())
	h.workloads = controllers.Workloads{
		HostAddress: "plugin-host." + db.namespace + ".svc:8443", HostPort: 8443, CAFile: file,
		HostLabels: map[string]string{"app.kubernetes.io/name": "plugin-host"}, LauncherImage: "launcher@sha256:1",
	}
	startHost(h)
	return h, ca
}

// newWorkloadScene installs a plugin to be run, in a namespace that enforces Pod
// Security's restricted level.
func newWorkloadScene(ctx context.Context, mayRun bool) *scene {
	GinkgoHelper()
	s := &scene{plugin: unique("plugin")}
	pluginNamespace(ctx, s.plugin, mayRun)
	newServiceAccount(ctx, s.plugin, s.plugin)
	Expect(api.Create(ctx, &v1alpha1.PluginInstallation{
		ObjectMeta: metav1.ObjectMeta{Name: s.plugin},
		Spec: v1alpha1.PluginInstallationSpec{
			PluginID: "kandev.sample", Version: "1.0.0", Manifest: manifest(readTasks),
			ServiceAccountRef: v1alpha1.ServiceAccountReference{Namespace: s.plugin, Name: s.plugin},
			Workload:          &v1alpha1.Workload{Image: "standup@sha256:1", Package: "/plugin/standup.tar.gz"},
		},
	})).To(Succeed())
	return s
}

func pluginNamespace(ctx context.Context, name string, mayRun bool) {
	GinkgoHelper()
	Expect(api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}})).To(Succeed())
	if mayRun {
		letRun(ctx, name)
	}
}

// letRun is what an administrator does once for a plugin's namespace.
func letRun(ctx context.Context, namespace string) {
	GinkgoHelper()
	for _, object := range objectsIn("rbac", "workloads_role.yaml") {
		Expect(client.IgnoreAlreadyExists(api.Create(ctx, object))).To(Succeed())
	}
	Expect(api.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "plugin-host-workloads"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "plugin-host-workloads"},
		Subjects:   hostSubjects(),
	})).To(Succeed())
}

// workloadIs waits until the installation says what is expected of its workload.
func (s *scene) workloadIs(ctx context.Context, reason string) *v1alpha1.PluginInstallation {
	GinkgoHelper()
	var o *v1alpha1.PluginInstallation
	Eventually(func(g Gomega) {
		o = s.installation(ctx)
		g.Expect(why(o.Status.Conditions, v1alpha1.ConditionWorkloadReady)).To(Equal(reason), says(o.Status.Conditions, v1alpha1.ConditionWorkloadReady))
		g.Expect(isTrue(o.Status.Conditions, v1alpha1.ConditionWorkloadReady)).To(Equal(reason == v1alpha1.ReasonRunning))
		g.Expect(o.Status.ObservedGeneration).To(Equal(o.Generation))
	}).WithTimeout(30 * time.Second).Should(Succeed())
	return o
}

// rendered is what runs a plugin in a namespace.
type rendered struct {
	deployments []appsv1.Deployment
	policies    []networkingv1.NetworkPolicy
	cas         []corev1.ConfigMap
}

func renderedIn(ctx context.Context, g Gomega, namespace string) rendered {
	var deployments appsv1.DeploymentList
	var policies networkingv1.NetworkPolicyList
	var cas corev1.ConfigMapList
	for _, list := range []client.ObjectList{&deployments, &policies, &cas} {
		g.Expect(api.List(ctx, list, client.InNamespace(namespace), client.HasLabels{v1alpha1.LabelInstallationID})).To(Succeed())
	}
	return rendered{deployments.Items, policies.Items, cas.Items}
}

// deployment waits for the one of a namespace, and for what is expected of it.
func deployment(ctx context.Context, namespace string, expected func(Gomega, *appsv1.Deployment)) *appsv1.Deployment {
	GinkgoHelper()
	var d *appsv1.Deployment
	Eventually(func(g Gomega) {
		all := renderedIn(ctx, g, namespace)
		g.Expect(all.deployments).To(HaveLen(1))
		d = &all.deployments[0]
		if expected != nil {
			expected(g, d)
		}
	}).Should(Succeed())
	return d
}

// reports is what the deployment's controller says, which these tests are without.
func reports(ctx context.Context, d *appsv1.Deployment, status appsv1.DeploymentStatus) {
	GinkgoHelper()
	status.ObservedGeneration = d.Generation
	d.Status = status
	Expect(api.Status().Update(ctx, d)).To(Succeed())
}

// collect is what the garbage collector does once the pods have ended.
func collect(ctx context.Context, d *appsv1.Deployment) {
	GinkgoHelper()
	Expect(api.Patch(ctx, d, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
}

// templated is a pod as its template has it.
func templated(d *appsv1.Deployment) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, GenerateName: "p-", Labels: d.Spec.Template.Labels},
		Spec:       *d.Spec.Template.Spec.DeepCopy(),
	}
}

var _ = Describe("spec.workload", func() {
	It("runs the plugin hardened, and tells how that goes", func(ctx SpecContext) {
		db := newDatabase(ctx, onSQLite)
		_, ca := startWithWorkloads(db)
		s := newWorkloadScene(ctx, true)
		s.workloadIs(ctx, v1alpha1.ReasonStarting)
		d := deployment(ctx, s.plugin, nil)
		o := s.installation(ctx)
		Expect(d.Name).To(Equal(kinds.WorkloadName(o)))
		all := renderedIn(ctx, Default, s.plugin)
		Expect(all.policies).To(HaveLen(1))
		Expect(all.cas).To(HaveLen(1))
		Expect(all.cas[0].Data).To(Equal(map[string]string{"ca.crt": string(ca)}), "and no key that is beside it in the file")
		for _, made := range []client.Object{d, &all.policies[0], &all.cas[0]} {
			Expect(metav1.IsControlledBy(made, o)).To(BeTrue())
			Expect(made.GetFinalizers()).To(BeEmpty())
		}
		pod := d.Spec.Template.Spec
		Expect(pod.ServiceAccountName).To(Equal(s.plugin))
		Expect(pod.HostUsers).To(HaveValue(BeFalse()), "this API server knows users of a pod's own")
		var env []string
		for _, v := range pod.Containers[0].Env {
			env = append(env, v.Name+"="+v.Value)
		}
		Expect(env).To(ConsistOf(sdk.EnvAddress+"=plugin-host."+db.namespace+".svc:8443",
			sdk.EnvCAFile+"="+sdk.DefaultCAFile, sdk.EnvTokenFile+"="+sdk.DefaultTokenFile))
		Expect(pod.Volumes[0].Projected.Sources[0].ServiceAccountToken.Audience).To(Equal(contract.Audience))

		By("passing the restricted level of Pod Security")
		Expect(api.Create(ctx, templated(d), client.DryRunAll)).To(Succeed())
		softer := templated(d)
		softer.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil
		Expect(apierrors.IsForbidden(api.Create(ctx, softer, client.DryRunAll))).To(BeTrue(), "else the above says nothing")

		By("saying when it is ready, and why it isn't")
		reports(ctx, d, appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1})
		s.workloadIs(ctx, v1alpha1.ReasonRunning)
		Eventually(func() []string {
			var reasons []string
			for _, e := range told(ctx, metav1.NamespaceDefault, "PluginInstallation", s.plugin) {
				reasons = append(reasons, e.Reason)
			}
			return reasons
		}).Should(Equal([]string{v1alpha1.EventReasonWorkloadReady}))
		d = deployment(ctx, s.plugin, nil)
		reports(ctx, d, appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{{
			Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: "exceeded quota",
		}}})
		o = s.workloadIs(ctx, v1alpha1.ReasonStuck)
		Expect(says(o.Status.Conditions, v1alpha1.ConditionWorkloadReady)).To(ContainSubstring("exceeded quota"))
		Eventually(func() string {
			events := told(ctx, metav1.NamespaceDefault, "PluginInstallation", s.plugin)
			return events[len(events)-1].Reason + " " + events[len(events)-1].Type
		}).Should(Equal(v1alpha1.EventReasonWorkloadNotReady + " " + corev1.EventTypeWarning))
	})

	It("says what its pod can't get, once for each turn", func(ctx SpecContext) {
		startWithWorkloads(newDatabase(ctx, onSQLite))
		s := newWorkloadScene(ctx, true)
		s.workloadIs(ctx, v1alpha1.ReasonStarting)
		d := deployment(ctx, s.plugin, nil)
		pod := templated(d)
		Expect(api.Create(ctx, pod)).To(Succeed())
		becomes := func(status corev1.PodStatus) {
			GinkgoHelper()
			pod.Status = status
			Expect(api.Status().Update(ctx, pod)).To(Succeed())
		}
		waiting := func(reason, message string) corev1.PodStatus {
			return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
				Name: pod.Spec.Containers[0].Name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
			}}}
		}
		becomes(waiting("CreateContainerConfigError", `secret "standup-token" not found`))
		o := s.workloadIs(ctx, v1alpha1.ReasonUnresolved)
		Expect(says(o.Status.Conditions, v1alpha1.ConditionWorkloadReady)).To(ContainSubstring(`secret "standup-token" not found`))
		becomes(waiting("ContainerCreating", ""))
		s.workloadIs(ctx, v1alpha1.ReasonStarting)
		becomes(corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			Message: `0/1 nodes are available: persistentvolumeclaim "standup" not found.`,
		}}})
		o = s.workloadIs(ctx, v1alpha1.ReasonUnresolved)
		Expect(says(o.Status.Conditions, v1alpha1.ConditionWorkloadReady)).To(ContainSubstring(`persistentvolumeclaim "standup" not found`))
		reports(ctx, deployment(ctx, s.plugin, nil), appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1})
		s.workloadIs(ctx, v1alpha1.ReasonRunning)
		Eventually(func() []string {
			var turns []string
			for _, e := range told(ctx, metav1.NamespaceDefault, "PluginInstallation", s.plugin) {
				turns = append(turns, e.Type+" "+e.Reason)
			}
			return turns
		}).Should(ConsistOf(corev1.EventTypeWarning+" "+v1alpha1.EventReasonWorkloadNotReady,
			corev1.EventTypeWarning+" "+v1alpha1.EventReasonWorkloadNotReady, corev1.EventTypeNormal+" "+v1alpha1.EventReasonWorkloadReady))
	})

	It("writes nowhere before an administrator lets it, and nothing without an image or a CA", func(ctx SpecContext) {
		h, _ := startWithWorkloads(newDatabase(ctx, onSQLite))
		s := newWorkloadScene(ctx, false)
		o := s.workloadIs(ctx, v1alpha1.ReasonForbidden)
		Expect(says(o.Status.Conditions, v1alpha1.ConditionWorkloadReady)).To(ContainSubstring("ClusterRole plugin-host-workloads"))
		Expect(renderedIn(ctx, Default, s.plugin)).To(BeZero())
		letRun(ctx, s.plugin)
		s.workloadIs(ctx, v1alpha1.ReasonStarting)

		Expect(os.WriteFile(h.workloads.CAFile, []byte("no certificate"), 0o600)).To(Succeed())
		s.editInstallation(ctx, func(o *v1alpha1.PluginInstallation) { o.Spec.Version = "1.0.1" })
		s.workloadIs(ctx, v1alpha1.ReasonHostNotConfigured)
	})

	It("mounts a package in an image of its own", func(ctx SpecContext) {
		startWithWorkloads(newDatabase(ctx, onSQLite))
		s := newWorkloadScene(ctx, true)
		s.editInstallation(ctx, func(o *v1alpha1.PluginInstallation) {
			o.Spec.Workload = &v1alpha1.Workload{PackageImage: "standup-package@sha256:1", Package: "/plugin/standup.tar.gz"}
		})
		d := deployment(ctx, s.plugin, func(g Gomega, d *appsv1.Deployment) {
			g.Expect(d.Spec.Template.Spec.Containers[0].Image).To(Equal("launcher@sha256:1"))
		})
		Expect(d.Spec.Template.Spec.Volumes).To(ContainElement(HaveField("Image", HaveValue(HaveField("Reference", "standup-package@sha256:1")))))
		Expect(api.Create(ctx, templated(d), client.DryRunAll)).To(Succeed())
	})

	It("takes back what anybody else makes of it", func(ctx SpecContext) {
		startWithWorkloads(newDatabase(ctx, onSQLite))
		s := newWorkloadScene(ctx, true)
		s.workloadIs(ctx, v1alpha1.ReasonStarting)
		was := deployment(ctx, s.plugin, nil)
		before := renderedIn(ctx, Default, s.plugin)
		isBack := func() {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				now := renderedIn(ctx, g, s.plugin)
				g.Expect(now.deployments).To(HaveLen(1))
				g.Expect(now.deployments[0].Spec).To(Equal(was.Spec))
				g.Expect(now.deployments[0].OwnerReferences).To(Equal(was.OwnerReferences))
				g.Expect(now.policies).To(HaveLen(1))
				g.Expect(now.policies[0].Spec).To(Equal(before.policies[0].Spec))
				g.Expect(now.cas).To(HaveLen(1))
				g.Expect(now.cas[0].Data).To(Equal(before.cas[0].Data))
			}).Should(Succeed())
		}
		for name, edit := range map[string]func(*appsv1.Deployment){
			"another image": func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "evil" },
			"another container": func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "evil", Image: "evil", TerminationMessagePolicy: "File", ImagePullPolicy: "Always"})
			},
			"a container of init": func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "evil", Image: "evil", TerminationMessagePolicy: "File", ImagePullPolicy: "Always"}}
			},
			"another account":     func(d *appsv1.Deployment) { d.Spec.Template.Spec.ServiceAccountName = "default" },
			"no security context": func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].SecurityContext = nil },
			"a capability": func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
			},
			"two replicas":  func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(2)) },
			"another token": func(d *appsv1.Deployment) { d.Spec.Template.Spec.AutomountServiceAccountToken = new(true) },
			"nobody's":      func(d *appsv1.Deployment) { d.OwnerReferences = nil },
		} {
			By(name)
			d := deployment(ctx, s.plugin, nil)
			edit(d)
			Expect(as(grace).Update(ctx, d, client.FieldOwner("grace"))).To(Succeed())
			isBack()
		}
		By("a policy that lets everything out")
		policy := renderedIn(ctx, Default, s.plugin).policies[0]
		policy.Spec.Egress = append(policy.Spec.Egress, networkingv1.NetworkPolicyEgressRule{})
		Expect(as(grace).Update(ctx, &policy)).To(Succeed())
		isBack()
		By("no policy, and another CA")
		Expect(as(grace).Delete(ctx, &policy)).To(Succeed())
		ca := renderedIn(ctx, Default, s.plugin).cas[0]
		ca.Data = map[string]string{"ca.crt": "grace's", "more": "x"}
		Expect(as(grace).Update(ctx, &ca)).To(Succeed())
		Expect(as(grace).Delete(ctx, deployment(ctx, s.plugin, nil))).To(Succeed())
		isBack()

		By("writing nothing when nothing is to be corrected")
		version := deployment(ctx, s.plugin, nil).ResourceVersion
		s.editInstallation(ctx, func(o *v1alpha1.PluginInstallation) { o.Labels = map[string]string{"a": "b"}; o.Spec.SecretRefs = nil })
		Consistently(func() string { return deployment(ctx, s.plugin, nil).ResourceVersion }).WithTimeout(time.Second).Should(Equal(version))
	})

	It("runs nothing while suspended, or asked to", func(ctx SpecContext) {
		startWithWorkloads(newDatabase(ctx, onSQLite))
		s := newWorkloadScene(ctx, true)
		s.workloadIs(ctx, v1alpha1.ReasonStarting)
		replicas := func(n int32) func(Gomega, *appsv1.Deployment) {
			return func(g Gomega, d *appsv1.Deployment) { g.Expect(d.Spec.Replicas).To(HaveValue(Equal(n))) }
		}
		s.editInstallation(ctx, func(o *v1alpha1.PluginInstallation) { o.Spec.Suspend = true })
		d := deployment(ctx, s.plugin, replicas(0))
		s.workloadIs(ctx, string(v1alpha1.GateSuspended))
		reports(ctx, d, appsv1.DeploymentStatus{Replicas: 1})
		s.workloadIs(ctx, v1alpha1.ReasonStopping)
		reports(ctx, d, appsv1.DeploymentStatus{})
		s.workloadIs(ctx, string(v1alpha1.GateSuspended))
		s.editInstallation(ctx, func(o *v1alpha1.PluginInstallation) { o.Spec.Suspend = false })
		deployment(ctx, s.plugin, replicas(1))
		s.editInstallation(ctx, func(o *v1alpha1.PluginInstallation) { o.Spec.Workload.Replicas = new(int32(0)) })
		deployment(ctx, s.plugin, replicas(0))
		s.workloadIs(ctx, v1alpha1.ReasonScaledToZero)
	})

	It("ends what runs of an installation that is no longer accepted, policy last", func(ctx SpecContext) {
		startWithWorkloads(newDatabase(ctx, onSQLite))
		s := newWorkloadScene(ctx, true)
		deployment(ctx, s.plugin, nil)
		ends := func() {
			GinkgoHelper()
			d := deployment(ctx, s.plugin, func(g Gomega, d *appsv1.Deployment) { g.Expect(d.DeletionTimestamp).NotTo(BeNil()) })
			s.workloadIs(ctx, v1alpha1.ReasonNotAccepted)
			Expect(renderedIn(ctx, Default, s.plugin).policies).To(HaveLen(1), "a pod that ends is still kept from the rest")
			collect(ctx, d)
			Eventually(func(g Gomega) {
				all := renderedIn(ctx, g, s.plugin)
				g.Expect(all.deployments).To(BeEmpty())
				g.Expect(all.policies).To(BeEmpty())
				g.Expect(all.cas).To(BeEmpty())
			}).Should(Succeed())
		}
		By("a namespace that becomes a workspace")
		label(ctx, s.plugin, unique("w"))
		ends()
		label(ctx, s.plugin, "")
		s.workloadIs(ctx, v1alpha1.ReasonStarting)
		deployment(ctx, s.plugin, nil)

		By("another installation that names the ServiceAccount")
		other := &v1alpha1.PluginInstallation{ObjectMeta: metav1.ObjectMeta{Name: unique("other")}, Spec: *s.installation(ctx).Spec.DeepCopy()}
		Expect(api.Create(ctx, other)).To(Succeed())
		ends()
		Expect(api.Delete(ctx, other)).To(Succeed())
		deployment(ctx, s.plugin, nil)

		By("another ServiceAccount under the name")
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.plugin, Name: s.plugin}}
		Expect(api.Delete(ctx, account)).To(Succeed())
		newServiceAccount(ctx, s.plugin, s.plugin)
		ends()
	})

	It("moves with its ServiceAccount, and ends with its spec", func(ctx SpecContext) {
		startWithWorkloads(newDatabase(ctx, onSQLite))
		s := newWorkloadScene(ctx, true)
		s.workloadIs(ctx, v1alpha1.ReasonStarting)
		elsewhere := unique("plugin")
		pluginNamespace(ctx, elsewhere, true)
		account := newServiceAccount(ctx, elsewhere, "moved")
		s.editInstallation(ctx, func(o *v1alpha1.PluginInstallation) {
			o.Spec.ServiceAccountRef = v1alpha1.ServiceAccountReference{Namespace: elsewhere, Name: "moved", AcceptUID: account.UID}
		})
		s.workloadIs(ctx, v1alpha1.ReasonStopping)
		Expect(renderedIn(ctx, Default, elsewhere).deployments).To(BeEmpty(), "no two at once")
		collect(ctx, deployment(ctx, s.plugin, nil))
		deployment(ctx, elsewhere, nil)
		Eventually(func(g Gomega) {
			all := renderedIn(ctx, g, s.plugin)
			g.Expect(len(all.deployments) + len(all.policies) + len(all.cas)).To(BeZero())
		}).Should(Succeed())

		s.editInstallation(ctx, func(o *v1alpha1.PluginInstallation) { o.Spec.Workload = nil })
		collect(ctx, deployment(ctx, elsewhere, func(g Gomega, d *appsv1.Deployment) { g.Expect(d.DeletionTimestamp).NotTo(BeNil()) }))
		Eventually(func(g Gomega) {
			all := renderedIn(ctx, g, elsewhere)
			g.Expect(len(all.deployments) + len(all.policies) + len(all.cas)).To(BeZero())
			g.Expect(why(s.installation(ctx).Status.Conditions, v1alpha1.ConditionWorkloadReady)).To(BeEmpty())
		}).Should(Succeed())
	})

	It("I13: an uninstall waits for nothing, and a later install has names of its own", func(ctx SpecContext) {
		startWithWorkloads(newDatabase(ctx, onSQLite))
		s := newWorkloadScene(ctx, true)
		s.workloadIs(ctx, v1alpha1.ReasonStarting)
		was := s.installation(ctx)
		Expect(was.Finalizers).To(BeEmpty())
		Expect(api.Delete(ctx, was)).To(Succeed())
		Expect(apierrors.IsNotFound(api.Get(ctx, client.ObjectKey{Name: s.plugin}, was))).To(BeTrue())
		again := &v1alpha1.PluginInstallation{ObjectMeta: metav1.ObjectMeta{Name: s.plugin}, Spec: was.Spec}
		Expect(api.Create(ctx, again)).To(Succeed())
		Eventually(func(g Gomega) {
			// Without a garbage collector, the former one stays.
			g.Expect(renderedIn(ctx, g, s.plugin).deployments).To(ConsistOf(
				HaveField("OwnerReferences", ConsistOf(HaveField("UID", was.UID))),
				HaveField("OwnerReferences", ConsistOf(HaveField("UID", again.UID)))))
		}).Should(Succeed())
	})
})
