// Package admission_test holds the admission policies against a real API server
// and its controller manager: who may write what, as people with RBAC rights, as
// ServiceAccounts with their own tokens, as nodes and as the controllers. The
// policies come from config/admission, patched as its comment says. It imports the
// API types, the contract and the dev control plane, and nothing else of this
// module: no plugin-host runs here, so whatever is refused is refused without it.
package admission_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hack/controlplane"
)

const (
	configDir = "../../config"
	// The namespaces that the comment of config/admission/kustomization.yaml names.
	hostNamespace = "elsewhere"
	fluxNamespace = "flux-system"
	// payments is where the approvers of the tests hold their role.
	payments = "payments"
)

var (
	config *rest.Config
	scheme = runtime.NewScheme()
	// mapper serves all clients: an anonymous one may discover nothing.
	mapper meta.RESTMapper

	// administrator is in system:masters: a human, who holds every verb.
	administrator person
	// dora may write every object of ours, and grant nothing.
	dora person
	// ada and grace may grant everything in payments, and compatibility.
	ada, grace person
	// flux is the GitOps identity, with the rights of ada. So is pipeline, whose name
	// is no ServiceAccount's.
	flux, pipeline person
	// controllers is plugin-host's own ServiceAccount. For the tests it has the
	// rights of ada too: what stops it are the policies alone.
	controllers person
	// machines have the rights of ada, and aren't named anywhere.
	bot, node, component, anonymous person
)

func TestAdmission(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Admission")
}

// person is one identity, and its client.
type person struct {
	name string
	client.Client
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(45 * time.Second)
	EnforceDefaultTimeoutsWhenUsingContexts()
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, rbacv1.AddToScheme, authenticationv1.AddToScheme, admissionregistrationv1.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		Expect(add(scheme)).To(Succeed())
	}
	plane, err := controlplane.Start(context.Background(), controlplane.Options{
		CRDDirs: []string{configDir + "/crd/bases"}, ControllerManager: true, OwnSignals: true,
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plane.Stop)
	config = plane.Config()
	config.QPS = -1

	http, err := rest.HTTPClientFor(config)
	Expect(err).NotTo(HaveOccurred())
	mapper, err = apiutil.NewDynamicRESTMapper(config, http)
	Expect(err).NotTo(HaveOccurred())
	administrator = person{name: "admin", Client: clientOf(config)}
	apply(ctx, overlay())
	rights(ctx)

	dora = human("dora@example.com")
	ada, grace = human("ada@example.com"), human("grace@example.com")
	pipeline = human("pipeline@example.com")
	node = impersonated("system:node:worker-1", "system:nodes", "system:authenticated")
	component = impersonated("system:kube-controller-manager", "system:authenticated")
	anonymous = impersonated("system:anonymous", "system:unauthenticated")
	bot = serviceAccount(ctx, payments, "bot")
	flux = serviceAccount(ctx, fluxNamespace, "kustomize-controller")
	controllers = serviceAccount(ctx, hostNamespace, "plugin-host")

	By("waiting until every policy is in force, as the controllers find out")
	for _, policy := range v1alpha1.AdmissionPolicies() {
		Eventually(ctx, probe).WithArguments(controllers, hostNamespace, policy).Should(beProbed(policy))
	}
})

// machines are the identities that may only narrow.
func machines() []person { return []person{bot, node, component, anonymous, controllers} }

// everybody is each kind of identity.
func everybody() []person { return append(machines(), administrator, dora, ada, grace, flux) }

// overlay renders config/admission with the patch that its comment documents, and
// with the component that fills in names if asked for.
func overlay(stamping ...string) []byte {
	GinkgoHelper()
	dir, err := filepath.EvalSymlinks(GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	base, err := filepath.Abs(configDir + "/admission")
	Expect(err).NotTo(HaveOccurred())
	base, err = filepath.Rel(dir, base)
	Expect(err).NotTo(HaveOccurred())
	text := "resources:\n- " + base + "\n" + documentedPatch()
	for _, component := range stamping {
		text += strings.TrimPrefix(strings.ReplaceAll(documentedPatch(), "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"), "patches:\n")
		text += "components:\n- " + filepath.Join(base, component) + "\n"
	}
	Expect(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600)).To(Succeed())
	out, err := exec.Command("kustomize", "build", dir).Output()
	Expect(err).NotTo(HaveOccurred(), "run `make tools` and put the tools on PATH")
	return out
}

// documentedPatch is the patch in the comment of config/admission/kustomization.yaml,
// with a second GitOps identity.
func documentedPatch() string {
	GinkgoHelper()
	text, err := os.ReadFile(configDir + "/admission/kustomization.yaml")
	Expect(err).NotTo(HaveOccurred())
	_, patch, found := strings.Cut(string(text), "# patches:\n")
	Expect(found).To(BeTrue())
	patch, _, found = strings.Cut(patch, "apiVersion:")
	Expect(found).To(BeTrue())
	lines := strings.Split(strings.TrimSpace(patch), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(strings.TrimPrefix(line, "#"), " ")
	}
	patch = strings.ReplaceAll(strings.Join(lines, "\n"), "kustomize-controller'", "kustomize-controller', 'pipeline@example.com'")
	return "patches:\n" + patch + "\n"
}

func objects(text []byte) []*unstructured.Unstructured {
	GinkgoHelper()
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

func apply(ctx context.Context, text []byte) {
	GinkgoHelper()
	for _, object := range objects(text) {
		Expect(administrator.Apply(ctx, client.ApplyConfigurationFromUnstructured(object),
			client.FieldOwner("install"), client.ForceOwnership)).To(Succeed(), "%s %s", object.GetKind(), object.GetName())
	}
}

// rights gives everybody the RBAC rights of the shipped roles, and to write every
// object of ours. Only dora has no right to approve.
func rights(ctx context.Context) {
	GinkgoHelper()
	for _, name := range []string{payments, fluxNamespace, hostNamespace} {
		create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, role := range []string{"approver", "compatibility_approver", "installer", "workspace_binder", "human_policy", "revoker", "auditor", "viewer"} {
		text, err := os.ReadFile(configDir + "/rbac/" + role + "_role.yaml")
		Expect(err).NotTo(HaveOccurred())
		apply(ctx, text)
	}
	create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "test-writer"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Verbs: []string{"*"},
			Resources: []string{
				"plugincapabilityapprovals", "plugincapabilityapprovals/status", "plugininstallations", "plugininstallations/status",
				"plugincapabilityapprovalevents", "humanpolicies", "humanpolicies/status",
			},
		}, {
			APIGroups: []string{""}, Verbs: []string{"*"},
			Resources: []string{"namespaces", "namespaces/status", "namespaces/finalize", "configmaps"},
		}},
	})
	writers := []rbacv1.Subject{
		user("dora@example.com"), user("ada@example.com"), user("grace@example.com"), user("pipeline@example.com"),
		user("system:node:worker-1"), user("system:kube-controller-manager"), user("system:anonymous"),
		user("system:serviceaccount:" + payments + ":bot"), user("system:serviceaccount:" + fluxNamespace + ":kustomize-controller"),
		user("system:serviceaccount:" + hostNamespace + ":plugin-host"),
	}
	create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "test-writers"}, RoleRef: clusterRole("test-writer"), Subjects: writers,
	})
	create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "approvers", Namespace: payments}, RoleRef: clusterRole("plugin-host-approver"), Subjects: writers[1:],
	})
	create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "test-binders"}, RoleRef: clusterRole("plugin-host-workspace-binder"), Subjects: writers[1:],
	})
	create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "test-compatibility"}, RoleRef: clusterRole("plugin-host-compatibility-approver"), Subjects: writers[1:],
	})
}

func clusterRole(name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
}

func user(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

func clientOf(config *rest.Config) client.Client {
	GinkgoHelper()
	plain, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	Expect(err).NotTo(HaveOccurred())
	return client.WithFieldValidation(plain, metav1.FieldValidationStrict)
}

func human(name string) person { return impersonated(name, "system:authenticated") }

func impersonated(name string, groups ...string) person {
	GinkgoHelper()
	as := rest.CopyConfig(config)
	as.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: groups}
	return person{name: name, Client: clientOf(as)}
}

// serviceAccount is a ServiceAccount with a token of its own.
func serviceAccount(ctx context.Context, namespace, name string) person {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	create(ctx, account)
	token := &authenticationv1.TokenRequest{}
	Expect(administrator.SubResource("token").Create(ctx, account, token)).To(Succeed())
	own := rest.AnonymousClientConfig(config)
	own.BearerToken, own.QPS = token.Status.Token, -1
	return person{name: "system:serviceaccount:" + namespace + ":" + name, Client: clientOf(own)}
}

// create creates what a spec needs, as the administrator, for the time of the spec.
func create(ctx context.Context, object client.Object) {
	GinkgoHelper()
	Expect(administrator.Create(ctx, object)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(administrator.Delete(ctx, object))).To(Succeed())
	})
}

// probe asks for the policy's refusal, as PolicyProbeName says.
func probe(ctx context.Context, who person, namespace, policy string) error {
	a := approval(who.name)
	a.Namespace, a.Name = namespace, v1alpha1.PolicyProbeName(policy)
	a.Spec.InstallationName = a.Name
	if err := who.Create(ctx, a, client.DryRunAll); err != nil {
		return fmt.Errorf("probe %s: %w", policy, err)
	}
	return nil
}

func beProbed(policy string) OmegaMatcher {
	return WithTransform(func(err error) bool { return err != nil && v1alpha1.PolicyRefuses(policy, err.Error()) }, BeTrue())
}

// allCapabilities are the contract's IDs.
func allCapabilities() []v1alpha1.CapabilityID {
	var ids []v1alpha1.CapabilityID
	for _, c := range contract.Capabilities() {
		ids = append(ids, v1alpha1.CapabilityID(c.String()))
	}
	return ids
}
