package crd_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
)

func workload(path string, value any) document {
	return with(with(installation(), "spec.workload", document{"image": "standup@sha256:1"}), "spec.workload"+path, value)
}

var _ = Describe("spec.workload of a PluginInstallation", func() {
	env := func(variable document) []any { return []any{variable} }

	DescribeTable("accepts", func(ctx SpecContext, path string, value any) {
		accepted(ctx, workload(path, value))
	},
		Entry("none", "", absent),
		Entry("a program", "", document{"image": "standup:1.4.0"}),
		Entry("the longest image", ".image", long(512)),
		Entry("an image with a package", ".package", "/plugin/standup.tar.gz"),
		Entry("a package in an image of its own", "", document{"packageImage": "p@sha256:1", "package": "/plugin/p.tar.gz"}),
		Entry("a binary in one", "", document{"packageImage": "p@sha256:1", "binary": "/plugin/p", "manifest": "/plugin/manifest.yaml"}),
		Entry("the longest path", ".package", "/"+long(511)),
		Entry("8 secrets for pulling", ".imagePullSecrets", numbered(8, "s%d")),
		Entry("64 arguments", ".args", numbered(64, "--n%d")),
		Entry("the longest argument", ".args", []any{strings.Repeat("ä", 1024)}),
		Entry("a variable", ".env", env(document{"name": "LOG_LEVEL", "value": "debug"})),
		Entry("an empty variable", ".env", env(document{"name": "_a", "value": ""})),
		Entry("the longest variable", ".env", env(document{"name": strings.Repeat("A", 128), "value": long(4096)})),
		Entry("a variable from a Secret", ".env", env(document{"name": "T", "secretKeyRef": document{"name": "a.b", "key": "t"}})),
		Entry("no replica", ".replicas", int64(0)),
		Entry("one replica", ".replicas", int64(1)),
		Entry("all resources", ".resources", document{
			"requests": document{"cpu": "50m", "memory": "64Mi", "ephemeralStorage": "1Gi"},
			"limits":   document{"cpu": "2", "memory": "999999999999Ti", "ephemeralStorage": "1G"},
		}),
		Entry("a claim", ".data", document{"claimName": "standup-data"}),
		Entry("a volume that ends with the pod", ".data", document{"sizeLimit": "200Mi"}),
		Entry("labels of a node", ".nodeSelector", document{"pool": "plugins", "empty": ""}),
		Entry("a platform", "", document{"image": "i", "package": "/p", "platform": document{"secretName": "standup-platform"}}),
		Entry("a platform of a binary", "", document{"image": "i", "binary": "/b", "manifest": "/m", "platform": document{"secretName": long(253)}}),
		Entry("a sandbox", ".runtimeClassName", "gvisor"),
	)

	DescribeTable("refuses", func(ctx SpecContext, path string, value any, field, saying string) {
		refused(ctx, workload(path, value), field, saying)
	},
		Entry("nothing to run", "", document{}, "spec.workload", "image or packageImage is required"),
		Entry("an image with white space", ".image", "a b", "spec.workload.image", "should match"),
		Entry("an image that is too long", ".image", long(513), "spec.workload.image", "Too long"),
		Entry("a package image and no path", "", document{"packageImage": "p"}, "spec.workload", "needs package or binary"),
		Entry("a package and a binary", "", document{"image": "i", "package": "/p", "binary": "/b", "manifest": "/m"}, "spec.workload", "exclude each other"),
		Entry("a binary alone", ".binary", "/b", "spec.workload", "binary and manifest go together"),
		Entry("a manifest alone", ".manifest", "/m", "spec.workload", "binary and manifest go together"),
		Entry("a relative path", ".package", "plugin.tar.gz", "spec.workload.package", "should match"),
		Entry("9 secrets for pulling", ".imagePullSecrets", numbered(9, "s%d"), "spec.workload.imagePullSecrets", "at most 8"),
		Entry("65 arguments", ".args", numbered(65, "--n%d"), "spec.workload.args", "at most 64"),
		Entry("a variable of the launcher's", ".env", env(document{"name": "KANDEV_PLUGIN_HOST_ADDRESS", "value": "x"}), "spec.workload.env[0].name", "the launcher's own"),
		Entry("a variable of go-plugin's", ".env", env(document{"name": "PLUGIN_MIN_PORT", "value": "1"}), "spec.workload.env[0].name", "the launcher's own"),
		Entry("a variable without a value", ".env", env(document{"name": "A"}), "spec.workload.env[0]", "one of value and secretKeyRef"),
		Entry("a variable with two", ".env", env(document{"name": "A", "value": "", "secretKeyRef": document{"name": "a", "key": "b"}}), "spec.workload.env[0]", "one of value and secretKeyRef"),
		Entry("a variable twice", ".env", []any{document{"name": "A", "value": "1"}, document{"name": "A", "value": "2"}}, "spec.workload.env[1]", "Duplicate"),
		Entry("two replicas", ".replicas", int64(2), "spec.workload.replicas", "less than or equal to 1"),
		Entry("no quantity", ".resources", document{"limits": document{"memory": "0"}}, "spec.workload.resources.limits.memory", "should match"),
		Entry("a quantity that no client can read", ".resources", document{"limits": document{"memory": "1e999999999999"}}, "spec.workload.resources.limits.memory", "should match"),
		Entry("both kinds of volume", ".data", document{"claimName": "a", "sizeLimit": "1Gi"}, "spec.workload.data", "exclude each other"),
		Entry("a platform and no launcher", ".platform", document{"secretName": "s"}, "spec.workload", "platform needs package or binary"),
		Entry("a platform without a Secret", "", document{"image": "i", "package": "/p", "platform": document{}}, "spec.workload.platform.secretName", "Required"),
		Entry("a Secret that has no such name", "", document{"image": "i", "package": "/p", "platform": document{"secretName": "A"}}, "spec.workload.platform.secretName", "should match"),
		Entry("a value that is no label", ".nodeSelector", document{"pool": "-"}, "spec.workload.nodeSelector.pool", "should match"),
	)
})
