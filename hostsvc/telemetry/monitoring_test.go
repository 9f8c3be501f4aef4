package telemetry

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"
)

const (
	monitoring = "../../config/monitoring"
	runbooks   = "../../docs/runbooks"
)

// described are the metrics that the code registers, with their labels: ours,
// and controller-runtime's beside them.
func described(t *testing.T) map[string][]string {
	t.Helper()
	m, registry, _ := newTestMetrics(t)
	fill(t, m)
	found := map[string][]string{}
	shape := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	for _, collector := range []any{registry, crmetrics.Registry} {
		descs := make(chan *prometheus.Desc)
		go func() {
			defer close(descs)
			collector.(prometheus.Collector).Describe(descs)
		}()
		for desc := range descs {
			match := shape.FindStringSubmatch(desc.String())
			if match == nil {
				t.Fatalf("can't read %s", desc)
			}
			found[match[1]] = strings.FieldsFunc(match[2], func(r rune) bool { return r == ',' || r == ' ' })
		}
	}
	return found
}

// scraped are the labels that the scrape adds.
var scraped = []string{"namespace", "pod", "le"}

var (
	metricName = regexp.MustCompile(`\b(?:plugin_host|leader_election|controller_runtime|workqueue|rest_client)_[a-z0-9_]+`)
	selector   = regexp.MustCompile(`\b((?:plugin_host|leader_election)_[a-z0-9_]+)\{([^}]*)\}`)
	matcher    = regexp.MustCompile(`([a-z_]+)(?:=~|!=|=|!~)"[^"]*"`)
	grouping   = regexp.MustCompile(`\bby \(([^)]*)\)`)
)

// checkExpr reports what an expression names and the code doesn't have.
func checkExpr(t *testing.T, where, expr string, known map[string][]string) {
	t.Helper()
	names := metricName.FindAllString(expr, -1)
	if len(names) == 0 {
		t.Errorf("%s: %s names no metric", where, expr)
	}
	labels := slices.Clone(scraped)
	base := func(name string) (string, bool) {
		for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
			if short := strings.TrimSuffix(name, suffix); suffix == "" || short != name {
				if _, ok := known[short]; ok {
					return short, true
				}
			}
		}
		return name, false
	}
	for _, name := range names {
		short, ok := base(name)
		if !ok {
			t.Errorf("%s: there is no metric %s", where, name)
		}
		labels = append(labels, known[short]...)
	}
	for _, one := range selector.FindAllStringSubmatch(expr, -1) {
		short, _ := base(one[1])
		for _, match := range matcher.FindAllStringSubmatch(one[2], -1) {
			if !slices.Contains(append(slices.Clone(scraped), known[short]...), match[1]) {
				t.Errorf("%s: %s has no label %s", where, one[1], match[1])
			}
		}
	}
	for _, group := range grouping.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(group[1], ",") {
			if label = strings.TrimSpace(label); !slices.Contains(labels, label) {
				t.Errorf("%s: nothing in %s has a label %s", where, expr, label)
			}
		}
	}
	for _, pair := range []string{"()", "{}", "[]"} {
		if strings.Count(expr, pair[:1]) != strings.Count(expr, pair[1:]) {
			t.Errorf("%s: %s opens or closes too many of %s", where, expr, pair)
		}
	}
}

// rules is what a PrometheusRule says.
type rules struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata"`
	Spec       struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []struct {
				Alert       string            `json:"alert"`
				Expr        string            `json:"expr"`
				For         string            `json:"for"`
				Labels      map[string]string `json:"labels"`
				Annotations map[string]string `json:"annotations"`
			} `json:"rules"`
		} `json:"groups"`
	} `json:"spec"`
}

func TestEveryAlertNamesWhatThereIsAndHasItsRunbook(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(monitoring, "prometheus_rule.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var r rules
	if err := yaml.UnmarshalStrict(text, &r); err != nil {
		t.Fatal(err)
	}
	known := described(t)
	index, err := os.ReadFile(filepath.Join(runbooks, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	alerts := map[string]bool{"README": true}
	for _, group := range r.Spec.Groups {
		for _, rule := range group.Rules {
			checkExpr(t, rule.Alert, rule.Expr, known)
			if alerts[rule.Alert] {
				t.Errorf("%s is there twice", rule.Alert)
			}
			alerts[rule.Alert] = true
			if rule.For == "" || !slices.Contains([]string{"critical", "warning", "info"}, rule.Labels["severity"]) ||
				rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
				t.Errorf("%s lacks a duration, a severity, a summary or a description", rule.Alert)
			}
			page := rule.Alert + ".md"
			if !strings.HasSuffix(rule.Annotations["runbook_url"], "/docs/runbooks/"+page) {
				t.Errorf("%s names the runbook %q", rule.Alert, rule.Annotations["runbook_url"])
			}
			runbook, err := os.ReadFile(filepath.Join(runbooks, page))
			if err != nil {
				t.Error(err)
				continue
			}
			for _, part := range []string{"# " + rule.Alert + "\n", "\n## Meaning\n", "\n## Impact\n", "\n## Diagnosis\n", "\n## Action\n"} {
				if !bytes.Contains(runbook, []byte(part)) {
					t.Errorf("%s has no part %q", page, part)
				}
			}
			for _, name := range metricName.FindAllString(string(runbook), -1) {
				if !strings.HasPrefix(name, "plugin_host_") {
					continue // of the cluster's own
				}
				checkExpr(t, page, name, known)
			}
			if !bytes.Contains(index, []byte("("+page+")")) {
				t.Errorf("the index of the runbooks lacks %s", page)
			}
		}
	}
	pages, err := filepath.Glob(filepath.Join(runbooks, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if name := strings.TrimSuffix(filepath.Base(page), ".md"); !alerts[name] {
			t.Errorf("%s is the runbook of no alert", page)
		}
	}
}

func TestTheDashboardShowsWhatThereIs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(monitoring, "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			ID      int    `json:"id"`
			Title   string `json:"title"`
			Type    string `json:"type"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	known := described(t)
	ids := map[int]bool{}
	for _, panel := range dashboard.Panels {
		if ids[panel.ID] {
			t.Errorf("%s has the ID of another panel", panel.Title)
		}
		ids[panel.ID] = true
		if panel.Type != "row" && len(panel.Targets) == 0 {
			t.Errorf("%s shows nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			checkExpr(t, panel.Title, target.Expr, known)
		}
	}
}

func TestThePageOfMetricsIsTheCode(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (counter|gauge|histogram) \\| ([^|]*) \\|")
	documented := map[string][]string{}
	for _, match := range row.FindAllStringSubmatch(strings.ReplaceAll(string(text), "| |", "|  |"), -1) {
		documented[match[1]] = strings.FieldsFunc(match[3], func(r rune) bool { return strings.ContainsRune("`, ", r) })
	}
	for name, labels := range described(t) {
		if !strings.HasPrefix(name, "plugin_host_") {
			continue
		}
		if got, ok := documented[name]; !ok || !slices.Equal(got, labels) {
			t.Errorf("%s has the labels %v and the page says %v", name, labels, got)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("the page has %s, the code has not", name)
	}
}

// TestTheChartCarriesTheSame: its files are copies.
func TestTheChartCarriesTheSame(t *testing.T) {
	for _, name := range []string{"prometheus_rule.yaml", "dashboard.json"} {
		ours, err := os.ReadFile(filepath.Join(monitoring, name))
		if err != nil {
			t.Fatal(err)
		}
		chart, err := os.ReadFile(filepath.Join("../../charts/plugin-host/files/monitoring", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(ours, chart) {
			t.Errorf("the chart's %s is another", name)
		}
	}
}
