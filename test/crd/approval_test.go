package crd_test

import (
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

var _ = Describe("PluginCapabilityApproval", func() {
	DescribeTable("accepts", func(ctx SpecContext, path string, value any) {
		accepted(ctx, with(approval(newNamespace(ctx)), path, value))
	},
		Entry("the shortest workspaceID", "spec.workspaceID", "7"),
		Entry("the longest workspaceID", "spec.workspaceID", long(63)),
		Entry("a workspaceID with hyphens", "spec.workspaceID", "a--b-9"),
		Entry("the first act", "spec.supersedesAct", ""),
		Entry("the act before", "spec.supersedesAct", "17-k3v7qa"),
		Entry("the longest act", "spec.supersedesAct", "9223372036854775807-abc234"),
		Entry("revoking", "spec.state", "Revoked"),
		Entry("the longest approvedBy", "spec.approvedBy", long(256)),
		Entry("an approvedBy as clusters write it", "spec.approvedBy", "oidc:Ada Lovelace <ada@example.com>"),
		Entry("the longest changedBy", "spec.changedBy", long(256)),
		Entry("the longest approvedVia", "spec.approvedVia", long(256)),
		Entry("an empty approvedVia", "spec.approvedVia", ""),
		Entry("the longest confirmedBy", "spec.confirmedBy", long(256)),
		Entry("an empty confirmedBy", "spec.confirmedBy", ""),
		Entry("a reason of several lines", "spec.reason", "first\n\tsecond\r\n\u00fc\U0001F6D1"),
		Entry("the longest reason", "spec.reason", long(1024)),
	)

	DescribeTable("refuses", func(ctx SpecContext, path string, value any, field, saying string) {
		refused(ctx, with(approval(newNamespace(ctx)), path, value), field, saying)
	},
		Entry("no spec", "spec", absent, "spec", "Required value"),
		Entry("no installationName", "spec.installationName", absent, "spec.installationName", "Required value"),
		Entry("an empty installationName", "spec.installationName", "", "spec.installationName", "at least 1 char"),
		Entry("a long installationName", "spec.installationName", long(254), "spec.installationName", "may not be more than 253"),
		Entry("another installationName than its own name", "spec.installationName", "another",
			"spec.installationName", "installationName must equal metadata.name"),
		Entry("another name than its installationName", "metadata.name", "another",
			"spec.installationName", "installationName must equal metadata.name"),
		Entry("no installationID", "spec.installationID", absent, "spec.installationID", "Required value"),
		Entry("an empty installationID", "spec.installationID", "", "spec.installationID", "at least 36 char"),
		Entry("an installationID that is a name", "spec.installationID", "standup", "spec.installationID", "at least 36 char"),
		Entry("an installationID without its hyphens", "spec.installationID", long(36), "spec.installationID", "should match"),
		Entry("an installationID in capitals", "spec.installationID", "3F0C9C1E-5A0E-4C53-8A6F-2F4B8F9D1C77", "spec.installationID", "should match"),
		Entry("a long installationID", "spec.installationID", uuid.NewString()+"0", "spec.installationID", "may not be more than 36"),
		Entry("no manifestDigest", "spec.manifestDigest", absent, "spec.manifestDigest", "Required value"),
		Entry("an empty manifestDigest", "spec.manifestDigest", "", "spec.manifestDigest", "at least 67 char"),
		Entry("a digest without its version", "spec.manifestDigest", hex('a'), "spec.manifestDigest", "at least 67 char"),
		Entry("a digest of another version", "spec.manifestDigest", "v2:"+hex('a'), "spec.manifestDigest", "should match"),
		Entry("a digest in capitals", "spec.manifestDigest", digest('A'), "spec.manifestDigest", "should match"),
		Entry("a long digest", "spec.manifestDigest", digest('a')+"a", "spec.manifestDigest", "may not be more than 67"),
		Entry("no workspaceID", "spec.workspaceID", absent, "spec.workspaceID", "Required value"),
		Entry("an empty workspaceID", "spec.workspaceID", "", "spec.workspaceID", "at least 1 char"),
		Entry("a wildcard workspaceID", "spec.workspaceID", "*", "spec.workspaceID", "should match"),
		Entry("a workspaceID in capitals", "spec.workspaceID", "Payments", "spec.workspaceID", "should match"),
		Entry("a workspaceID that ends with a hyphen", "spec.workspaceID", "payments-", "spec.workspaceID", "should match"),
		Entry("a long workspaceID", "spec.workspaceID", long(64), "spec.workspaceID", "may not be more than 63"),
		Entry("an act that is a number", "spec.supersedesAct", "17", "spec.supersedesAct", "should match"),
		Entry("an act in capitals", "spec.supersedesAct", "17-K3V7QA", "spec.supersedesAct", "should match"),
		Entry("an act with a digit that base32 doesn't have", "spec.supersedesAct", "17-k3v1qa", "spec.supersedesAct", "should match"),
		Entry("an act with a blank", "spec.supersedesAct", "17-k3v7qa ", "spec.supersedesAct", "should match"),
		Entry("a long act", "spec.supersedesAct", long(27), "spec.supersedesAct", "may not be more than 26"),
		Entry("a state of status", "spec.state", "Expired", "spec.state", `supported values: "Active", "Revoked"`),
		Entry("an empty state", "spec.state", "", "spec.state", `supported values: "Active", "Revoked"`),
		Entry("no approvedBy", "spec.approvedBy", absent, "spec.approvedBy", "Required value"),
		Entry("an empty approvedBy", "spec.approvedBy", "", "spec.approvedBy", "at least 1 char"),
		Entry("a long approvedBy", "spec.approvedBy", long(257), "spec.approvedBy", "may not be more than 256"),
		Entry("an approvedBy of two lines", "spec.approvedBy", "ada\nroot", "spec.approvedBy", "should match"),
		Entry("an approvedBy with a NUL", "spec.approvedBy", "ada\x00", "spec.approvedBy", "should match"),
		Entry("a changedBy with a NUL", "spec.changedBy", "ada\x00", "spec.changedBy", "should match"),
		Entry("a reason with a NUL", "spec.reason", "a\x00b", "spec.reason", "should match"),
		Entry("a reason with an escape", "spec.reason", "a\x1b[2Jb", "spec.reason", "should match"),
		Entry("an approvedVia with a newline", "spec.approvedVia", "flux\n", "spec.approvedVia", "should match"),
		Entry("a long approvedVia", "spec.approvedVia", long(257), "spec.approvedVia", "may not be more than 256"),
		Entry("a confirmedBy with a NUL", "spec.confirmedBy", "ada\x00", "spec.confirmedBy", "should match"),
		Entry("a long confirmedBy", "spec.confirmedBy", long(257), "spec.confirmedBy", "may not be more than 256"),
		Entry("a long changedBy", "spec.changedBy", long(257), "spec.changedBy", "may not be more than 256"),
		Entry("a long reason", "spec.reason", long(1025), "spec.reason", "may not be more than 1024"),
		Entry("one capability instead of a list", "spec.capabilities", "host.v2.read:tasks", "spec.capabilities", "must be of type array"),
	)

	It("defaults to Active and to the first act", func(ctx SpecContext) {
		o := create(ctx, approval(newNamespace(ctx)))
		Expect(o.Object["spec"]).To(And(HaveKeyWithValue("state", "Active"), HaveKeyWithValue("supersedesAct", "")))
	})

	DescribeTable("accepts an expiry that every client can decode", func(ctx SpecContext, text string, instant time.Time) {
		o := create(ctx, with(approval(newNamespace(ctx)), "spec.expiresAt", text))
		var typed v1alpha1.PluginCapabilityApproval
		Expect(api.Get(ctx, client.ObjectKeyFromObject(o), &typed)).To(Succeed())
		Expect(typed.Spec.ExpiresAt.Time).To(BeTemporally("==", instant))
	},
		Entry("in UTC", "2027-03-01T08:00:00Z", time.Date(2027, 3, 1, 8, 0, 0, 0, time.UTC)),
		Entry("with milliseconds", "2027-03-01T08:00:00.250Z", time.Date(2027, 3, 1, 8, 0, 0, 250e6, time.UTC)),
		Entry("with microseconds and a zone", "2027-03-01T08:00:00.000001+05:30", time.Date(2027, 3, 1, 2, 30, 0, 1e3, time.UTC)),
		Entry("on a leap day", "2028-02-29T23:59:59-23:59", time.Date(2028, 3, 1, 23, 58, 59, 0, time.UTC)),
		Entry("in the past", "2000-01-01T00:00:00Z", time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)),
		Entry("at the end of what it allows", "2999-12-31T23:59:59-23:59", time.Date(3000, 1, 1, 23, 58, 59, 0, time.UTC)),
	)

	DescribeTable("refuses an expiry", func(ctx SpecContext, text any) {
		refused(ctx, with(approval(newNamespace(ctx)), "spec.expiresAt", text), "spec.expiresAt", "spec.expiresAt")
	},
		Entry("that is empty", ""),
		Entry("that is no time", "tomorrow"),
		Entry("that is a number", int64(1)),
		Entry("that is a day", "2027-03-01"),
		Entry("without a zone", "2027-03-01T08:00:00"),
		Entry("with a small t", "2027-03-01t08:00:00Z"),
		Entry("with a small z", "2027-03-01T08:00:00z"),
		Entry("with a letter before the fraction", "2027-03-01T08:00:00x5Z"),
		Entry("with a comma before the fraction", "2027-03-01T08:00:00,5Z"),
		Entry("with nanoseconds", "2027-03-01T08:00:00.000000001Z"),
		Entry("with a zone past the day", "2027-03-01T08:00:00+24:00"),
		Entry("with a zone past the hour", "2027-03-01T08:00:00+05:60"),
		Entry("on a day that isn't", "2027-02-29T08:00:00Z"),
		Entry("at an hour that isn't", "2027-03-01T24:00:00Z"),
		Entry("at a minute that isn't", "2027-03-01T08:60:00Z"),
		Entry("at a leap second", "2027-03-01T08:00:60Z"),
		Entry("before what it allows", "1999-12-31T23:59:59Z"),
		Entry("after what it allows", "3000-01-01T00:00:00Z"),
	)

	It("keeps its installation name and its workspace", func(ctx SpecContext) {
		o := create(ctx, approval(newNamespace(ctx)))
		Expect(edit(ctx, o, "spec.installationName", "another")).To(beInvalid("spec.installationName", "installationName is immutable"))
		Expect(edit(ctx, o, "spec.workspaceID", "billing")).To(beInvalid("spec.workspaceID", "workspaceID is immutable"))
		Expect(edit(ctx, o, "spec.workspaceID", absent)).To(beInvalid("spec.workspaceID", "Required value"))
	})

	It("can be moved to another manifest, act and installation ID, narrowed to nothing and revoked", func(ctx SpecContext) {
		o := create(ctx, approval(newNamespace(ctx)))
		Expect(edit(ctx, o, "spec.manifestDigest", digest('b'))).To(Succeed())
		Expect(edit(ctx, o, "spec.supersedesAct", "1-abcdef")).To(Succeed())
		Expect(edit(ctx, o, "spec.installationID", uuid.NewString())).To(Succeed())
		Expect(edit(ctx, o, "spec.capabilities", absent)).To(Succeed())
		Expect(edit(ctx, o, "spec.state", "Revoked")).To(Succeed())
		Expect(edit(ctx, o, "spec.changedBy", "grace@example.com")).To(Succeed())
	})

	It("I3: never lets its revision decrease or vanish", func(ctx SpecContext) {
		o := create(ctx, approval(newNamespace(ctx)))
		Expect(editStatus(ctx, o, "status.state", "Pending")).To(Succeed(), "a status without a revision")
		Expect(editStatus(ctx, o, "status.revision", int64(5))).To(Succeed(), "set")
		Expect(editStatus(ctx, o, "status.revision", int64(5))).To(Succeed(), "equal")
		Expect(editStatus(ctx, o, "status.revision", int64(9007199254740993))).To(Succeed(), "above, where a float loses it")

		const field, saying = "status.revision", "revision can't decrease or vanish"
		Expect(editStatus(ctx, o, "status.revision", int64(9007199254740992))).To(beInvalid(field, saying))
		Expect(editStatus(ctx, o, "status.revision", int64(0))).To(beInvalid(field, saying))
		Expect(editStatus(ctx, o, "status.revision", absent)).To(beInvalid(field, saying))
		Expect(editStatus(ctx, o, "status", absent)).To(beInvalid(field, saying))
		Expect(editStatus(ctx, o, "status", document{})).To(beInvalid(field, saying))
		Expect(edit(ctx, o, "status", absent)).To(Succeed(), "an edit of the spec doesn't touch status")
		Expect(o.Object).To(HaveKeyWithValue("status", HaveKeyWithValue("revision", int64(9007199254740993))))
	})

	It("I3: lets a revision begin anew for another installation only", func(ctx SpecContext) {
		o := create(ctx, approval(newNamespace(ctx)))
		first, second := uuid.NewString(), uuid.NewString()
		Expect(editStatus(ctx, o, "status", document{"installationID": first, "revision": int64(5)})).To(Succeed())
		const field, saying = "status.revision", "revision can't decrease or vanish"
		Expect(editStatus(ctx, o, "status", document{"installationID": first, "revision": int64(4)})).To(beInvalid(field, saying))
		Expect(editStatus(ctx, o, "status", document{"installationID": first})).To(beInvalid(field, saying))
		Expect(editStatus(ctx, o, "status", document{"revision": int64(4)})).To(beInvalid(field, saying))
		Expect(editStatus(ctx, o, "status", document{"installationID": second, "revision": int64(1)})).To(Succeed())
		Expect(editStatus(ctx, o, "status", document{"installationID": second, "revision": int64(0)})).To(beInvalid(field, saying))
	})

	It("takes status through its subresource only", func(ctx SpecContext) {
		o := create(ctx, with(approval(newNamespace(ctx)), "status.revision", int64(7)))
		Expect(o.Object).NotTo(HaveKey("status"))
		Expect(editStatus(ctx, o, "spec.state", "Revoked")).To(Succeed())
		Expect(o.Object["spec"]).To(HaveKeyWithValue("state", "Active"))
	})

	DescribeTable("accepts in status", func(ctx SpecContext, path string, value any) {
		Expect(editStatus(ctx, create(ctx, approval(newNamespace(ctx))), path, value)).To(Succeed())
	},
		Entry("no act", "status.act", ""),
		Entry("an act", "status.act", "17-k3v7qa"),
		Entry("every state: Active", "status.state", "Active"),
		Entry("every state: Revoked", "status.state", "Revoked"),
		Entry("every state: Expired", "status.state", "Expired"),
		Entry("every state: Pending", "status.state", "Pending"),
		Entry("an expiry", "status.expiresAt", "2027-03-01T08:00:00.000001Z"),
		Entry("a summary", "status.effectiveSummary", "3/5"),
		Entry("an inactive ID of another contract", "status.inactiveCapabilities",
			[]any{document{"id": "host.v9.read:dreams", "reason": "Unknown"}}),
		Entry("every gate", "status.gates", []any{
			document{"type": "Suspended", "message": long(1024)},
			document{"type": "ServiceAccountConflict", "message": "m"},
			document{"type": "WorkspaceConflict", "message": "m"},
			document{"type": "HostVersionUnsupported", "message": "m"},
			document{"type": "PrincipalChanged", "message": "m"},
			document{"type": "RequiredCapabilityUnavailable", "message": "m"},
		}),
		Entry("every reason of inactivity", "status.inactiveCapabilities", []any{
			document{"id": "a", "reason": "NotDeclared"},
			document{"id": "b", "reason": "NotReviewed"},
			document{"id": "c", "reason": "ActAlreadyUsed"},
			document{"id": "d", "reason": "HumanReserved"},
			document{"id": long(256), "reason": "Unknown"},
		}),
	)

	gate := func(kind, message any) document { return document{"type": kind, "message": message} }
	inactive := func(id, reason any) document { return document{"id": id, "reason": reason} }

	DescribeTable("refuses in status", func(ctx SpecContext, path string, value any, field, saying string) {
		Expect(editStatus(ctx, create(ctx, approval(newNamespace(ctx))), path, value)).To(beInvalid(field, saying))
	},
		Entry("a negative revision", "status.revision", int64(-1), "status.revision", "greater than or equal to 0"),
		Entry("a malformed act", "status.act", "17", "status.act", "should match"),
		Entry("a long act", "status.act", long(27), "status.act", "may not be more than 26"),
		Entry("another state", "status.state", "Fine", "status.state", `supported values: "Active", "Revoked", "Expired", "Pending"`),
		Entry("an expiry without microseconds", "status.expiresAt", "2027-03-01T08:00:00Z", "status.expiresAt", "should match"),
		Entry("an effective ID of no contract", "status.effectiveCapabilities", []any{"host.v2.read:weather"},
			"status.effectiveCapabilities[0]", supported),
		Entry("an effective ID twice", "status.effectiveCapabilities", many(2, "host.v2.read:tasks"),
			"status.effectiveCapabilities[1]", "Duplicate value"),
		Entry("65 effective IDs", "status.effectiveCapabilities", many(65, "host.v2.read:tasks"),
			"status.effectiveCapabilities", "must have at most 64 items"),
		Entry("a malformed summary", "status.effectiveSummary", "3 of 5", "status.effectiveSummary", "should match"),
		Entry("a long summary", "status.effectiveSummary", long(17), "status.effectiveSummary", "may not be more than 16"),
		Entry("an inactive ID twice", "status.inactiveCapabilities",
			[]any{inactive("a", "Unknown"), inactive("a", "NotDeclared")}, "status.inactiveCapabilities[1]", "Duplicate value"),
		Entry("an inactive capability without an ID", "status.inactiveCapabilities", []any{document{"reason": "Unknown"}},
			"status.inactiveCapabilities[0].id", "Required value"),
		Entry("an inactive capability without a reason", "status.inactiveCapabilities", []any{document{"id": "a"}},
			"status.inactiveCapabilities[0].reason", "Required value"),
		Entry("a long inactive ID", "status.inactiveCapabilities", []any{inactive(long(257), "Unknown")},
			"status.inactiveCapabilities[0].id", "may not be more than 256"),
		Entry("an empty inactive ID", "status.inactiveCapabilities", []any{inactive("", "Unknown")},
			"status.inactiveCapabilities[0].id", "at least 1 char"),
		Entry("another reason of inactivity", "status.inactiveCapabilities", []any{inactive("a", "Bored")},
			"status.inactiveCapabilities[0].reason", `supported values: "NotDeclared"`),
		Entry("65 inactive IDs", "status.inactiveCapabilities", many(65, inactive("a", "Unknown")),
			"status.inactiveCapabilities", "must have at most 64 items"),
		Entry("another gate", "status.gates", []any{gate("Stuck", "m")}, "status.gates[0].type", `supported values: "Suspended"`),
		Entry("a gate without a type", "status.gates", []any{document{"message": "m"}}, "status.gates[0].type", "Required value"),
		Entry("a gate without a message", "status.gates", []any{document{"type": "Suspended"}}, "status.gates[0].message", "Required value"),
		Entry("a gate twice", "status.gates", many(2, gate("Suspended", "m")), "status.gates[1]", "Duplicate value"),
		Entry("a gate that doesn't say what opens it", "status.gates", []any{gate("Suspended", "")},
			"status.gates[0].message", "at least 1 char"),
		Entry("a gate with a long message", "status.gates", []any{gate("Suspended", long(1025))},
			"status.gates[0].message", "may not be more than 1024"),
		Entry("17 gates", "status.gates", many(17, gate("Suspended", "m")), "status.gates", "must have at most 16 items"),
		Entry("a malformed digest", "status.manifestDigest", "v1:"+long(63)+"g", "status.manifestDigest", "should match"),
		Entry("a long digest", "status.manifestDigest", digest('a')+"a", "status.manifestDigest", "may not be more than 67"),
		Entry("a long humanPolicyVersion", "status.humanPolicyVersion", long(254), "status.humanPolicyVersion", "may not be more than 253"),
		Entry("a long approvedBy", "status.approvedBy", long(257), "status.approvedBy", "may not be more than 256"),
		Entry("an issuedAt that no client can decode", "status.issuedAt", "2027-03-01t08:00:00z", "status.issuedAt", "should match"),
		Entry("an updatedAt that no client can decode", "status.updatedAt", "2027-03-01t08:00:00z", "status.updatedAt", "should match"),
		Entry("a long lastAuditID", "status.lastAuditID", long(129), "status.lastAuditID", "may not be more than 128"),
		Entry("a negative generation", "status.observedGeneration", int64(-1), "status.observedGeneration", "greater than or equal to 0"),
		Entry("17 conditions", "status.conditions", conditions(17), "status.conditions", "must have at most 16 items"),
	)
})
