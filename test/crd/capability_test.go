package crd_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kandev/plugin-host/contract"
)

const (
	supported = `supported values: "host.v2.read:managed_agent_conversations"`
	shape     = `^host\.v2\.(read|write):[a-z0-9_]+$`
)

// badCapabilities are the ways to get an ID wrong, with what the answer says.
var badCapabilities = []TableEntry{
	Entry("unknown", "host.v2.read:weather", supported),
	Entry("human-reserved", "host.v2.write:merge", supported),
	Entry("of the legacy contract", "tasks:read", shape),
	Entry("of another version", "host.v3.read:tasks", shape),
	Entry("of another verb", "host.v2.admin:tasks", shape),
	Entry("without a resource", "host.v2.read:", shape),
	Entry("a bare wildcard", "*", shape),
	Entry("a wildcard resource", "host.v2.read:*", shape),
	Entry("a wildcard verb", "host.v2.*:tasks", shape),
	Entry("a wildcard at the end", "host.v2.read:task*", shape),
	Entry("in capitals", "HOST.V2.READ:TASKS", shape),
	Entry("with a blank in front", " host.v2.read:tasks", shape),
	Entry("with a newline behind", "host.v2.read:tasks\n", shape),
	Entry("two in one", "host.v2.read:tasks,host.v2.write:tasks", shape),
	Entry("empty", "", "at least 1 char"),
	Entry("oversized", "host.v2.read:"+long(256-len("host.v2.read:")+1), "may not be more than 256"),
	Entry("a number", int64(5), "must be of type string"),
}

var _ = Describe("capability IDs", func() {
	for _, capability := range contract.Capabilities() {
		It("are accepted: "+capability.String(), func(ctx SpecContext) {
			accepted(ctx, with(approval(newNamespace(ctx)), "spec.capabilities", []any{capability.String()}))
			accepted(ctx, with(installation(), "spec.manifest.capabilities", []any{document{"id": capability.String()}}))
		})
	}

	It("may be granted and declared all at once, or none", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		var granted, declared []any
		for _, id := range contract.AllCapabilities.IDs() {
			granted = append(granted, id)
			declared = append(declared, document{"id": id})
		}
		accepted(ctx, with(approval(namespace), "spec.capabilities", granted))
		accepted(ctx, with(approval(namespace), "spec.capabilities", []any{}))
		accepted(ctx, with(approval(namespace), "spec.capabilities", absent))
		accepted(ctx, with(installation(), "spec.manifest.capabilities", declared))
		accepted(ctx, with(installation(), "spec.manifest.capabilities", absent))
	})

	DescribeTable("are refused in an approval when", func(ctx SpecContext, id any, saying string) {
		refused(ctx, with(approval(newNamespace(ctx)), "spec.capabilities", []any{"host.v2.read:tasks", id}),
			"spec.capabilities[1]", saying)
	}, badCapabilities)

	DescribeTable("are refused in a manifest when", func(ctx SpecContext, id any, saying string) {
		refused(ctx, with(installation(), "spec.manifest.capabilities",
			[]any{document{"id": "host.v2.read:tasks"}, document{"id": id}}),
			"spec.manifest.capabilities[1].id", saying)
	}, badCapabilities)

	It("are refused in an event when they aren't the contract's", func(ctx SpecContext) {
		for _, list := range []string{"granted", "effective", "declared", "required"} {
			refused(ctx, with(event(), "spec."+list, []any{"host.v2.read:weather"}), "spec."+list+"[0]", supported)
		}
	})

	It("are refused twice in one list", func(ctx SpecContext) {
		refused(ctx, with(approval(newNamespace(ctx)), "spec.capabilities",
			[]any{"host.v2.read:tasks", "host.v2.write:tasks", "host.v2.read:tasks"}),
			"spec.capabilities[2]", `Duplicate value: "host.v2.read:tasks"`)
		refused(ctx, with(installation(), "spec.manifest.capabilities", []any{
			document{"id": "host.v2.read:tasks", "required": true}, document{"id": "host.v2.read:tasks"},
		}), "spec.manifest.capabilities[1]", "Duplicate value")
	})

	It("are refused in a list of more than 64", func(ctx SpecContext) {
		refused(ctx, with(approval(newNamespace(ctx)), "spec.capabilities", many(65, "host.v2.read:tasks")),
			"spec.capabilities", "must have at most 64 items")
		refused(ctx, with(installation(), "spec.manifest.capabilities", many(65, document{"id": "host.v2.read:tasks"})),
			"spec.manifest.capabilities", "must have at most 64 items")
		refused(ctx, with(event(), "spec.granted", many(65, "host.v2.read:tasks")),
			"spec.granted", "must have at most 64 items")
	})

	It("are refused by kubectl with the field and the IDs there are", func(ctx SpecContext) {
		out, err := kubectl(ctx, `
apiVersion: plugins.kandev.ai/v1alpha1
kind: PluginCapabilityApproval
metadata: {name: standup, namespace: `+newNamespace(ctx)+`}
spec:
  installationName: standup
  installationID: 3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77
  manifestDigest: `+digest('a')+`
  workspaceID: payments
  approvedBy: ada@example.com
  capabilities: [host.v2.read:weather]
`, "apply", "-f", "-")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring(`spec.capabilities[0]: Unsupported value: "host.v2.read:weather"`))
		for _, id := range contract.AllCapabilities.IDs() {
			Expect(out).To(ContainSubstring(`"` + id + `"`))
		}
	})
})
