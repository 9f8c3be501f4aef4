package crd_test

import (
	"strings"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

var _ = Describe("PluginCapabilityApprovalEvent", func() {
	hold := func() document {
		return document{"granted": []any{"host.v2.read:tasks"}, "state": "Revoked", "cause": "Human",
			"actor": document{"assurance": "Unknown"}, "uid": uuid.NewString(), "generation": int64(4), "spent": true}
	}

	DescribeTable("accepts", func(ctx SpecContext, path string, value any) {
		accepted(ctx, with(event(), path, value))
	},
		Entry("nothing granted", "spec.granted", absent),
		Entry("no digest, where none was ever known", "spec.manifestDigest", absent),
		Entry("a digest before", "spec.beforeManifestDigest", digest('a')),
		Entry("no digest before", "spec.beforeManifestDigest", ""),
		Entry("an expiry to the microsecond", "spec.expiresAt", "2027-03-01T08:00:00.000001Z"),
		Entry("gates", "spec.gates", []any{"Suspended", "PrincipalChanged"}),
		Entry("an act", "spec.act", "17-k3v7qa"),
		Entry("an actor without a name", "spec.actor", document{"assurance": "Unknown"}),
		Entry("the longest reason", "spec.reason", long(1024)),
		Entry("a hold", "spec.hold", hold()),
		Entry("a hold that allows nothing", "spec.hold", with(hold(), "granted", absent)),
		Entry("a hold with an expiry", "spec.hold", with(hold(), "expiresAt", "2027-03-01T08:00:00.000001Z")),
		Entry("a vector without anything", "spec.vector", document{}),
		Entry("what was seen", "spec.seen", document{"uid": uuid.NewString(), "generation": int64(3)}),
		Entry("a grant without proof", "spec.unproven", true),
		Entry("a hash before", "spec.previousHash", hex('c')),
		Entry("a digest with its version", "spec.decisionDigest", "v1:"+hex('c')),
		Entry("the longest auditID", "spec.auditID", long(128)),
		Entry("the type Narrow", "spec.type", "Narrow"),
		Entry("the type Revoke", "spec.type", "Revoke"),
		Entry("the type UpgradeReview", "spec.type", "UpgradeReview"),
		Entry("the state Revoked", "spec.state", "Revoked"),
		Entry("the state Expired", "spec.state", "Expired"),
	)

	It("accepts every cause and every assurance", func(ctx SpecContext) {
		for _, cause := range []v1alpha1.EventCause{
			v1alpha1.CauseHuman, v1alpha1.CauseExpired, v1alpha1.CauseApprovalDeleted, v1alpha1.CauseUninstalled,
			v1alpha1.CauseWorkspaceRemoved, v1alpha1.CauseManifestChanged, v1alpha1.CausePolicyChanged,
			v1alpha1.CauseSuspended, v1alpha1.CauseResumed, v1alpha1.CausePrincipalChanged, v1alpha1.CauseGateClosed,
			v1alpha1.CauseGateOpened, v1alpha1.CauseUnseenChange, v1alpha1.CauseStoreEpoch,
		} {
			accepted(ctx, with(event(), "spec.cause", string(cause)))
		}
		for _, assurance := range []v1alpha1.Assurance{
			v1alpha1.AssuranceVerified, v1alpha1.AssuranceClaimed, v1alpha1.AssuranceUnknown, v1alpha1.AssuranceSystem,
		} {
			accepted(ctx, with(event(), "spec.actor.assurance", string(assurance)))
		}
	})

	It("accepts the longest name there can be", func(ctx SpecContext) {
		e := event()
		id := uuid.NewString()
		with(e, "spec.installationID", id)
		with(e, "spec.workspaceID", long(63))
		with(e, "spec.beforeRevision", int64(9223372036854775806))
		with(e, "spec.revision", int64(9223372036854775807))
		accepted(ctx, with(e, "metadata.name", id+"."+long(63)+".r9223372036854775807"))
	})

	DescribeTable("is refused under a name that spells its revision", func(ctx SpecContext, spelling string) {
		e := event()
		id := e["spec"].(document)["installationID"].(string)
		refused(ctx, with(e, "metadata.name", id+".payments.r"+spelling), "spec.revision", "metadata.name must be")
	},
		Entry("with a zero in front", "02"),
		Entry("as nothing", ""),
		Entry("as a word", "two"),
		Entry("with something behind", "2.r3"),
		Entry("as a number that overflows", "9223372036854775808"),
		Entry("as a number with 20 digits", "18446744073709551618"),
		Entry("in hexadecimal", "0x2"),
	)

	DescribeTable("refuses", func(ctx SpecContext, path string, value any, field, saying string) {
		refused(ctx, with(event(), path, value), field, saying)
	},
		Entry("no spec", "spec", absent, "spec", "Required value"),
		Entry("another name", "metadata.name", "another", "spec.revision", "metadata.name must be <installationID>.<workspaceID>.r<revision>"),
		Entry("another revision than its name says", "spec.revision", int64(3), "spec.revision", "metadata.name must be"),
		Entry("another workspace than its name says", "spec.workspaceID", "billing", "spec.revision", "metadata.name must be"),
		Entry("another installation than its name says", "spec.installationID", uuid.NewString(), "spec.revision", "metadata.name must be"),
		Entry("a revision that isn't above the one before", "spec.beforeRevision", int64(2), "spec.revision", "revision must be above beforeRevision"),
		Entry("revision 0", "spec.revision", int64(0), "spec.revision", "greater than or equal to 1"),
		Entry("a negative revision before", "spec.beforeRevision", int64(-1), "spec.beforeRevision", "greater than or equal to 0"),
		Entry("no revision before", "spec.beforeRevision", absent, "spec.beforeRevision", "Required value"),
		Entry("no revision", "spec.revision", absent, "spec.revision", "Required value"),
		Entry("no auditID", "spec.auditID", absent, "spec.auditID", "Required value"),
		Entry("an empty auditID", "spec.auditID", "", "spec.auditID", "at least 1 char"),
		Entry("a malformed auditID", "spec.auditID", "a b", "spec.auditID", "should match"),
		Entry("a long auditID", "spec.auditID", long(129), "spec.auditID", "may not be more than 128"),
		Entry("no type", "spec.type", absent, "spec.type", "Required value"),
		Entry("another type", "spec.type", "Widen", "spec.type", `supported values: "Grant", "Narrow", "Revoke", "UpgradeReview"`),
		Entry("no installationID", "spec.installationID", absent, "spec.installationID", "Required value"),
		Entry("a short installationID", "spec.installationID", "standup", "spec.installationID", "at least 36 char"),
		Entry("a malformed installationID", "spec.installationID", long(36), "spec.installationID", "should match"),
		Entry("a long installationID", "spec.installationID", long(37), "spec.installationID", "may not be more than 36"),
		Entry("no installationName", "spec.installationName", absent, "spec.installationName", "Required value"),
		Entry("an empty installationName", "spec.installationName", "", "spec.installationName", "at least 1 char"),
		Entry("a long installationName", "spec.installationName", long(254), "spec.installationName", "may not be more than 253"),
		Entry("no workspaceID", "spec.workspaceID", absent, "spec.workspaceID", "Required value"),
		Entry("an empty workspaceID", "spec.workspaceID", "", "spec.workspaceID", "at least 1 char"),
		Entry("a malformed workspaceID", "spec.workspaceID", "A", "spec.workspaceID", "should match"),
		Entry("a long workspaceID", "spec.workspaceID", long(64), "spec.workspaceID", "may not be more than 63"),
		Entry("a malformed digest", "spec.manifestDigest", "v1:a", "spec.manifestDigest", "should match"),
		Entry("a long digest", "spec.manifestDigest", digest('a')+"a", "spec.manifestDigest", "may not be more than 67"),
		Entry("a malformed digest before", "spec.beforeManifestDigest", "v1:a", "spec.beforeManifestDigest", "should match"),
		Entry("a long digest before", "spec.beforeManifestDigest", digest('a')+"a", "spec.beforeManifestDigest", "may not be more than 67"),
		Entry("65 effective", "spec.effective", many(65, "host.v2.read:tasks"), "spec.effective", "must have at most 64 items"),
		Entry("65 declared", "spec.declared", many(65, "host.v2.read:tasks"), "spec.declared", "must have at most 64 items"),
		Entry("65 required", "spec.required", many(65, "host.v2.read:tasks"), "spec.required", "must have at most 64 items"),
		Entry("no state", "spec.state", absent, "spec.state", "Required value"),
		Entry("a state that no row has", "spec.state", "Pending", "spec.state", `supported values: "Active", "Revoked", "Expired"`),
		Entry("an expiry that a client can't decode", "spec.expiresAt", "2027-03-01T08:00:00Z", "spec.expiresAt", "should match"),
		Entry("another gate", "spec.gates", []any{"Stuck"}, "spec.gates[0]", `supported values: "Suspended"`),
		Entry("17 gates", "spec.gates", many(17, "Suspended"), "spec.gates", "must have at most 16 items"),
		Entry("a malformed act", "spec.act", "17", "spec.act", "should match"),
		Entry("a long act", "spec.act", long(27), "spec.act", "may not be more than 26"),
		Entry("no actor", "spec.actor", absent, "spec.actor", "Required value"),
		Entry("an actor of no assurance", "spec.actor.assurance", absent, "spec.actor.assurance", "Required value"),
		Entry("an actor of another assurance", "spec.actor.assurance", "Rumoured", "spec.actor.assurance", `supported values: "Verified"`),
		Entry("an actor with a long name", "spec.actor.name", long(257), "spec.actor.name", "may not be more than 256"),
		Entry("no cause", "spec.cause", absent, "spec.cause", "Required value"),
		Entry("another cause", "spec.cause", "Weather", "spec.cause", `supported values: "Human"`),
		Entry("a long reason", "spec.reason", long(1025), "spec.reason", "may not be more than 1024"),
		Entry("no time", "spec.time", absent, "spec.time", "Required value"),
		Entry("a time that a client can't decode", "spec.time", "2027-01-01T08:00:00Z", "spec.time", "should match"),
		Entry("no vector", "spec.vector", absent, "spec.vector", "Required value"),
		Entry("a long uid seen", "spec.seen", document{"uid": long(129)}, "spec.seen.uid", "may not be more than 128"),
		Entry("a negative generation seen", "spec.seen", document{"generation": int64(-1)}, "spec.seen.generation", "greater than or equal to 0"),
		Entry("a long humanPolicyVersion", "spec.humanPolicyVersion", long(254), "spec.humanPolicyVersion", "may not be more than 253"),
		Entry("no decisionDigest", "spec.decisionDigest", absent, "spec.decisionDigest", "Required value"),
		Entry("an empty decisionDigest", "spec.decisionDigest", "", "spec.decisionDigest", "at least 64 char"),
		Entry("a malformed decisionDigest", "spec.decisionDigest", hex('g'), "spec.decisionDigest", "should match"),
		Entry("a long decisionDigest", "spec.decisionDigest", long(81), "spec.decisionDigest", "may not be more than 80"),
		Entry("a malformed previousHash", "spec.previousHash", "abc", "spec.previousHash", "should match"),
		Entry("a long previousHash", "spec.previousHash", long(81), "spec.previousHash", "may not be more than 80"),
		Entry("a hold with an unknown capability", "spec.hold", with(hold(), "granted", []any{"*"}), "spec.hold.granted[0]", shape),
		Entry("a hold with 65 capabilities", "spec.hold", with(hold(), "granted", many(65, "host.v2.read:tasks")), "spec.hold.granted", "must have at most 64 items"),
		Entry("a hold without a state", "spec.hold", with(hold(), "state", absent), "spec.hold.state", "Required value"),
		Entry("a hold in a state that no row has", "spec.hold", with(hold(), "state", "Pending"), "spec.hold.state", `supported values: "Active"`),
		Entry("a hold with an expiry that a client can't decode", "spec.hold", with(hold(), "expiresAt", "2027-03-01T08:00:00Z"),
			"spec.hold.expiresAt", "should match"),
		Entry("a hold without a cause", "spec.hold", with(hold(), "cause", absent), "spec.hold.cause", "Required value"),
		Entry("a hold of another cause", "spec.hold", with(hold(), "cause", "Weather"), "spec.hold.cause", `supported values: "Human"`),
		Entry("a hold without an actor", "spec.hold", with(hold(), "actor", absent), "spec.hold.actor", "Required value"),
		Entry("a hold with an actor of no assurance", "spec.hold", with(hold(), "actor", document{}), "spec.hold.actor.assurance", "Required value"),
		Entry("a hold with an actor of another assurance", "spec.hold", with(hold(), "actor", document{"assurance": "Rumoured"}),
			"spec.hold.actor.assurance", `supported values: "Verified"`),
		Entry("a hold with an actor with a long name", "spec.hold", with(hold(), "actor", document{"assurance": "Claimed", "name": long(257)}),
			"spec.hold.actor.name", "may not be more than 256"),
		Entry("a hold with a long uid", "spec.hold", with(hold(), "uid", long(129)), "spec.hold.uid", "may not be more than 128"),
		Entry("a hold with a negative generation", "spec.hold", with(hold(), "generation", int64(-1)), "spec.hold.generation", "greater than or equal to 0"),
	)

	DescribeTable("bounds its vector", func(ctx SpecContext, part string, bound int) {
		accepted(ctx, with(event(), "spec.vector."+part, long(bound)))
		refused(ctx, with(event(), "spec.vector."+part, long(bound+1)), "spec.vector."+part, "may not be more than")
	},
		Entry(nil, "approvalUID", 128),
		Entry(nil, "installationUID", 128),
		Entry(nil, "version", 64),
		Entry(nil, "serviceAccountNamespace", 63),
		Entry(nil, "serviceAccountName", 253),
		Entry(nil, "serviceAccountUID", 128),
		Entry(nil, "namespaceUID", 128),
		Entry(nil, "workspaceNamespace", 63),
		Entry(nil, "workspaceNamespaceUID", 128),
		Entry(nil, "workspaceID", 63),
		Entry(nil, "humanPolicyVersion", 253),
	)

	It("has a digest or nothing in its vector", func(ctx SpecContext) {
		accepted(ctx, with(event(), "spec.vector.manifestDigest", digest('a')))
		refused(ctx, with(event(), "spec.vector.manifestDigest", long(67)), "spec.vector.manifestDigest", "should match")
		refused(ctx, with(event(), "spec.vector.manifestDigest", long(68)), "spec.vector.manifestDigest", "may not be more than 67")
	})

	DescribeTable("I4: never changes", func(ctx SpecContext, path string, value any) {
		o := create(ctx, event())
		Expect(edit(ctx, o, path, value)).To(beInvalid("spec", "an event never changes"))
	},
		Entry("a text", "spec.auditID", "another"),
		Entry("a time by a microsecond", "spec.time", "2027-01-01T08:00:00.000002Z"),
		Entry("a list", "spec.granted", []any{"host.v2.read:tasks"}),
		Entry("the order of a list", "spec.granted", []any{"host.v2.write:tasks", "host.v2.read:tasks"}),
		Entry("an element added twice", "spec.granted", []any{"host.v2.read:tasks", "host.v2.write:tasks", "host.v2.write:tasks"}),
		Entry("a field in depth", "spec.actor.assurance", "Verified"),
		Entry("a field that wasn't there", "spec.reason", "because"),
		Entry("a flag that wasn't there", "spec.unproven", true),
		Entry("a part that wasn't there", "spec.hold", document{"state": "Revoked", "cause": "Human", "actor": document{"assurance": "Unknown"}}),
		Entry("a field that vanishes", "spec.effective", absent),
	)

	It("I4: can be labelled and deleted", func(ctx SpecContext) {
		o := create(ctx, event())
		Expect(edit(ctx, o, "metadata.labels", document{"example.com/archived": "true"})).To(Succeed())
	})

	It("exists once for each revision", func(ctx SpecContext) {
		e := event()
		create(ctx, e)
		err := api.Create(ctx, object(with(object(e).DeepCopy().Object, "metadata.resourceVersion", absent)))
		Expect(apierrors.IsAlreadyExists(err)).To(BeTrue(), "%v", err)
	})

	It("has no status", func(ctx SpecContext) {
		err := api.Create(ctx, object(with(event(), "status", document{"state": "Active"})))
		Expect(apierrors.IsBadRequest(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring(`unknown field "status"`)))
		o := create(ctx, event())
		Expect(apierrors.IsNotFound(api.Status().Update(ctx, o.DeepCopy()))).To(BeTrue())
	})

	It("fits the API server at its largest", func(ctx SpecContext) {
		e := event()
		for _, list := range []string{"granted", "effective", "declared", "required"} {
			with(e, "spec."+list, many(64, "host.v2.write:managed_agent_conversations"))
		}
		with(e, "spec.reason", strings.Repeat("\U0001F6D1", 1024))
		o := create(ctx, e)
		Expect(edit(ctx, o, "spec.reason", "short")).To(beInvalid("spec", "an event never changes"))
	})
})
