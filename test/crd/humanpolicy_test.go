package crd_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

func humanPolicy() document {
	return document{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "HumanPolicy",
		"metadata": document{"name": uniqueName()},
		"spec": document{
			"reason": "No plugin starts runs here.",
			"rules": []any{
				document{"class": "RunsAndSessions", "deny": true},
				document{"class": "MessagesAndTasks", "maxLifetimeSeconds": int64(86400), "fourEyes": true},
			},
		},
	}
}

var _ = Describe("HumanPolicy", func() {
	rule := func(fields document) []any {
		whole := document{"class": "TaskDirectives"}
		for field, value := range fields {
			whole[field] = value
		}
		return []any{whole}
	}

	DescribeTable("accepts", func(ctx SpecContext, path string, value any) {
		accepted(ctx, with(humanPolicy(), path, value))
	},
		Entry("no reason", "spec.reason", absent),
		Entry("the longest reason", "spec.reason", long(1024)),
		Entry("claims as two humans", "spec.acceptClaimedFourEyes", true),
		Entry("the longest name", "metadata.name", long(100)),
		Entry("a denial alone", "spec.rules", rule(document{"deny": true})),
		Entry("a second human alone", "spec.rules", rule(document{"fourEyes": true})),
		Entry("the shortest lifetime", "spec.rules", rule(document{"maxLifetimeSeconds": int64(60)})),
		Entry("the longest lifetime", "spec.rules", rule(document{"maxLifetimeSeconds": int64(315360000)})),
		Entry("a rule for each class", "spec.rules", []any{
			document{"class": "ReadProjections", "deny": true}, document{"class": "ManagedConversations", "deny": true},
			document{"class": "MessagesAndTasks", "deny": true}, document{"class": "TaskDirectives", "deny": true},
			document{"class": "RelationsAndTransitions", "deny": true}, document{"class": "RunsAndSessions", "deny": true},
		}),
	)

	DescribeTable("refuses", func(ctx SpecContext, path string, value any, field, saying string) {
		refused(ctx, with(humanPolicy(), path, value), field, saying)
	},
		Entry("no spec", "spec", absent, "spec", "Required value"),
		Entry("no rules", "spec.rules", absent, "spec.rules", "Required value"),
		Entry("an empty list of rules", "spec.rules", []any{}, "spec.rules", "at least 1 item"),
		Entry("a long reason", "spec.reason", long(1025), "spec.reason", "may not be more than 1024"),
		Entry("a reason with a NUL", "spec.reason", "a\x00b", "spec.reason", "should match"),
		Entry("a rule without a class", "spec.rules", []any{document{"deny": true}}, "spec.rules[0].class", "Required value"),
		Entry("a class that is reserved for humans", "spec.rules", []any{document{"class": "Merge", "deny": true}},
			"spec.rules[0].class", "Unsupported value"),
		Entry("two rules for one class", "spec.rules", append(rule(document{"deny": true}), rule(document{"fourEyes": true})...),
			"spec.rules[1]", "Duplicate value"),
		Entry("a rule that does nothing", "spec.rules", rule(nil), "spec.rules[0]", "must deny, cap the lifetime or demand four eyes"),
		Entry("a rule that says no to both", "spec.rules", rule(document{"deny": false, "fourEyes": false}),
			"spec.rules[0]", "must deny, cap the lifetime or demand four eyes"),
		Entry("a lifetime below a minute", "spec.rules", rule(document{"maxLifetimeSeconds": int64(59)}),
			"spec.rules[0].maxLifetimeSeconds", "greater than or equal to 60"),
		Entry("a lifetime above ten years", "spec.rules", rule(document{"maxLifetimeSeconds": int64(315360001)}),
			"spec.rules[0].maxLifetimeSeconds", "less than or equal to 315360000"),
		Entry("a long name", "metadata.name", long(101), "<nil>", "at most 100 characters"),
	)

	It("never changes, but for its metadata and status", func(ctx SpecContext) {
		o := create(ctx, humanPolicy())
		Expect(edit(ctx, o, "metadata.labels", document{"team": "security"})).To(Succeed())
		Expect(editStatus(ctx, o, "status", document{"version": "1+x", "observedGeneration": int64(1)})).To(Succeed())
		for path, value := range map[string]any{
			"spec.reason": "another", "spec.rules": rule(document{"deny": true}), "spec.acceptClaimedFourEyes": true,
		} {
			Expect(edit(ctx, o.DeepCopy(), path, value)).To(beInvalid("spec", "immutable"), path)
		}
	})

	It("has a bounded status", func(ctx SpecContext) {
		o := create(ctx, humanPolicy())
		Expect(editStatus(ctx, o.DeepCopy(), "status.version", long(254))).To(beInvalid("status.version", "may not be more than 253"))
		Expect(editStatus(ctx, o.DeepCopy(), "status.observedGeneration", int64(-1))).To(
			beInvalid("status.observedGeneration", "greater than or equal to 0"))
	})
})
