package install_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// TestChartRefusesBadValues: a typo must stop an install, not be ignored.
func TestChartRefusesBadValues(t *testing.T) {
	postgres := []string{"--set", "store.type=postgres", "--set", "store.postgres.existingSecret=dsn"}
	for _, c := range []struct {
		name   string
		args   []string
		saying string
	}{
		{"an unknown value", []string{"--set", "replica=3"}, "replica"},
		{"an unknown nested value", []string{"--set", "tls.existingSecretName=x"}, "existingSecretName"},
		{"an unknown store", []string{"--set", "store.type=mysql"}, "/store/type"},
		{"postgres without its Secret", []string{"--set", "store.type=postgres"}, "/store/postgres/existingSecret"},
		{"several replicas on SQLite", []string{"--set", "replicas=2"}, "/replicas"},
		{"no replica", append([]string{"--set", "replicas=0"}, postgres...), "/replicas"},
		{"half a replica", append([]string{"--set", "replicas=1.5"}, postgres...), "/replicas"},
		{"a tag that is none", []string{"--set", "image.tag=a:b"}, "/image/tag"},
		{"a digest that is none", []string{"--set", "image.digest=sha256:1"}, "/image/digest"},
		{"a number for text", []string{"--set", "podLabels.a=1"}, "/podLabels/a"},
		{"a name that is none", []string{"--set", "tls.existingSecret=No Name"}, "/tls/existingSecret"},
		{"cert-manager without an issuer", []string{"--set", "tls.certManager.enabled=true"}, "/tls/certManager/issuerRef/name"},
		{"two certificates", []string{
			"--set", "tls.certManager.enabled=true", "--set", "tls.certManager.issuerRef.name=a", "--set", "tls.existingSecret=b",
		}, "/tls/existingSecret"},
		{"a duration that is none", []string{"--set", "tls.certManager.duration=90d"}, "/tls/certManager/duration"},
		{"a plugin's Secrets without names", []string{"--set", "pluginSecrets[0].namespace=a"}, "names"},
		{"all Secrets of a plugin's namespace", []string{"--set", "pluginSecrets[0].namespace=a", "--set", "pluginSecrets[0].names={}"}, "/pluginSecrets/0/names"},
		{"a pattern of Secrets", []string{"--set", "pluginSecrets[0].namespace=a", "--set", "pluginSecrets[0].names={*}"}, "/pluginSecrets/0/names/0"},
		{"an argument that is no flag", []string{"--set", "extraArgs={rm -rf}"}, "/extraArgs/0"},
		{"a selector that is none", []string{"--set", "networkPolicy.pluginNamespaces.labels.a=b"}, "labels"},
		{"a cluster below the floor", []string{"--kube-version", "1.33.9"}, ">=1.34.0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, helm := range helms() {
				_, err := try(t, "", helm, append([]string{"template", "any-release", chartDir}, c.args...)...)
				if err == nil || !strings.Contains(err.Error(), c.saying) {
					t.Errorf("%s: want an error that names %s, got %v", helm, c.saying, err)
				}
			}
		})
	}
	if _, err := try(t, "", "helm", "template", "any-release", crdChartDir, "--set", "keeep=false"); err == nil ||
		!strings.Contains(err.Error(), "keeep") {
		t.Errorf("the chart of the CRDs takes an unknown value: %v", err)
	}
}

// helms are the binaries of both Helms.
func helms() []string { return []string{"helm", "helm4"} }

// free are the values that say anything, by design: their shape is Kubernetes' own.
var free = []string{
	"global", "podAnnotations", "podLabels", "nodeSelector", "tolerations[]", "affinity", "topologySpreadConstraints[]",
	"service.annotations", "resources.requests", "resources.limits", "networkPolicy.pluginNamespaces.matchLabels", "networkPolicy.monitoringNamespaces.matchLabels",
	"metrics.serviceMonitor.labels", "metrics.prometheusRule.labels", "metrics.dashboard.labels",
	"metrics.serviceMonitor.tlsConfig",
}

// TestSchemaKnowsEveryValue: each value of values.yaml is in the schema and, but for
// free ones, each object of the schema refuses what it doesn't know.
func TestSchemaKnowsEveryValue(t *testing.T) {
	for _, chart := range []string{chartDir, crdChartDir} {
		text, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
		if err != nil {
			t.Fatal(err)
		}
		var schema map[string]any
		if err := json.Unmarshal(text, &schema); err != nil {
			t.Fatal(err)
		}
		text, err = os.ReadFile(filepath.Join(chart, "values.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var values map[string]any
		if err := yaml.Unmarshal(text, &values); err != nil {
			t.Fatal(err)
		}
		definitions, _ := schema["definitions"].(map[string]any)
		for _, fault := range compare("", schema, values, definitions) {
			t.Errorf("%s: %s", filepath.Base(chart), fault)
		}
	}
}

func compare(path string, schema map[string]any, value any, definitions map[string]any) []string {
	if reference, ok := schema["$ref"].(string); ok {
		schema, _ = definitions[strings.TrimPrefix(reference, "#/definitions/")].(map[string]any)
	}
	var faults []string
	if items, ok := schema["items"].(map[string]any); ok {
		faults = append(faults, compare(path+"[]", items, nil, definitions)...)
	}
	if schema["type"] != "object" || slices.Contains(free, path) {
		return faults
	}
	if closed, ok := schema["additionalProperties"].(bool); !ok || closed {
		faults = append(faults, fmt.Sprintf("%q takes what it doesn't know", path))
	}
	properties, _ := schema["properties"].(map[string]any)
	fields, _ := value.(map[string]any)
	for name := range fields {
		if properties[name] == nil {
			faults = append(faults, fmt.Sprintf("the schema lacks %s.%s", path, name))
		}
	}
	for name, property := range properties {
		inner, _ := property.(map[string]any)
		faults = append(faults, compare(strings.TrimPrefix(path+"."+name, "."), inner, fields[name], definitions)...)
	}
	return faults
}

// TestBothHelmsRenderTheSame compares all but what is random, the Secrets' keys.
func TestBothHelmsRenderTheSame(t *testing.T) {
	for _, values := range valuesFiles(t) {
		var texts []string
		for _, helm := range helms() {
			objects := parse(t, tool(t, helm, "template", "any-release", chartDir, "--namespace", namespace,
				"--kube-version", kubernetes, "--values", values))
			var text strings.Builder
			for _, id := range slices.Sorted(maps.Keys(objects)) {
				if objects[id].GetKind() == "Secret" {
					delete(objects[id].Object, "data")
				}
				content, err := objects[id].MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				text.Write(content)
			}
			texts = append(texts, text.String())
		}
		if texts[0] != texts[1] {
			t.Errorf("with %s:\n%s\n%s", filepath.Base(values), texts[0], texts[1])
		}
	}
}

// TestReplicasFitTheStore: SQLite has one writer, and the old one must be gone before
// the new one starts; with PostgreSQL no moment is without a replica.
func TestReplicasFitTheStore(t *testing.T) {
	postgres := []string{"--set", "store.type=postgres", "--set", "store.postgres.existingSecret=dsn"}
	for _, c := range []struct {
		name      string
		args      []string
		replicas  int32
		strategy  string
		disrupted bool // a budget for disruptions
		spread    int
	}{
		{"sqlite", nil, 1, "Recreate", false, 0},
		{"one on postgres", postgres, 1, "RollingUpdate", false, 0},
		{"three on postgres", append([]string{"--set", "replicas=3"}, postgres...), 3, "RollingUpdate", true, 2},
		{"without a budget", append([]string{"--set", "replicas=3,podDisruptionBudget.enabled=false"}, postgres...), 3, "RollingUpdate", false, 2},
		{"a spread of one's own", []string{"--values", chartDir + "/ci/postgres-values.yaml"}, 3, "RollingUpdate", true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects := charted(t, c.args...)
			d := deployment(t, objects)
			if d.Spec.Replicas == nil || *d.Spec.Replicas != c.replicas || string(d.Spec.Strategy.Type) != c.strategy {
				t.Errorf("%v replicas with strategy %s, want %d with %s", d.Spec.Replicas, d.Spec.Strategy.Type, c.replicas, c.strategy)
			}
			if rolling := d.Spec.Strategy.RollingUpdate; rolling != nil && rolling.MaxUnavailable.IntValue() != 0 {
				t.Errorf("an update takes %s replicas away before it adds one", rolling.MaxUnavailable)
			}
			pods := metav1.LabelSelector{MatchLabels: d.Spec.Selector.MatchLabels}
			for _, constraint := range d.Spec.Template.Spec.TopologySpreadConstraints {
				if constraint.LabelSelector == nil || len(constraint.LabelSelector.MatchLabels) == 0 ||
					!within(constraint.LabelSelector.MatchLabels, d.Spec.Template.Labels) {
					t.Errorf("the spread over %s counts other pods", constraint.TopologyKey)
				}
			}
			if got := len(d.Spec.Template.Spec.TopologySpreadConstraints); got != c.spread {
				t.Errorf("%d rules of spreading, want %d", got, c.spread)
			}
			budget := objects["PodDisruptionBudget/"+host]
			if (budget != nil) != c.disrupted {
				t.Fatalf("has a PodDisruptionBudget: %v, want %v", budget != nil, c.disrupted)
			}
			if budget == nil {
				return
			}
			typed := convert[policyv1.PodDisruptionBudget](t, budget)
			if typed.Spec.MaxUnavailable.IntValue() != 1 || !maps.Equal(typed.Spec.Selector.MatchLabels, pods.MatchLabels) {
				t.Errorf("the budget is %+v", typed.Spec)
			}
		})
	}
}

func within(some, all map[string]string) bool {
	for key, value := range some {
		if all[key] != value {
			return false
		}
	}
	return true
}

// TestCertificateComesOneWay: given, issued or made, the pod mounts the Secret that
// comes that way, and no other is made.
func TestCertificateComesOneWay(t *testing.T) {
	for _, c := range []struct {
		name, args, mounted string
		made, issued        bool
	}{
		{"made", "", "plugin-host-tls", true, false},
		{"given", "tls.existingSecret=given", "given", false, false},
		{"issued", "tls.certManager.enabled=true,tls.certManager.issuerRef.name=ours", "plugin-host-tls-issued", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects := charted(t, "--set", c.args)
			var mounted string
			for _, volume := range deployment(t, objects).Spec.Template.Spec.Volumes {
				if volume.Name == "tls" {
					mounted = volume.Secret.SecretName
				}
			}
			if mounted != c.mounted {
				t.Errorf("mounts %q, want %q", mounted, c.mounted)
			}
			if made := objects["Secret/plugin-host-tls"] != nil; made != c.made {
				t.Errorf("makes a Secret: %v", made)
			}
			certificate := objects["Certificate/"+host]
			if (certificate != nil) != c.issued {
				t.Fatalf("asks for a Certificate: %v", certificate != nil)
			}
			if certificate != nil {
				spec, _ := certificate.Object["spec"].(map[string]any)
				names, _ := spec["dnsNames"].([]any)
				if spec["secretName"] != c.mounted || !slices.Contains(names, any(host+"."+namespace+".svc")) {
					t.Errorf("asks for %v", spec)
				}
			}
		})
	}
}

// TestNetworkPolicyNamesItsPorts: every rule is about a port that the pod has, and from
// somebody; a rule without either would open what it doesn't mean to.
func TestNetworkPolicyNamesItsPorts(t *testing.T) {
	objects := charted(t, "--values", chartDir+"/ci/postgres-values.yaml")
	ports := map[string]bool{}
	for _, port := range deployment(t, objects).Spec.Template.Spec.Containers[0].Ports {
		ports[port.Name] = true
	}
	rules := convert[networkingv1.NetworkPolicy](t, objects["NetworkPolicy/"+host]).Spec.Ingress
	if len(rules) == 0 {
		t.Error("nobody can connect")
	}
	for _, rule := range rules {
		if len(rule.From) == 0 || len(rule.Ports) == 0 {
			t.Errorf("the rule %+v is open to everybody, or to every port", rule)
		}
		for _, port := range rule.Ports {
			if !ports[port.Port.StrVal] || port.Protocol == nil || *port.Protocol != corev1.ProtocolTCP {
				t.Errorf("the policy opens %s, which the pod doesn't have", port.Port)
			}
		}
	}
}
