package controllers_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

// Everybody in these tests is who they say: the processes are the ServiceAccount
// that the admission policies name, with no rights but those in config/rbac;
// humans are administrators under their own names.
const (
	hostNamespace = "plugin-host-system"
	hostAccount   = "plugin-host"
	hostUser      = "system:serviceaccount:" + hostNamespace + ":" + hostAccount
	ada           = "ada@example.com"
	grace         = "grace@example.com"
)

func asHost(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: hostUser,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + hostNamespace, "system:authenticated"},
	}
	return config
}

// as is the client of an identity that may do everything that the policies let it.
func as(name string) client.Client {
	GinkgoHelper()
	theirs := rest.CopyConfig(config)
	theirs.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:masters", "system:authenticated"}}
	plain, err := client.New(theirs, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return client.WithFieldValidation(plain, metav1.FieldValidationStrict)
}

// writeHostKubeconfig is the processes' way in, made from the administrator's.
func writeHostKubeconfig(administrator, path string) {
	GinkgoHelper()
	file, err := clientcmd.LoadFromFile(administrator)
	Expect(err).NotTo(HaveOccurred())
	who := asHost(&rest.Config{}).Impersonate
	for _, user := range file.AuthInfos {
		user.Impersonate, user.ImpersonateGroups = who.UserName, who.Groups
	}
	Expect(clientcmd.WriteToFile(*file, path)).To(Succeed())
}

// objectsIn reads a file of config.
func objectsIn(path ...string) []*unstructured.Unstructured {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "config"}, path...)...))
	Expect(err).NotTo(HaveOccurred())
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	var all []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); err != nil {
			Expect(err).To(MatchError("EOF"))
			return all
		}
		if len(object.Object) > 0 {
			all = append(all, object)
		}
	}
}

// installHost is what the install how-to does once for the cluster.
func installHost(ctx context.Context) {
	GinkgoHelper()
	newNamespace(ctx, hostNamespace)
	newServiceAccount(ctx, hostNamespace, hostAccount)
	for _, object := range objectsIn("rbac", "role.yaml") {
		Expect(api.Create(ctx, object)).To(Succeed())
	}
	Expect(api.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "plugin-host"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "plugin-host"},
		Subjects:   hostSubjects(),
	})).To(Succeed())
	installPolicies(ctx)
}

func hostSubjects() []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: hostNamespace, Name: hostAccount}}
}

// letHostIn gives the processes the rights in a namespace that they have in their
// own.
func letHostIn(ctx context.Context, namespace string) {
	GinkgoHelper()
	for _, object := range objectsIn("rbac", "leader_election_role.yaml") {
		object.SetNamespace(namespace)
		Expect(api.Create(ctx, object)).To(Succeed())
	}
	Expect(api.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "plugin-host-leader-election"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "plugin-host-leader-election"},
		Subjects:   hostSubjects(),
	})).To(Succeed())
}

// installPolicies creates those policies and bindings that aren't there, and waits
// until all are in force.
func installPolicies(ctx context.Context) {
	GinkgoHelper()
	for _, object := range objectsIn("admission", "policies.yaml") {
		Expect(client.IgnoreAlreadyExists(api.Create(ctx, object))).To(Succeed())
	}
	policiesInForce(ctx, v1alpha1.AdmissionPolicies()...)
}

// refusesProbe tells whether a policy refuses its probe.
func refusesProbe(ctx context.Context, policy string) bool {
	name := v1alpha1.PolicyProbeName(policy)
	err := api.Create(ctx, &v1alpha1.PluginCapabilityApproval{
		ObjectMeta: metav1.ObjectMeta{Namespace: hostNamespace, Name: name},
		Spec: v1alpha1.PluginCapabilityApprovalSpec{
			InstallationName: name, InstallationID: "00000000-0000-0000-0000-000000000000", ManifestDigest: digestOf(readTasks),
			WorkspaceID: "probe", State: v1alpha1.StateRevoked, ApprovedBy: ada,
		},
	}, client.DryRunAll)
	return err != nil && v1alpha1.PolicyRefuses(policy, err.Error())
}

func policiesInForce(ctx context.Context, policies ...string) {
	GinkgoHelper()
	for _, policy := range policies {
		Eventually(func() bool { return refusesProbe(ctx, policy) }).Should(BeTrue(), policy)
	}
}

// notInForce waits until the API server has noticed that a policy isn't.
func notInForce(ctx context.Context, policy string) {
	GinkgoHelper()
	Eventually(func() bool { return refusesProbe(ctx, policy) }).Should(BeFalse(), policy)
}

func policyAndBinding(name string) (*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	meta := metav1.ObjectMeta{Name: name}
	return &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta}
}

// restorePolicies puts back, after the spec, what it takes away or edits.
func restorePolicies() { DeferCleanup(func(ctx SpecContext) { restoreNow(ctx) }) }

// restoreNow puts the policies and bindings back as they are in config, and waits
// until they are in force.
func restoreNow(ctx context.Context) {
	GinkgoHelper()
	for _, object := range objectsIn("admission", "policies.yaml") {
		live := object.DeepCopy()
		if err := api.Get(ctx, client.ObjectKeyFromObject(object), live); err == nil {
			object.SetResourceVersion(live.GetResourceVersion())
			Expect(api.Update(ctx, object)).To(Succeed())
		}
	}
	installPolicies(ctx)
}
