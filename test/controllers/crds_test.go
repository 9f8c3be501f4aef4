package controllers_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// editCRD edits the definition of approvals.
func editCRD(ctx context.Context, edit func(*apiextensionsv1.JSONSchemaProps)) {
	GinkgoHelper()
	Eventually(func() error {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := powerful.Get(ctx, client.ObjectKey{Name: "plugincapabilityapprovals.plugins.kandev.ai"}, &crd); err != nil {
			return err
		}
		edit(crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
		return powerful.Update(ctx, &crd)
	}).Should(Succeed())
}

var _ = Describe("CRDs of an older release", func() {
	It("keep a new Host from leading, which says so, until they are applied", func(ctx SpecContext) {
		const field = "approverAssurance"
		var known apiextensionsv1.JSONSchemaProps
		restore := func(ctx SpecContext) {
			editCRD(ctx, func(s *apiextensionsv1.JSONSchemaProps) { s.Properties["status"].Properties[field] = known })
		}
		editCRD(ctx, func(s *apiextensionsv1.JSONSchemaProps) {
			known = s.Properties["status"].Properties[field]
			delete(s.Properties["status"].Properties, field)
		})
		DeferCleanup(restore)
		s := newScene(ctx, readTasks, writeTasks)
		// The API server publishes a schema a moment after it is in force.
		var h *host
		Eventually(func(g Gomega) {
			h = start(newDatabase(ctx, onSQLite))
			g.Eventually(func() error { return h.isReady(ctx, "crds") }).Should(MatchError(
				And(ContainSubstring("PluginCapabilityApproval.status."+field), ContainSubstring("plugin-host-crds"))))
		}).Should(Succeed())
		Consistently(func() string { return s.installation(ctx).Status.InstallationID }).Should(BeEmpty())

		restore(ctx)
		Eventually(func() error { return h.isReady(ctx, "crds") }).Should(Succeed())
		s.grant(ctx, writeTasks)
		s.allowed(ctx, h)
	})
})
