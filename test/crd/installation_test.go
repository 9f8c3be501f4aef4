package crd_test

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("PluginInstallation", func() {
	DescribeTable("accepts", func(ctx SpecContext, path string, value any) {
		accepted(ctx, with(installation(), path, value))
	},
		Entry("what the docs show", "spec.suspend", false),
		Entry("being suspended", "spec.suspend", true),
		Entry("the longest pluginID", "spec.pluginID", long(128)),
		Entry("the shortest pluginID", "spec.pluginID", "7"),
		Entry("a pluginID with every character", "spec.pluginID", "a.b_c-9"),
		Entry("a pluginID longer than a UUID", "spec.pluginID", uuid.NewString()+"-notes"),
		Entry("a pluginID shorter than a UUID", "spec.pluginID", uuid.NewString()[1:]),
		Entry("the longest version", "spec.version", long(64)),
		Entry("a version with build data", "spec.version", "v2.0.0-rc.1+build~5"),
		Entry("no minHostVersion", "spec.manifest.minHostVersion", absent),
		Entry("two parts of minHostVersion", "spec.manifest.minHostVersion", "0.43"),
		Entry("three parts of minHostVersion", "spec.manifest.minHostVersion", "0.43.12"),
		Entry("the longest namespace", "spec.serviceAccountRef.namespace", long(63)),
		Entry("the longest ServiceAccount name", "spec.serviceAccountRef.name", long(253)),
		Entry("a dotted ServiceAccount name", "spec.serviceAccountRef.name", "a.b-c.d"),
		Entry("an acknowledged uid", "spec.serviceAccountRef.acceptUID", uuid.NewString()),
		Entry("the longest acceptUID", "spec.serviceAccountRef.acceptUID", long(128)),
		Entry("the longest reason", "spec.manifest.capabilities",
			[]any{document{"id": "host.v2.read:tasks", "reason": long(1024)}}),
		Entry("every v1 declaration", "spec.manifest.legacy", document{
			"apiRead":  []any{"tasks", "sessions", "workspaces", "workflows", "agent_profiles", "executor_profiles", "repositories", "messages", "interactions"},
			"apiWrite": []any{"tasks", "messages", "interactions"}, "state": true, "secrets": true, "agentInvoke": true,
		}),
		Entry("no v1 declaration", "spec.manifest.legacy", document{}),
		Entry("64 patterns of events", "spec.manifest.legacy.events", numbered(64, "task.n%d.*")),
		Entry("the longest pattern of events", "spec.manifest.legacy.events", []any{long(256), "*", "a.*.b_c-d"}),
		Entry("a schema of the configuration, whatever is in it", "spec.manifest.configSchema",
			document{"type": "object", "properties": document{"a": document{"x-kind": []any{"b", int64(1), nil}}}}),
		Entry("a configuration, whatever is in it", "spec.config", document{"a": []any{document{"b": nil}}, "c": 1.5}),
		Entry("64 members of the configuration", "spec.config", members(64)),
		Entry("32 secrets", "spec.secretRefs", secretRefs(32)),
		Entry("the longest names of a secret", "spec.secretRefs",
			[]any{document{"name": long(128), "secretName": long(253), "key": strings.Repeat("K", 253)}}),
		Entry("no compatibility", "spec.compatibility", document{}),
		Entry("exact writes without a guard", "spec.compatibility.implicitExpectNone", grant()),
		Entry("the longest names and reason of a grant", "spec.compatibility.implicitExpectNone", with(with(with(grant(),
			"approvedBy", long(256)), "approvedVia", long(256)), "reason", long(1024))),
	)

	It("grants the v1 writers that it declares, and no others", func(ctx SpecContext) {
		declared := func(resources ...any) document {
			return with(with(installation(), "spec.manifest.legacy", document{"apiWrite": resources}),
				"spec.compatibility.legacyWriters", []any{with(grant(), "resource", "tasks"), with(grant(), "resource", "messages")})
		}
		accepted(ctx, declared("tasks", "messages", "interactions"))
		const field, saying = "spec.compatibility.legacyWriters", "must be declared in spec.manifest.legacy.apiWrite"
		refused(ctx, declared("tasks"), field, saying)
		refused(ctx, with(declared("tasks", "messages"), "spec.manifest.legacy.apiWrite", absent), field, saying)
		refused(ctx, with(declared("tasks", "messages"), "spec.manifest.legacy", absent), field, saying)
		o := create(ctx, declared("tasks", "messages"))
		Expect(edit(ctx, o, "spec.manifest.legacy.apiWrite", []any{"messages"})).To(beInvalid(field, saying))
	})

	DescribeTable("refuses", func(ctx SpecContext, path string, value any, field, saying string) {
		refused(ctx, with(installation(), path, value), field, saying)
	},
		Entry("no spec", "spec", absent, "spec", "Required value"),
		Entry("no pluginID", "spec.pluginID", absent, "spec.pluginID", "Required value"),
		Entry("an empty pluginID", "spec.pluginID", "", "spec.pluginID", "at least 1 char"),
		Entry("a long pluginID", "spec.pluginID", long(129), "spec.pluginID", "may not be more than 128"),
		Entry("a pluginID in capitals", "spec.pluginID", "Standup", "spec.pluginID", "should match"),
		Entry("a pluginID that begins with a dot", "spec.pluginID", ".standup", "spec.pluginID", "should match"),
		Entry("a pluginID like an installation's ID", "spec.pluginID", uuid.NewString(), "spec.pluginID", "can't be a UUID"),
		Entry("a pluginID with a slash", "spec.pluginID", "a/b", "spec.pluginID", "should match"),
		Entry("no version", "spec.version", absent, "spec.version", "Required value"),
		Entry("an empty version", "spec.version", "", "spec.version", "at least 1 char"),
		Entry("a long version", "spec.version", long(65), "spec.version", "may not be more than 64"),
		Entry("a version with a blank", "spec.version", "1.0 beta", "spec.version", "should match"),
		Entry("a version with a newline", "spec.version", "1.0\n", "spec.version", "should match"),
		Entry("a version with a blank of another script", "spec.version", "1.0\u00a0beta", "spec.version", "should match"),
		Entry("no manifest", "spec.manifest", absent, "spec.manifest", "Required value"),
		Entry("a capability without an ID", "spec.manifest.capabilities", []any{document{"required": true}},
			"spec.manifest.capabilities[0].id", "Required value"),
		Entry("a long reason", "spec.manifest.capabilities", []any{document{"id": "host.v2.read:tasks", "reason": long(1025)}},
			"spec.manifest.capabilities[0].reason", "may not be more than 1024"),
		Entry("a reason with a NUL", "spec.manifest.capabilities", []any{document{"id": "host.v2.read:tasks", "reason": "a\x00b"}},
			"spec.manifest.capabilities[0].reason", "should match"),
		Entry("a minHostVersion that is empty", "spec.manifest.minHostVersion", "", "spec.manifest.minHostVersion", "at least 1 char"),
		Entry("a minHostVersion that is a range", "spec.manifest.minHostVersion", ">=0.43", "spec.manifest.minHostVersion", "should match"),
		Entry("a minHostVersion with a leading zero", "spec.manifest.minHostVersion", "0.043", "spec.manifest.minHostVersion", "should match"),
		Entry("a long minHostVersion", "spec.manifest.minHostVersion", long(33), "spec.manifest.minHostVersion", "may not be more than 32"),
		Entry("no serviceAccountRef", "spec.serviceAccountRef", absent, "spec.serviceAccountRef", "Required value"),
		Entry("no namespace", "spec.serviceAccountRef.namespace", absent, "spec.serviceAccountRef.namespace", "Required value"),
		Entry("an empty namespace", "spec.serviceAccountRef.namespace", "", "spec.serviceAccountRef.namespace", "at least 1 char"),
		Entry("a long namespace", "spec.serviceAccountRef.namespace", long(64), "spec.serviceAccountRef.namespace", "may not be more than 63"),
		Entry("a dotted namespace", "spec.serviceAccountRef.namespace", "a.b", "spec.serviceAccountRef.namespace", "should match"),
		Entry("no name", "spec.serviceAccountRef.name", absent, "spec.serviceAccountRef.name", "Required value"),
		Entry("an empty name", "spec.serviceAccountRef.name", "", "spec.serviceAccountRef.name", "at least 1 char"),
		Entry("a long name", "spec.serviceAccountRef.name", long(254), "spec.serviceAccountRef.name", "may not be more than 253"),
		Entry("a name with a colon", "spec.serviceAccountRef.name", "a:b", "spec.serviceAccountRef.name", "should match"),
		Entry("a long acceptUID", "spec.serviceAccountRef.acceptUID", long(129), "spec.serviceAccountRef.acceptUID", "may not be more than 128"),
		Entry("an acceptUID that is a pattern", "spec.serviceAccountRef.acceptUID", "*", "spec.serviceAccountRef.acceptUID", "should match"),
		Entry("suspend as a text", "spec.suspend", "true", "spec.suspend", "must be of type boolean"),
		Entry("a v1 read of nothing", "spec.manifest.legacy.apiRead", []any{"task_inbox"}, "spec.manifest.legacy.apiRead[0]", "Unsupported value"),
		Entry("a v1 read of everything", "spec.manifest.legacy.apiRead", []any{"*"}, "spec.manifest.legacy.apiRead[0]", "Unsupported value"),
		Entry("a v1 read twice", "spec.manifest.legacy.apiRead", []any{"tasks", "tasks"}, "spec.manifest.legacy.apiRead[1]", "Duplicate value"),
		Entry("ten v1 reads", "spec.manifest.legacy.apiRead", numbered(10, "tasks%d"), "spec.manifest.legacy.apiRead", "must have at most 9 items"),
		Entry("a v1 write of what it only reads", "spec.manifest.legacy.apiWrite", []any{"sessions"}, "spec.manifest.legacy.apiWrite[0]", "Unsupported value"),
		Entry("a v1 write twice", "spec.manifest.legacy.apiWrite", []any{"tasks", "tasks"}, "spec.manifest.legacy.apiWrite[1]", "Duplicate value"),
		Entry("four v1 writes", "spec.manifest.legacy.apiWrite", numbered(4, "tasks%d"), "spec.manifest.legacy.apiWrite", "must have at most 3 items"),
		Entry("65 patterns of events", "spec.manifest.legacy.events", numbered(65, "a%d"), "spec.manifest.legacy.events", "must have at most 64 items"),
		Entry("a pattern of events twice", "spec.manifest.legacy.events", []any{"a", "a"}, "spec.manifest.legacy.events[1]", "Duplicate value"),
		Entry("an empty pattern of events", "spec.manifest.legacy.events", []any{""}, "spec.manifest.legacy.events[0]", "at least 1 char"),
		Entry("a long pattern of events", "spec.manifest.legacy.events", []any{long(257)}, "spec.manifest.legacy.events[0]", "may not be more than 256"),
		Entry("a pattern of events that takes in all below", "spec.manifest.legacy.events", []any{"task.>"}, "spec.manifest.legacy.events[0]", "should match"),
		Entry("a pattern of events with a star in a word", "spec.manifest.legacy.events", []any{"task.c*"}, "spec.manifest.legacy.events[0]", "should match"),
		Entry("a pattern of events that ends in a dot", "spec.manifest.legacy.events", []any{"task."}, "spec.manifest.legacy.events[0]", "should match"),
		Entry("state as a text", "spec.manifest.legacy.state", "yes", "spec.manifest.legacy.state", "must be of type boolean"),
		Entry("secrets as a text", "spec.manifest.legacy.secrets", "yes", "spec.manifest.legacy.secrets", "must be of type boolean"),
		Entry("agentInvoke as a text", "spec.manifest.legacy.agentInvoke", "yes", "spec.manifest.legacy.agentInvoke", "must be of type boolean"),
		Entry("a schema that is none", "spec.manifest.configSchema", "object", "spec.manifest.configSchema", "must be of type object"),
		Entry("a schema of 65 members", "spec.manifest.configSchema", members(65), "spec.manifest.configSchema", "must have at most 64 items"),
		Entry("a configuration that is a list", "spec.config", []any{"a"}, "spec.config", "must be of type object"),
		Entry("65 members of the configuration", "spec.config", members(65), "spec.config", "must have at most 64 items"),
		Entry("33 secrets", "spec.secretRefs", secretRefs(33), "spec.secretRefs", "must have at most 32 items"),
		Entry("a secret twice", "spec.secretRefs", []any{secretRefs(1)[0], secretRefs(1)[0]}, "spec.secretRefs[1]", "Duplicate value"),
		Entry("a secret without a name", "spec.secretRefs", []any{with(secretRef(), "name", absent)}, "spec.secretRefs[0].name", "Required value"),
		Entry("a secret with an empty name", "spec.secretRefs", []any{with(secretRef(), "name", "")}, "spec.secretRefs[0].name", "at least 1 char"),
		Entry("a secret with a long name", "spec.secretRefs", []any{with(secretRef(), "name", long(129))}, "spec.secretRefs[0].name", "may not be more than 128"),
		Entry("a secret with a path for a name", "spec.secretRefs", []any{with(secretRef(), "name", "a/b")}, "spec.secretRefs[0].name", "should match"),
		Entry("a secret from nowhere", "spec.secretRefs", []any{with(secretRef(), "secretName", absent)}, "spec.secretRefs[0].secretName", "Required value"),
		Entry("a secret from an empty name", "spec.secretRefs", []any{with(secretRef(), "secretName", "")}, "spec.secretRefs[0].secretName", "at least 1 char"),
		Entry("a secret from a long name", "spec.secretRefs", []any{with(secretRef(), "secretName", long(254))}, "spec.secretRefs[0].secretName", "may not be more than 253"),
		Entry("a secret from another namespace", "spec.secretRefs", []any{with(secretRef(), "secretName", "other/tokens")}, "spec.secretRefs[0].secretName", "should match"),
		Entry("a secret without a key", "spec.secretRefs", []any{with(secretRef(), "key", absent)}, "spec.secretRefs[0].key", "Required value"),
		Entry("a secret with an empty key", "spec.secretRefs", []any{with(secretRef(), "key", "")}, "spec.secretRefs[0].key", "at least 1 char"),
		Entry("a secret with a long key", "spec.secretRefs", []any{with(secretRef(), "key", long(254))}, "spec.secretRefs[0].key", "may not be more than 253"),
		Entry("a secret with a key that no Secret has", "spec.secretRefs", []any{with(secretRef(), "key", "a b")}, "spec.secretRefs[0].key", "should match"),
		Entry("a writer of nothing", "spec.compatibility.legacyWriters", []any{grant()}, "spec.compatibility.legacyWriters[0].resource", "Required value"),
		Entry("a writer of what v1 doesn't write", "spec.compatibility.legacyWriters", []any{with(grant(), "resource", "sessions")},
			"spec.compatibility.legacyWriters[0].resource", "Unsupported value"),
		Entry("a writer twice", "spec.compatibility.legacyWriters", []any{with(grant(), "resource", "tasks"), with(grant(), "resource", "tasks")},
			"spec.compatibility.legacyWriters[1]", "Duplicate value"),
		Entry("four writers", "spec.compatibility.legacyWriters", []any{with(grant(), "resource", "a"), with(grant(), "resource", "b"),
			with(grant(), "resource", "c"), with(grant(), "resource", "d")}, "spec.compatibility.legacyWriters", "must have at most 3 items"),
		Entry("a grant to nobody", "spec.compatibility.implicitExpectNone", with(grant(), "installationID", absent),
			"spec.compatibility.implicitExpectNone.installationID", "Required value"),
		Entry("a grant to a name", "spec.compatibility.implicitExpectNone", with(grant(), "installationID", long(36)),
			"spec.compatibility.implicitExpectNone.installationID", "should match"),
		Entry("a grant to a short ID", "spec.compatibility.implicitExpectNone", with(grant(), "installationID", "3f0c9c1e"),
			"spec.compatibility.implicitExpectNone.installationID", "at least 36 char"),
		Entry("a grant to a long ID", "spec.compatibility.implicitExpectNone", with(grant(), "installationID", long(37)),
			"spec.compatibility.implicitExpectNone.installationID", "may not be more than 36"),
		Entry("a grant by nobody", "spec.compatibility.implicitExpectNone", with(grant(), "approvedBy", absent),
			"spec.compatibility.implicitExpectNone.approvedBy", "Required value"),
		Entry("a grant by an empty name", "spec.compatibility.implicitExpectNone", with(grant(), "approvedBy", ""),
			"spec.compatibility.implicitExpectNone.approvedBy", "at least 1 char"),
		Entry("a grant by a long name", "spec.compatibility.implicitExpectNone", with(grant(), "approvedBy", long(257)),
			"spec.compatibility.implicitExpectNone.approvedBy", "may not be more than 256"),
		Entry("a grant by a name with a line end", "spec.compatibility.implicitExpectNone", with(grant(), "approvedBy", "a\nb"),
			"spec.compatibility.implicitExpectNone.approvedBy", "should match"),
		Entry("a grant via a long name", "spec.compatibility.implicitExpectNone", with(grant(), "approvedVia", long(257)),
			"spec.compatibility.implicitExpectNone.approvedVia", "may not be more than 256"),
		Entry("a grant via a name with a tab", "spec.compatibility.implicitExpectNone", with(grant(), "approvedVia", "a\tb"),
			"spec.compatibility.implicitExpectNone.approvedVia", "should match"),
		Entry("a grant for a long reason", "spec.compatibility.implicitExpectNone", with(grant(), "reason", long(1025)),
			"spec.compatibility.implicitExpectNone.reason", "may not be more than 1024"),
		Entry("a grant for a reason with a NUL", "spec.compatibility.implicitExpectNone", with(grant(), "reason", "a\x00b"),
			"spec.compatibility.implicitExpectNone.reason", "should match"),
	)

	It("keeps its pluginID, and can be upgraded", func(ctx SpecContext) {
		o := create(ctx, installation())
		Expect(edit(ctx, o, "spec.pluginID", "another")).To(beInvalid("spec.pluginID", "pluginID is immutable"))
		Expect(edit(ctx, o, "spec.version", "1.5.0")).To(Succeed())
		Expect(edit(ctx, o, "spec.manifest.capabilities", []any{document{"id": "host.v2.read:messages"}})).To(Succeed())
		Expect(edit(ctx, o, "spec.serviceAccountRef.name", "another")).To(Succeed())
		Expect(edit(ctx, o, "spec.suspend", true)).To(Succeed())
	})

	It("never changes or loses its installation ID", func(ctx SpecContext) {
		o := create(ctx, installation())
		Expect(editStatus(ctx, o, "status.manifestDigest", digest('a'))).To(Succeed(), "a status without an ID")
		id := uuid.NewString()
		Expect(editStatus(ctx, o, "status.installationID", id)).To(Succeed(), "set once")
		Expect(editStatus(ctx, o, "status.manifestDigest", digest('b'))).To(Succeed(), "the same ID again")

		const field, saying = "status.installationID", "installationID can't change or vanish"
		Expect(editStatus(ctx, o, "status.installationID", uuid.NewString())).To(beInvalid(field, saying))
		Expect(editStatus(ctx, o, "status.installationID", absent)).To(beInvalid(field, saying))
		Expect(editStatus(ctx, o, "status", absent)).To(beInvalid(field, saying))
		Expect(editStatus(ctx, o, "status", document{})).To(beInvalid(field, saying))
		Expect(edit(ctx, o, "status", absent)).To(Succeed(), "an edit of the spec doesn't touch status")
		Expect(o.Object).To(HaveKeyWithValue("status", HaveKeyWithValue("installationID", id)))
	})

	It("takes status through its subresource only", func(ctx SpecContext) {
		o := create(ctx, with(installation(), "status.installationID", uuid.NewString()))
		Expect(o.Object).NotTo(HaveKey("status"))
		Expect(editStatus(ctx, o, "spec.suspend", true)).To(Succeed())
		Expect(o.Object["spec"]).NotTo(HaveKey("suspend"))
	})

	workspace := func(i int) document {
		return document{"workspaceID": fmt.Sprintf("w%d", i), "namespace": "ns", "revision": int64(3), "state": "Active",
			"effective": int64(1), "declared": int64(2)}
	}
	workspaces := func(n int) []any {
		list := make([]any, n)
		for i := range list {
			list[i] = workspace(i)
		}
		return list
	}

	DescribeTable("accepts in status", func(ctx SpecContext, path string, value any) {
		Expect(editStatus(ctx, create(ctx, installation()), path, value)).To(Succeed())
	},
		Entry("the ServiceAccount's uid", "status.serviceAccountUID", uuid.NewString()),
		Entry("the namespace's uid", "status.namespaceUID", uuid.NewString()),
		Entry("1000 workspaces", "status.workspaces", workspaces(1000)),
		Entry("more workspaces than it lists", "status.workspaceCount", int64(4000)),
	)

	DescribeTable("refuses in status", func(ctx SpecContext, path string, value any, field, saying string) {
		Expect(editStatus(ctx, create(ctx, installation()), path, value)).To(beInvalid(field, saying))
	},
		Entry("an ID that is no UUID", "status.installationID", "standup", "status.installationID", "should match"),
		Entry("an ID in capitals", "status.installationID", "3F0C9C1E-5A0E-4C53-8A6F-2F4B8F9D1C77", "status.installationID", "should match"),
		Entry("a long ID", "status.installationID", long(37), "status.installationID", "may not be more than 36"),
		Entry("a digest without its version", "status.manifestDigest", hex('a'), "status.manifestDigest", "should match"),
		Entry("a long digest", "status.manifestDigest", digest('a')+"a", "status.manifestDigest", "may not be more than 67"),
		Entry("a long uid of the ServiceAccount", "status.serviceAccountUID", long(129), "status.serviceAccountUID", "may not be more than 128"),
		Entry("a long uid of the namespace", "status.namespaceUID", long(129), "status.namespaceUID", "may not be more than 128"),
		Entry("a negative generation", "status.observedGeneration", int64(-1), "status.observedGeneration", "greater than or equal to 0"),
		Entry("a negative workspaceCount", "status.workspaceCount", int64(-1), "status.workspaceCount", "greater than or equal to 0"),
		Entry("1001 workspaces", "status.workspaces", workspaces(1001), "status.workspaces", "must have at most 1000 items"),
		Entry("a workspace twice", "status.workspaces", []any{workspace(1), workspace(1)}, "status.workspaces[1]", "Duplicate value"),
		Entry("a workspace without an ID", "status.workspaces", []any{with(workspace(1), "workspaceID", absent)},
			"status.workspaces[0].workspaceID", "Required value"),
		Entry("a workspace with an empty ID", "status.workspaces", []any{with(workspace(1), "workspaceID", "")},
			"status.workspaces[0].workspaceID", "at least 1 char"),
		Entry("a workspace with a malformed ID", "status.workspaces", []any{with(workspace(1), "workspaceID", "-a")},
			"status.workspaces[0].workspaceID", "should match"),
		Entry("a workspace with a long ID", "status.workspaces", []any{with(workspace(1), "workspaceID", long(64))},
			"status.workspaces[0].workspaceID", "may not be more than 63"),
		Entry("a workspace with a long namespace", "status.workspaces", []any{with(workspace(1), "namespace", long(64))},
			"status.workspaces[0].namespace", "may not be more than 63"),
		Entry("a workspace with a negative revision", "status.workspaces", []any{with(workspace(1), "revision", int64(-1))},
			"status.workspaces[0].revision", "greater than or equal to 0"),
		Entry("a workspace without a state", "status.workspaces", []any{with(workspace(1), "state", absent)},
			"status.workspaces[0].state", "Required value"),
		Entry("a workspace in another state", "status.workspaces", []any{with(workspace(1), "state", "Fine")},
			"status.workspaces[0].state", `supported values: "Active", "Revoked", "Expired", "Pending"`),
		Entry("a negative count of effective ones", "status.workspaces", []any{with(workspace(1), "effective", int64(-1))},
			"status.workspaces[0].effective", "greater than or equal to 0"),
		Entry("a negative count of declared ones", "status.workspaces", []any{with(workspace(1), "declared", int64(-1))},
			"status.workspaces[0].declared", "greater than or equal to 0"),
		Entry("65 effective ones", "status.workspaces", []any{with(workspace(1), "effective", int64(65))},
			"status.workspaces[0].effective", "less than or equal to 64"),
		Entry("65 declared ones", "status.workspaces", []any{with(workspace(1), "declared", int64(65))},
			"status.workspaces[0].declared", "less than or equal to 64"),
		Entry("a count that no client can decode", "status.workspaceCount", int64(1)<<40, "status", "format int32 in workspaceCount"),
		Entry("17 conditions", "status.conditions", conditions(17), "status.conditions", "must have at most 16 items"),
	)
})

func grant() document {
	return document{"installationID": "3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77", "approvedBy": "ada@example.com"}
}

func secretRef() document {
	return document{"name": "token", "secretName": "standup-tokens", "key": "token"}
}

func secretRefs(n int) []any {
	list := make([]any, n)
	for i := range list {
		list[i] = with(secretRef(), "name", fmt.Sprintf("_token%d", i))
	}
	return list
}

func numbered(n int, format string) []any {
	list := make([]any, n)
	for i := range list {
		list[i] = fmt.Sprintf(format, i)
	}
	return list
}

func members(n int) document {
	d := document{}
	for i := range n {
		d[fmt.Sprintf("m%d", i)] = "x"
	}
	return d
}

func conditions(n int) []any {
	list := make([]any, n)
	for i := range list {
		list[i] = document{"type": fmt.Sprintf("C%d", i), "status": "True", "reason": "R", "message": "",
			"lastTransitionTime": "2027-01-01T00:00:00Z"}
	}
	return list
}
