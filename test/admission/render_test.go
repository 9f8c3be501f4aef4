package admission_test

import (
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var _ = Describe("the chart", func() {
	const api = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"

	rendered := func(helm string, args ...string) map[string]*unstructured.Unstructured {
		GinkgoHelper()
		args = append([]string{"template", "plugin-host", "../../charts/plugin-host", "--namespace", hostNamespace,
			"--show-only", "templates/admission.yaml"}, args...)
		out, err := exec.Command(helm, args...).Output()
		Expect(err).NotTo(HaveOccurred())
		return byID(objects(out))
	}

	for _, helm := range []string{"helm", "helm4"} {
		It("renders with "+helm+" what the overlay of config/admission does", func() {
			fromChart := rendered(helm, "--api-versions", api, "--set", "gitops.identities={"+flux.name+","+pipeline.name+"}")
			fromConfig := byID(objects(overlay("mutating")))
			Expect(fromChart).To(HaveLen(len(fromConfig)))
			for id, want := range fromConfig {
				Expect(fromChart).To(HaveKey(id))
				got := fromChart[id]
				Expect(variables(got)).To(Equal(variables(want)), id)
				got.SetLabels(nil)
				Expect(got).To(Equal(want), id)
			}
		})

		It("renders with "+helm+" names that need quoting as they are", func() {
			const awkward = `https://idp.example.com/users#o'brien\"{{x}}<a&b>`
			for id, object := range rendered(helm, "--set-json", `gitops.identities=["`+awkward+`"]`) {
				if object.GetKind() == "ValidatingAdmissionPolicy" {
					Expect(variables(object)).To(HaveKeyWithValue("gitOpsIdentities", MatchJSON(`["`+awkward+`"]`)), id)
				}
			}
		})

		It("leaves out with "+helm+" what the cluster doesn't have", func() {
			for id, object := range rendered(helm) {
				Expect(object.GetKind()).To(HavePrefix("Validating"), id)
			}
		})
	}
})

// variables are the expressions of a policy's variables; comparing those first gives
// a short message.
func variables(policy *unstructured.Unstructured) map[string]string {
	GinkgoHelper()
	list, _, err := unstructured.NestedSlice(policy.Object, "spec", "variables")
	Expect(err).NotTo(HaveOccurred())
	found := map[string]string{}
	for _, item := range list {
		fields, ok := item.(map[string]any)
		Expect(ok).To(BeTrue())
		name, _ := fields["name"].(string)
		expression, _ := fields["expression"].(string)
		if name == "gitOpsIdentities" {
			// Each tool quotes in its way.
			if strings.HasPrefix(expression, "['") {
				expression = normalQuotes(expression)
			}
		}
		fields["expression"] = expression
		found[name] = expression
	}
	if len(list) > 0 {
		Expect(unstructured.SetNestedSlice(policy.Object, list, "spec", "variables")).To(Succeed())
	}
	return found
}

func normalQuotes(expression string) string {
	return strings.NewReplacer("'", `"`, ", ", ",").Replace(expression)
}

func byID(all []*unstructured.Unstructured) map[string]*unstructured.Unstructured {
	found := map[string]*unstructured.Unstructured{}
	for _, object := range all {
		found[object.GetKind()+"/"+object.GetName()] = object
	}
	return found
}
