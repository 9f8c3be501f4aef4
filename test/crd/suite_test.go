// Package crd_test holds the CRDs against a real API server: every bound and
// rule of the schemas has a case that passes and one that is refused with an
// error that names the field. It imports the API types, the contract and the
// dev control plane, nothing else of this module.
package crd_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gcustom"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/hack/controlplane"
)

const crdDir = "../../config/crd"

var (
	// api sends every request with strict field validation, as kubectl does.
	api     client.Client
	kubectl func(ctx context.Context, stdin string, args ...string) (string, error)
)

func TestCRDs(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "CRDs")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	// The control plane outlives this node's context.
	plane, err := controlplane.Start(context.Background(), controlplane.Options{OwnSignals: true})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plane.Stop)

	dir := GinkgoT().TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	Expect(plane.WriteKubeconfig(kubeconfig)).To(Succeed())
	binary, err := plane.Kubectl()
	Expect(err).NotTo(HaveOccurred())
	kubectl = func(ctx context.Context, stdin string, args ...string) (string, error) {
		// No two calls share a discovery cache: one from before the CRDs hides them.
		cache := filepath.Join(dir, uuid.NewString())
		cmd := exec.CommandContext(ctx, binary, append([]string{"--kubeconfig", kubeconfig, "--cache-dir", cache}, args...)...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return string(out), err
	}

	By("applying the CRDs client-side, as a user without flags does")
	_, err = kubectl(ctx, "", "apply", "--server-side=false", "-k", crdDir)
	Expect(err).NotTo(HaveOccurred())
	_, err = kubectl(ctx, "", "wait", "--for=condition=Established", "--timeout=30s", "-f", crdDir+"/bases")
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() (string, error) {
		return kubectl(ctx, "", "api-resources", "--api-group", v1alpha1.GroupVersion.Group, "-o", "name")
	}).WithTimeout(30*time.Second).WithPolling(100*time.Millisecond).Should(WithTransform(strings.Fields, HaveLen(4)), "discovery")

	scheme := runtime.NewScheme()
	Expect(corev1.AddToScheme(scheme)).To(Succeed())
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	plain, err := client.New(plane.Config(), client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	api = client.WithFieldValidation(plain, metav1.FieldValidationStrict)
})

// document is an object as a user writes it.
type document = map[string]any

// removal as a value removes the field.
type removal struct{}

var absent removal

// with returns d with the field at the dotted path set to value, or removed.
func with(d document, path string, value any) document {
	fields := strings.Split(path, ".")
	if _, remove := value.(removal); remove {
		unstructured.RemoveNestedField(d, fields...)
		return d
	}
	Expect(unstructured.SetNestedField(d, value, fields...)).To(Succeed())
	return d
}

func object(d document) *unstructured.Unstructured { return &unstructured.Unstructured{Object: d} }

func uniqueName() string { return "t-" + uuid.NewString() }

// newNamespace is created for one spec; without a namespace controller it
// can't be deleted.
func newNamespace(ctx context.Context) string {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: uniqueName()}}
	Expect(api.Create(ctx, namespace)).To(Succeed())
	return namespace.Name
}

// create creates d and removes it after the spec.
func create(ctx context.Context, d document) *unstructured.Unstructured {
	GinkgoHelper()
	o := object(d)
	Expect(api.Create(ctx, o)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(api.Delete(ctx, o)).To(Succeed()) })
	return o
}

// accepted says that d can be created; it leaves nothing behind.
func accepted(ctx context.Context, d document) {
	GinkgoHelper()
	Expect(api.Create(ctx, object(d), client.DryRunAll)).To(Succeed())
}

// refused says that d can't be created, because of field.
func refused(ctx context.Context, d document, field, saying string) {
	GinkgoHelper()
	Expect(api.Create(ctx, object(d), client.DryRunAll)).To(beInvalid(field, saying))
}

// edit changes one field of a created object.
func edit(ctx context.Context, o *unstructured.Unstructured, path string, value any) error {
	changed := o.DeepCopy()
	with(changed.Object, path, value)
	err := api.Update(ctx, changed)
	if err == nil {
		o.Object = changed.Object
	}
	return err
}

// editStatus changes one field through the status subresource.
func editStatus(ctx context.Context, o *unstructured.Unstructured, path string, value any) error {
	changed := o.DeepCopy()
	with(changed.Object, path, value)
	err := api.Status().Update(ctx, changed)
	if err == nil {
		o.Object = changed.Object
	}
	return err
}

// beInvalid matches an Invalid error with a cause that names exactly field, and
// whose text, which is all that kubectl prints, has both field and saying.
func beInvalid(field, saying string) gomegatypes.GomegaMatcher {
	return gcustom.MakeMatcher(func(err error) (bool, error) {
		var status apierrors.APIStatus
		if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
			return false, nil
		}
		named := false
		for _, cause := range status.Status().Details.Causes {
			named = named || cause.Field == field
		}
		return named && strings.Contains(err.Error(), field) && strings.Contains(err.Error(), saying), nil
	}).WithTemplate("Expected\n{{.FormattedActual}}\n{{.To}} be Invalid, name the field {{.Data.Field}} and say {{.Data.Saying}}",
		struct{ Field, Saying string }{field, saying})
}

func installation() document {
	return document{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "PluginInstallation",
		"metadata": document{"name": uniqueName()},
		"spec": document{
			"pluginID": "kandev.standup-notes",
			"version":  "1.4.0",
			"manifest": document{"capabilities": []any{
				document{"id": "host.v2.read:tasks", "required": true, "reason": "Reads what was done."},
				document{"id": "host.v2.write:tasks"},
			}},
			"serviceAccountRef": document{"namespace": "plugin-standup", "name": "standup"},
		},
	}
}

func approval(namespace string) document {
	name := uniqueName()
	return document{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "PluginCapabilityApproval",
		"metadata": document{"name": name, "namespace": namespace},
		"spec": document{
			"installationName": name,
			"installationID":   uuid.NewString(),
			"manifestDigest":   digest('a'),
			"workspaceID":      "payments",
			"capabilities":     []any{"host.v2.read:tasks", "host.v2.write:tasks"},
			"approvedBy":       "ada@example.com",
		},
	}
}

func event() document {
	id := uuid.NewString()
	return document{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "PluginCapabilityApprovalEvent",
		"metadata": document{"name": id + ".payments.r2"},
		"spec": document{
			"auditID": "3d7e", "type": "Grant",
			"installationID": id, "installationName": "standup", "workspaceID": "payments",
			"beforeRevision": int64(1), "revision": int64(2),
			"manifestDigest": digest('a'),
			"granted":        []any{"host.v2.read:tasks", "host.v2.write:tasks"},
			"effective":      []any{"host.v2.read:tasks"},
			"state":          "Active", "cause": "Human",
			"actor":          document{"name": "ada@example.com", "assurance": "Claimed"},
			"time":           "2027-01-01T08:00:00.000001Z",
			"vector":         document{"workspaceID": "payments"},
			"decisionDigest": hex('b'),
		},
	}
}

func digest(digit byte) string { return "v1:" + hex(digit) }

func hex(digit byte) string { return strings.Repeat(string(digit), 64) }

// long is a text of n characters that is right but for its length.
func long(n int) string { return strings.Repeat("a", n) }

// many is a list of n equal values.
func many(n int, value any) []any {
	list := make([]any, n)
	for i := range list {
		list[i] = value
	}
	return list
}
