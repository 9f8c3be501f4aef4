package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/controllers/kinds"
)

func newTool(in string) (*tool, *bytes.Buffer, *bytes.Buffer) {
	streams, stdin, out, errOut := genericiooptions.NewTestIOStreams()
	stdin.WriteString(in)
	return &tool{
		IOStreams: streams, flags: genericclioptions.NewConfigFlags(true),
		now: func() time.Time { return time.Date(2027, 1, 5, 9, 0, 0, 0, time.UTC) },
	}, out, errOut
}

// Every example of every help is a command line that its command takes.
func TestExamplesAreCommandLines(t *testing.T) {
	tool, _, _ := newTool("")
	root := tool.root()
	checked := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		for line := range strings.Lines(cmd.Example) {
			_, line, ok := strings.Cut(strings.TrimSpace(line), "kubectl capability ")
			if !ok || strings.HasPrefix(line, "#") {
				continue
			}
			line, _, _ = strings.Cut(line, " > ")
			found, rest, err := tool.root().Find(words(line))
			if err == nil {
				err = found.ParseFlags(rest)
			}
			if err == nil && found.Args != nil {
				err = found.Args(found, found.Flags().Args())
			}
			if err != nil {
				t.Errorf("%s: %q: %v", cmd.Name(), line, err)
			}
			checked++
		}
		if cmd.Parent() == root && cmd.Example == "" && cmd.Name() != "help" && cmd.Name() != "completion" {
			t.Errorf("%s has no example", cmd.Name())
		}
	}
	walk(root)
	if checked < 15 {
		t.Errorf("only %d examples were found", checked)
	}
}

// words splits a command line at spaces, but for those between quotes.
func words(line string) []string {
	var all []string
	quoted := false
	for _, field := range strings.FieldsFunc(line, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ' ' && !quoted
	}) {
		all = append(all, strings.Trim(field, `"`))
	}
	return all
}

// The page lists the exit codes of the program.
func TestReferenceListsTheExitCodes(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/kubectl-capability.md")
	if err != nil {
		t.Fatal(err)
	}
	for code, meaning := range map[int]string{
		exitDone: "nothing changes", exitFailed: "the command failed", exitNarrows: "something is taken away, or stops working",
		exitWidens: "something is granted, or starts working", exitNoEffect: "a manifest asks for more and does not get it", exitInvalid: "a manifest is invalid",
	} {
		if row := fmt.Sprintf("| %d | %s |", code, meaning); !strings.Contains(string(page), row) {
			t.Errorf("the page has no row %q", row)
		}
		tool, _, _ := newTool("")
		if line := fmt.Sprintf("%d  %s", code, meaning); !strings.Contains(tool.diffCommand().Long, line) {
			t.Errorf("the help of diff has no line %q", line)
		}
	}
	tool, _, _ := newTool("")
	for _, cmd := range tool.root().Commands() {
		if name := cmd.Name(); name != "help" && name != "completion" && !strings.Contains(string(page), "## "+name+"\n") {
			t.Errorf("the page has no section %s", name)
		}
	}
}

func TestExpiry(t *testing.T) {
	tool, _, _ := newTool("")
	for in, want := range map[string]time.Duration{"": 0, "90m": 90 * time.Minute, "30d": 720 * time.Hour, "1d12h": 36 * time.Hour} {
		got, err := tool.expiry(in)
		if err != nil || want == 0 && !got.IsZero() || want != 0 && !got.Equal(tool.now().Add(want)) {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"soon", "-1h", "30s", "d", "1.5d", "0", "3", "1d-2d"} {
		if got, err := tool.expiry(in); err == nil {
			t.Errorf("%q is %v", in, got)
		}
	}
}

func TestAQuestionIsAnsweredByYesAlone(t *testing.T) {
	for in, yes := range map[string]bool{"y\n": true, "YES\n": true, "Yes\r\n": true, "\n": false, "n\n": false, "": false, "yep\n": false} {
		tool, out, _ := newTool(in)
		err := tool.question(t.Context(), "Grant this?")
		if (err == nil) != yes {
			t.Errorf("%q: %v", in, err)
		}
		if out.String() != "Grant this? [y/N] " {
			t.Errorf("it asks %q", out.String())
		}
	}
	tool, _, _ := newTool("y\n")
	if err := tool.ask(t.Context(), "Grant this?", false); err == nil {
		t.Error("a pipe was asked")
	}
}

func TestColoursAreForTerminals(t *testing.T) {
	tool, out, _ := newTool("")
	if tool.paint(screenOf(out)).on {
		t.Error("a buffer is painted")
	}
	if !tool.paint(&screen{out, true}).on {
		t.Error("a terminal is not painted")
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if tool.paint(screenOf(file)).on {
		t.Error("a file is painted")
	}
	if got := (painter{on: true}).red("x"); got != "\x1b[31mx\x1b[0m" {
		t.Errorf("red is %q", got)
	}
	if clean("a\x1b[31mb\nc") != "a[31mbc" {
		t.Errorf("what an archive says reaches the terminal: %q", clean("a\x1b[31mb\nc"))
	}
}

func TestMarkdownTakesNothingForMarkup(t *testing.T) {
	d := difference{Changes: []change{{
		Name: "a|b", Namespace: "<img src=x>", Effect: effectWidens, Grants: []string{"host.v2.read:tasks"}, Notes: []string{"ping @everyone\n| `x` | [y](z)"},
	}}}
	var out bytes.Buffer
	d.markdown(&out)
	rows := 0
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "| a\\|b") {
			rows++
			if strings.Contains(line, "<img") || strings.Contains(line, "@everyone") || strings.Count(strings.ReplaceAll(line, `\|`, ""), "|") != 4 {
				t.Errorf("it says %s", line)
			}
		}
	}
	if rows != 1 {
		t.Errorf("it says\n%s", out.String())
	}
}

// A backslash of the stranger's must not undo the one that escapes.
func TestACellStaysACell(t *testing.T) {
	for in, want := range map[string]string{
		`a\| b`:               `a&#92;\| b`,
		`\[x](https://e.org)`: `&#92;\[x\](https:` + "\u200b" + `//e.org)`,
		"&#124;":              "&amp;#\u200b124;",
		"![x]":                `\!\[x\]`,
		"#1 www.e.org ~~x~~":  "#\u200b1 www\u200b.e.org \\~\\~x\\~\\~",
		"a\u202eb\x1b[2J":     `a&#92;u202eb&#92;u001b\[2J`,
		"host.v2.read:tasks":  "host.v2.read:tasks",
	} {
		if got := cell(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

func TestAScreenShowsAndObeysNothing(t *testing.T) {
	for name, c := range map[string]struct {
		colours  bool
		in, want string
	}{
		"text":            {true, "Grün\tüber\nalles\r\n", "Grün\tüber\nalles\r\n"},
		"our colours":     {true, "\x1b[31mNO\x1b[0m", "\x1b[31mNO\x1b[0m"},
		"in a file":       {false, "\x1b[31mNO\x1b[0m", `\u001b[31mNO\u001b[0m`},
		"a command":       {true, "a\x1b[2J\x1b]0;x\ab", `a\u001b[2J\u001b]0;x\u0007b`},
		"the same in C1":  {true, "a\u009b2Jb", `a\u009b2Jb`},
		"hidden text":     {true, "\x1b[8mx", `\u001b[8mx`},
		"over the line":   {true, "mallory\rada", `mallory\u000dada`},
		"backwards":       {true, "a\u202eb\u2066c", `a\u202eb\u2066c`},
		"half a sequence": {true, "\x1b", `\u001b`},
		"no UTF-8":        {true, "a\xffb", "a\ufffdb"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			n, err := (&screen{&out, c.colours}).Write([]byte(c.in))
			if err != nil || n != len(c.in) || out.String() != c.want {
				t.Errorf("%q (%d, %v), want %q", out.String(), n, err, c.want)
			}
		})
	}
	var out, errOut bytes.Buffer
	run(t.Context(), []string{"dif\x1b[2Jf"}, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}, time.Now)
	if said := out.String() + errOut.String(); strings.Contains(said, "\x1b") || !strings.Contains(said, "2Jf") {
		t.Errorf("the program says %q", said)
	}
	table(&out, [][]string{{"a\tb", "c\nforged"}})
	if got := out.String(); got != "a\\u0009b   c\\u000aforged\n" {
		t.Errorf("the table is %q", got)
	}
}

// What whoever applies a manifest would see, this tool sees: a list of any kind,
// aliases, merges, the last of two members.
func TestNoManifestHides(t *testing.T) {
	const spec = `
  installationName: standup
  installationID: 3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77
  manifestDigest: v1:0000000000000000000000000000000000000000000000000000000000000000
  workspaceID: payments
  approvedBy: mallory@example.com
`
	const head, meta = "apiVersion: plugins.kandev.ai/v1alpha1\nkind: PluginCapabilityApproval\n", "metadata: {name: standup, namespace: payments}\nspec:"
	plain := head + meta + spec
	indented := strings.ReplaceAll(strings.TrimSpace(plain), "\n", "\n  ")
	for name, c := range map[string]struct {
		text   string
		faults bool
	}{
		"plain":              {plain, false},
		"in a list":          {"apiVersion: v1\nkind: List\nitems:\n- " + indented + "\n", false},
		"in a list in one":   {"kind: List\nitems:\n- kind: AnythingList\n  items:\n  - " + strings.ReplaceAll(indented, "\n", "\n  ") + "\n", false},
		"by aliases":         {"a: &v plugins.kandev.ai/v1alpha1\nb: &k PluginCapabilityApproval\napiVersion: *v\nkind: *k\n" + meta + spec, true},
		"by a merge":         {"x: &x {apiVersion: plugins.kandev.ai/v1alpha1, kind: PluginCapabilityApproval}\n<<: *x\n" + meta + spec, true},
		"by escapes":         {strings.Replace(plain, "plugins.kandev.ai/v1alpha1", `"plugins.kande\u0076.ai/v1alpha1"`, 1), false},
		"behind another":     {"kind: ConfigMap\n" + plain, true},
		"behind no YAML":     {"a: {{ b }}: c\n---\n" + strings.Replace(plain, "plugins.kandev.ai/v1alpha1", `"plugins.kande\x76.ai/v1alpha1"`, 1), true},
		"with a forged name": {strings.ReplaceAll(plain, "standup", `"a\x1b[2Jb"`), true},
	} {
		t.Run(name, func(t *testing.T) {
			m := parseManifests([]source{{"f.yaml", []byte(c.text)}}, "")
			if (len(m.faults) > 0) != c.faults || !c.faults && len(m.documents) != 1 {
				t.Errorf("%d documents, faults %v", len(m.documents), m.faults)
			}
		})
	}
	if _, err := readSources(strings.NewReader(strings.Repeat("#", maxFileBytes)+"\n"+plain), "-"); err == nil {
		t.Error("the end of the standard input is left out")
	}
}

func TestTheCodeIsTheHighest(t *testing.T) {
	narrows, widens := change{Effect: effectNarrows}, change{Effect: effectWidens}
	asks := change{Effect: effectNoEffect, Asks: &asking{}}
	for name, c := range map[string]struct {
		d    difference
		want int
	}{
		"nothing":             {difference{Changes: []change{{Effect: effectNone, Act: "1-aaaaaa"}}}, exitDone},
		"narrows":             {difference{Changes: []change{narrows, {Effect: effectNone}}}, exitNarrows},
		"both":                {difference{Changes: []change{widens, narrows}}, exitWidens},
		"asks":                {difference{Changes: []change{asks, widens}}, exitNoEffect},
		"narrows and asks":    {difference{Changes: []change{{Effect: effectNarrows, Asks: &asking{}}}}, exitNoEffect},
		"invalid before asks": {difference{Changes: []change{asks}, Invalid: []fault{{}}}, exitInvalid},
	} {
		if got := c.d.code(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestHolders(t *testing.T) {
	rule := func(verbs, group, resources string, names ...string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{Verbs: strings.Split(verbs, ","), APIGroups: []string{group}, Resources: strings.Split(resources, ","), ResourceNames: names}}
	}
	for name, c := range map[string]struct {
		rules []rbacv1.PolicyRule
		does  string
	}{
		"reads":             {rule("get,list", "", "pods"), ""},
		"pods":              {rule("create", "", "pods"), "create pods"},
		"exec by websocket": {rule("get", "", "pods/exec"), "exec into pods"},
		"every exec":        {rule("create", "", "*/exec"), "exec into pods"},
		"its token":         {rule("create", "", "serviceaccounts/token", "standup"), "mint tokens"},
		"another's token":   {rule("create", "", "serviceaccounts/token", "other"), ""},
		"another group":     {rule("*", "example.com", "*"), ""},
		"jobs":              {rule("patch", "batch", "jobs"), "create or change workloads"},
		"everything of the core": {rule("*", "", "*"),
			"add containers to pods, attach to pods, change pods, create or change workloads, create pods, exec into pods, mint tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			people, own := holders([]held{{"User eve", c.rules}, {"User system:kube-scheduler", c.rules}, {"ServiceAccount kube-system/job-controller", c.rules}}, becoming("standup"))
			got := ""
			if len(people) == 1 {
				got = strings.Join(people[0].does, ", ")
			}
			if got != c.does || c.does == "" && own != 0 || c.does != "" && own != 2 {
				t.Errorf("%q, and %d of Kubernetes' own; want %q", got, own, c.does)
			}
		})
	}
	for _, subject := range []string{"Group system:masters", "Group system:authenticated", "User system:serviceaccount:ci:runner", "ServiceAccount ci/runner", "Group system:serviceaccounts:ci"} {
		if isComponent(subject) {
			t.Errorf("%s is taken for a part of Kubernetes", subject)
		}
	}
}

func TestRewriteKeepsWhatAHumanWrote(t *testing.T) {
	text := `# one
kind: PluginCapabilityApproval
apiVersion: plugins.kandev.ai/v1alpha1
metadata: {name: a, namespace: payments}
spec:
    installationName: a
    # keep me
    installationID: "11111111-2222-3333-4444-555555555555" # old
    manifestDigest: v1:` + strings.Repeat("0", 64) + `
    workspaceID: w
    approvedBy: x
`
	m := parseManifests([]source{{"f", []byte(text)}}, "")
	if len(m.documents) != 1 {
		t.Fatalf("%+v", m.faults)
	}
	got, err := rewrite(text, []edit{
		{m.documents[0], "installationID", "99999999-2222-3333-4444-555555555555"},
		{m.documents[0], "manifestDigest", "v1:" + strings.Repeat("1", 64)},
		{m.documents[0], "supersedesAct", "3-aaaaaa"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer("11111111-", "99999999-", strings.Repeat("0", 64), strings.Repeat("1", 64),
		"    installationName: a\n", "    supersedesAct: \"3-aaaaaa\"\n    installationName: a\n").Replace(text)
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for name, text := range map[string]string{
		"folded":      "spec:\n  installationID: >-\n    1111\n",
		"two lines":   "spec:\n  installationID: \"11\n    11\"\n",
		"all on one":  "spec: {approvedBy: x}\n",
		"an anchor":   "spec:\n  installationID: &id 1111\n",
		"a spec less": "spec: {}\n",
	} {
		var m manifests
		m.parse(source{"f", []byte(text)}, "")
		d := document{file: "f", node: nodeOf(t, text)}
		if got, err := rewrite(text, []edit{{d, "installationID", "x"}}); err == nil {
			t.Errorf("%s: rewritten as %q", name, got)
		}
	}
}

func TestLinesOfFields(t *testing.T) {
	node := nodeOf(t, "a: 1\nspec:\n  x: 1\n  rules:\n  - class: A\n  -\n    class: B\n")
	for field, want := range map[string]int{"": 1, "a": 1, "spec": 2, "spec.x": 3, "spec.rules": 4, "spec.rules[0].class": 5, "spec.rules[1].class": 7, "spec.nothing": 2, "nothing": 1, "spec.rules[9]": 4} {
		if got := lineOf(node, field); got != want {
			t.Errorf("%q is on line %d, want %d", field, got, want)
		}
	}
}

func TestKeepers(t *testing.T) {
	fields := func(manager string, operation metav1.ManagedFieldsOperationType, raw string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, FieldsV1: metav1.NewFieldsV1(raw)}
	}
	set := `{"f:spec":{"f:capabilities":{".":{},"v:\"host.v2.read:tasks\"":{}}}}`
	list := `{"f:spec":{"f:manifest":{"f:capabilities":{"k:{\"id\":\"host.v2.read:tasks\"}":{".":{},"f:id":{}}}}}}`
	for name, c := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		path    []string
		keeps   string
	}{
		"who applies":       {[]metav1.ManagedFieldsEntry{fields("flux", metav1.ManagedFieldsOperationApply, set)}, []string{"spec", "capabilities"}, ""},
		"an update":         {[]metav1.ManagedFieldsEntry{fields("edit", metav1.ManagedFieldsOperationUpdate, set)}, []string{"spec", "capabilities"}, `"edit"`},
		"two who apply":     {[]metav1.ManagedFieldsEntry{fields("flux", metav1.ManagedFieldsOperationApply, set), fields("argo", metav1.ManagedFieldsOperationApply, set)}, []string{"spec", "capabilities"}, `"flux"`},
		"a list by id":      {[]metav1.ManagedFieldsEntry{fields("edit", metav1.ManagedFieldsOperationUpdate, list)}, []string{"spec", "manifest", "capabilities"}, `"edit"`},
		"no such element":   {[]metav1.ManagedFieldsEntry{fields("edit", metav1.ManagedFieldsOperationUpdate, `{"f:spec":{}}`)}, []string{"spec", "capabilities"}, ""},
		"what isn't fields": {[]metav1.ManagedFieldsEntry{fields("edit", metav1.ManagedFieldsOperationUpdate, `[]`)}, []string{"spec", "capabilities"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := &v1alpha1.PluginCapabilityApproval{ObjectMeta: metav1.ObjectMeta{ManagedFields: c.entries}}
			got := strings.Join(keepers(o, []string{"host.v2.read:tasks"}, c.path...), ";")
			if (got == "") != (c.keeps == "") || !strings.Contains(got, c.keeps) {
				t.Errorf("got %q, want %q", got, c.keeps)
			}
		})
	}
}

const shipped = `id: kandev.standup
version: 1.4.0
min_kandev_version: v0.91
capabilities:
  api_read: [tasks, change_requests]
  api_write: [tasks, execution]
  state: false
  events: []
webhooks:
- key: x
`

func TestTranslate(t *testing.T) {
	p, err := translate("manifest.yaml", []byte(shipped), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := contract.SetOf(contract.ReadTasks, contract.ReadChangeRequests, contract.WriteTasks, contract.WriteTaskRelations,
		contract.WriteTaskRuns, contract.WriteSessions, contract.WriteTaskTransitions)
	if p.declared() != want || p.pluginID != "kandev.standup" || p.version != "1.4.0" || p.minHostVersion != "0.91" || !slices.Equal(p.ignored, []string{"webhooks"}) {
		t.Errorf("got %v %+v", p.declared(), p)
	}
	if err := p.require([]string{"host.v2.read:messages"}); err == nil {
		t.Error("it requires what it doesn't declare")
	}
	if err := p.require([]string{"host.v2.write:tasks"}); err != nil || p.spec().Manifest.Capabilities[2].ID != "host.v2.write:tasks" || !p.spec().Manifest.Capabilities[2].Required {
		t.Errorf("%v: %+v", err, p.spec().Manifest.Capabilities)
	}
	for name, c := range map[string]struct {
		old, text, says string
		without         []string
		left            string
	}{
		"an unknown field":      {"webhooks:", "permissions:", "manifest.yaml:9: permissions: is no field", []string{"permissions"}, "permissions"},
		"an unknown capability": {"state: false", "root: true", "manifest.yaml:7: capabilities.root: is no capability", []string{"capabilities.root"}, "capabilities.root"},
		"user state":            {"state: false", "user_state: true", "manifest.yaml:7: capabilities.user_state: no capability", []string{"capabilities.user_state"}, "capabilities.user_state"},
		"state of its own kind": {"state: false", "state: sometimes", "manifest.yaml:7: capabilities.state: is neither", []string{"capabilities.state"}, "capabilities.state"},
		"an event of all":       {"events: []", "events: [task.>]", "manifest.yaml:8: capabilities.events.task.>: is no pattern", []string{"capabilities.events.task.>"}, "capabilities.events.task.>"},
		"events as a text":      {"events: []", "events: task.*", "manifest.yaml:8: capabilities.events: is no list", nil, ""},
		"a schema that is none": {"webhooks:", "config_schema: {properties: {a: {type: text}}}\nwebhooks:", "manifest.yaml:9: config_schema.properties.a.type: must be one of", []string{"config_schema"}, "config_schema"},
		"a schema of a word":    {"webhooks:", "config_schema: {$ref: x}\nwebhooks:", "manifest.yaml:9: config_schema.$ref: is a keyword", []string{"config_schema"}, "config_schema"},
		"a name without an ID":  {"change_requests", "usage", "manifest.yaml:5: capabilities.api_read.usage: no capability", []string{"capabilities.api_read.usage"}, "capabilities.api_read.usage"},
		"a wildcard":            {"[tasks, execution]", "['*']", "capabilities.api_write.*: no capability", nil, ""},
		"no list":               {"[tasks, execution]", "tasks", "manifest.yaml:6: capabilities.api_write: is no list", nil, ""},
		"a bad ID":              {"kandev.standup", "Standup", `manifest.yaml:1: id: "Standup"`, nil, ""},
		"a bad version":         {"1.4.0", "1 4", `manifest.yaml:2: version: "1 4"`, nil, ""},
		"a development version": {"v0.91", "dev", `manifest.yaml:3: min_kandev_version: "dev"`, nil, ""},
		"no version":            {"version: 1.4.0\n", "", "version: is missing", nil, ""},
		"twice":                 {"webhooks:", "id: other.id\nwebhooks:", "manifest.yaml:9: id: stands there twice", nil, ""},
		"a list twice":          {"  state: false", "  api_read: [sessions]", "manifest.yaml:7: capabilities.api_read: stands there twice", nil, ""},
		"an alias of a name":    {"[tasks, execution]", "[&tasks execution, *tasks]", "manifest.yaml:6: capabilities.api_write: holds something that is no name", nil, ""},
		"an alias of a field":   {"version: 1.4.0", "ui: &v 2.0.0\nversion: *v", "manifest.yaml:3: version: is an alias", nil, ""},
		"no mapping":            {shipped, "- a\n", "it is no manifest", nil, ""},
		"no YAML":               {shipped, "a: [\n", "it is no YAML", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(shipped, c.old, c.text, 1)
			_, err := translate("manifest.yaml", []byte(text), nil)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
			if c.without == nil {
				return
			}
			p, err := translate("manifest.yaml", []byte(text), c.without)
			if err != nil || !slices.Equal(p.leftOut, []string{c.left}) {
				t.Errorf("without it: %v, left out %q", err, p.leftOut)
			}
		})
	}
	if _, err := translate("manifest.yaml", []byte(shipped), []string{"capabilities.secrets"}); err == nil {
		t.Error("it left out what isn't there")
	}
}

// The words of a package that v1 methods ask for are declared for those, whether or
// not a capability has the same word.
func TestTranslateForV1(t *testing.T) {
	const text = `id: kandev.standup
version: 1.4.0
capabilities:
  api_read: [tasks, agent_profiles, change_requests, tasks]
  api_write: [interactions, tasks, execution]
  events: [task.*, "plugin.kandev.standup.done", task.*]
  state: true
  secrets: true
  agent_invoke: true
config_schema:
  type: object
  properties:
    days: {type: integer, minimum: 1}
    token: {type: string, secret: true}
`
	p, err := translate("manifest.yaml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	spec := p.spec()
	want := &v1alpha1.LegacyManifest{
		APIRead: []v1alpha1.LegacyReadResource{"tasks", "agent_profiles"}, APIWrite: []v1alpha1.LegacyWriteResource{"interactions", "tasks"},
		Events: []string{"task.*", "plugin.kandev.standup.done"}, State: true, Secrets: true, AgentInvoke: true,
	}
	if !reflect.DeepEqual(spec.Manifest.Legacy, want) {
		t.Errorf("got %+v, want %+v", spec.Manifest.Legacy, want)
	}
	if p.declared() != contract.SetOf(contract.ReadTasks, contract.ReadChangeRequests, contract.WriteTasks, contract.WriteTaskRelations,
		contract.WriteTaskRuns, contract.WriteSessions, contract.WriteTaskTransitions) {
		t.Errorf("capabilities %v", p.declared())
	}
	if got := string(spec.Manifest.ConfigSchema.Raw); got != `{"properties":{"days":{"minimum":1,"type":"integer"},"token":{"secret":true,"type":"string"}},"type":"object"}` {
		t.Errorf("schema %s", got)
	}
	plain, err := translate("manifest.yaml", []byte("id: a\nversion: '1'\ncapabilities: {api_read: [change_requests], state: false}\n"), nil)
	if err != nil || plain.spec().Manifest.Legacy != nil || plain.spec().Manifest.ConfigSchema != nil {
		t.Errorf("a package without v1: %+v, %v", plain.spec(), err)
	}
}

func TestV1OfAnInstallation(t *testing.T) {
	const id, other = "3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77", "00000000-0000-4000-8000-000000000000"
	o := &v1alpha1.PluginInstallation{}
	if rows := legacyRows(o); rows != nil {
		t.Errorf("without v1: %v", rows)
	}
	o.Spec.PluginID, o.Status.InstallationID = "kandev.standup", id
	o.Spec.Manifest.Legacy = &v1alpha1.LegacyManifest{
		APIRead: []v1alpha1.LegacyReadResource{"tasks"}, APIWrite: v1alpha1.LegacyWriteResources(), Events: []string{"task.*"},
	}
	grant := func(id string) v1alpha1.CompatibilityGrant {
		return v1alpha1.CompatibilityGrant{InstallationID: id, ApprovedBy: "ada"}
	}
	o.Spec.Compatibility = &v1alpha1.Compatibility{
		LegacyWriters:      []v1alpha1.LegacyWriter{{Resource: "tasks", CompatibilityGrant: grant(id)}, {Resource: "messages", CompatibilityGrant: grant(other)}},
		ImplicitExpectNone: new(grant(other)),
	}
	want := [][]string{
		{"BY V1, IN EVERY WORKSPACE", "WORKS", "WHY NOT"}, {"api_read:tasks", "yes", ""}, {"api_write:tasks", "yes", ""},
		{"api_write:messages", "no", "granted to another installation"}, {"api_write:interactions", "no", "not granted"},
		{"event task.*", "yes", ""}, {"compat.implicitExpectNone", "no", "granted to another installation"},
	}
	for _, row := range legacyRows(o)[1:] {
		if row[1] != "no" || row[2] != notLookedAt {
			t.Errorf("before the Host has looked at it: %v", row)
		}
	}
	accept(o, v1alpha1.ReasonServiceAccountInWorkspace)
	for _, row := range legacyRows(o)[1:] {
		if row[1] != "no" || row[2] != v1alpha1.ReasonServiceAccountInWorkspace {
			t.Errorf("with an account that isn't accepted: %v", row)
		}
	}
	accept(o, v1alpha1.ReasonConfigInvalid) // it takes nothing away
	if rows := legacyRows(o); !reflect.DeepEqual(rows, want) {
		t.Errorf("got %v", rows)
	}
	if lacks := lacksWriters(o); !slices.Equal(lacks, []v1alpha1.LegacyWriteResource{"messages", "interactions"}) {
		t.Errorf("lacks %v", lacks)
	}
	notVerified(o, "spec.compatibility.legacyWriters[tasks]")
	want[2] = []string{"api_write:tasks", "no", "NotVerified"}
	if rows := legacyRows(o); !reflect.DeepEqual(rows, want) {
		t.Errorf("not verified: %v", rows)
	}
	o.Generation++
	want[2] = []string{"api_write:tasks", "no", "the Host has not looked at it yet"}
	if rows := legacyRows(o); !reflect.DeepEqual(rows, want) {
		t.Errorf("not looked at: %v", rows)
	}
	o.Generation--
	o.Spec.Manifest.Legacy.APIWrite = []v1alpha1.LegacyWriteResource{"messages"}
	if gone := keepDeclared(o); !slices.Equal(gone, []string{"legacy.write:tasks"}) || len(o.Spec.Compatibility.LegacyWriters) != 1 {
		t.Errorf("gone %v, left %+v", gone, o.Spec.Compatibility.LegacyWriters)
	}
	o.Spec.Manifest.MinHostVersion = "999"
	for _, row := range legacyRows(o)[1:] {
		if row[1] != "no" || row[2] != "HostVersionUnsupported" {
			t.Errorf("for a newer Host: %v", row)
		}
	}
	if works := worksByV1(o, nil); works != nil {
		t.Errorf("for a newer Host works %v", works)
	}
	o.Spec.Suspend = true
	for _, row := range legacyRows(o)[1:] {
		if row[1] != "no" || row[2] != "Suspended" {
			t.Errorf("suspended: %v", row)
		}
	}
}

// accept gives an installation its condition Accepted, False for a reason.
func accept(o *v1alpha1.PluginInstallation, reason string) {
	o.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: reason}}
}

// notVerified says of an installation what the controllers do of grants that nobody has
// checked, beside what they say already.
func notVerified(o *v1alpha1.PluginInstallation, fields ...string) {
	o.Status.Conditions = append(o.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReviewRequired, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNotVerified,
		Message: kinds.UnverifiedMessage(fields), ObservedGeneration: o.Generation,
	})
}

func TestNotesOnAnInstallation(t *testing.T) {
	o := &v1alpha1.PluginInstallation{}
	accept(o, v1alpha1.ReasonConfigInvalid)
	if notes := notesOn(o); notes != nil {
		t.Errorf("nothing waits: %q", notes)
	}
	notVerified(o, "spec.compatibility.implicitExpectNone")
	o.Status.Conditions = append(o.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionConfigReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSecretsUnresolved, Message: "spec.secretRefs[token]: why",
	})
	notes := notesOn(o)
	if len(notes) != 2 || !strings.Contains(notes[0], "ReviewRequired (NotVerified): spec.compatibility.implicitExpectNone") ||
		notes[1] != "the installation's ConfigReady (SecretsUnresolved): spec.secretRefs[token]: why" {
		t.Errorf("notes %q", notes)
	}
	tool, out, _ := newTool("")
	tool.printExplanation(explanation{Notes: []string{"one\nline"}})
	if !strings.Contains(out.String(), `Note: one\u000aline`) {
		t.Errorf("printed: %q", out)
	}
}

// What a manifest says stays in its line: none can be made up.
func TestDiffKeepsWhatAStrangerWroteInItsLine(t *testing.T) {
	d := difference{
		Installations: []installationChange{{Name: "a\nb", Kind: "Changed", Version: &transition{"1", "2\nNothing changes."}}},
		Changes:       []change{{Name: "c\nd", Effect: effectNone, Notes: []string{"e\nf"}}},
		Notes:         []string{"g\nh"},
	}
	var out bytes.Buffer
	d.text(&out, painter{})
	for _, line := range strings.Split(out.String(), "\n") {
		switch line {
		case "b", "d", "f", "h":
			t.Errorf("a line of its own: %q", line)
		}
		if strings.HasPrefix(line, "Nothing changes.") && !strings.HasSuffix(strings.TrimSpace(out.String()), line) {
			t.Errorf("made up: %q", line)
		}
	}
	if n := strings.Count(out.String(), `\u000a`); n != 5 {
		t.Errorf("%d line ends are shown in %q", n, out.String())
	}
}

// Who writes a grant anew that nobody has checked widens, and who lets it stand doesn't.
func TestAGrantThatNobodyCheckedIsNoneInADiff(t *testing.T) {
	grant := v1alpha1.CompatibilityGrant{InstallationID: "3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77", ApprovedBy: "ada"}
	live := &v1alpha1.PluginInstallation{}
	live.Spec.PluginID = "kandev.standup"
	live.UID, live.Status.InstallationID = "u", grant.InstallationID
	live.Spec.Manifest.Legacy = &v1alpha1.LegacyManifest{APIWrite: []v1alpha1.LegacyWriteResource{"tasks", "messages"}}
	live.Spec.Compatibility = &v1alpha1.Compatibility{
		LegacyWriters:      []v1alpha1.LegacyWriter{{Resource: "tasks", CompatibilityGrant: grant}, {Resource: "messages", CompatibilityGrant: grant}},
		ImplicitExpectNone: &grant,
	}
	notVerified(live, "spec.compatibility.legacyWriters[tasks]", "spec.compatibility.implicitExpectNone")
	if got := worksByV1(live, kinds.UnverifiedGrants(live)); !slices.Equal(got, []string{"api_write:messages"}) {
		t.Errorf("works %q", got)
	}
	next := live.DeepCopy()
	next.Spec.Version = "2"
	if got := stillUnverified(live, next); !slices.Equal(got, kinds.UnverifiedGrants(live)) || len(got) != 2 {
		t.Errorf("as it stood: %q", got)
	}
	next.Spec.Compatibility.LegacyWriters[0].Reason = "written anew"
	if got := stillUnverified(live, next); !slices.Equal(got, []string{"spec.compatibility.implicitExpectNone"}) {
		t.Errorf("written anew: %q", got)
	}
}

func TestAPatchToCopyEndsNoQuotation(t *testing.T) {
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	o := &v1alpha1.PluginInstallation{ObjectMeta: metav1.ObjectMeta{Name: "sample"}}
	o.Status.InstallationID = "3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77"
	o.Spec.Manifest.Legacy = &v1alpha1.LegacyManifest{APIWrite: []v1alpha1.LegacyWriteResource{"tasks", "messages"}}
	o.Spec.Compatibility = &v1alpha1.Compatibility{LegacyWriters: []v1alpha1.LegacyWriter{
		{Resource: "tasks", CompatibilityGrant: v1alpha1.CompatibilityGrant{InstallationID: o.Status.InstallationID, ApprovedBy: "x'; echo #"}},
	}}
	(&tool{IOStreams: streams}).hintWriters(o)
	if got := out.String(); strings.Count(got, "'") != 2 || !strings.Contains(got, `x\u0027; echo #`) || !strings.Contains(got, `"messages"`) {
		t.Errorf("got %s", got)
	}
}

func TestMoreByV1IsAWideningForCI(t *testing.T) {
	for _, c := range []struct {
		change installationChange
		code   int
		says   string
	}{
		{installationChange{Kind: "Changed"}, exitDone, "Nothing changes."},
		{installationChange{Kind: "Changed", V1Stops: []string{"state"}}, exitNarrows, "1 installation that may do less by v1."},
		{installationChange{Kind: "Changed", V1Starts: []string{"api_read:tasks"}, V1Stops: []string{"state"}}, exitWidens,
			"1 installation that may do more by v1, 1 installation that may do less by v1."},
	} {
		r := difference{Installations: []installationChange{c.change}}
		if r.code() != c.code || r.summary() != c.says {
			t.Errorf("%+v: exit code %d, %s", c.change, r.code(), r.summary())
		}
	}
	text := installationChange{Kind: "Changed", V1Starts: []string{"api_read:tasks"}, V1Stops: []string{"event task.*"}}.sentence()
	if text != "changed: may in addition, by v1 and in every workspace: api_read:tasks; may no longer, by v1: event task.*" {
		t.Error(text)
	}
}

func TestManifestsOfV1AreCheckedLikeTheSchemaDoes(t *testing.T) {
	const manifest = `apiVersion: plugins.kandev.ai/v1alpha1
kind: PluginInstallation
metadata:
  name: standup
spec:
  pluginID: kandev.standup
  version: 1.4.0
  serviceAccountRef: {namespace: plugin-standup, name: standup}
  manifest:
    legacy: {apiRead: [tasks], apiWrite: [tasks], events: [task.*]}
    configSchema: {properties: {days: {type: integer, minimum: 1}}}
  config: {days: 2}
  compatibility:
    legacyWriters:
    - {resource: tasks, installationID: 3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77, approvedBy: ada}
`
	for name, c := range map[string]struct{ old, text, says string }{
		"as it is":              {"", "", ""},
		"a read of nothing":     {"apiRead: [tasks]", "apiRead: [usage]", `:10: spec.manifest.legacy.apiRead[0]: "usage" is no resource`},
		"a write of nothing":    {"apiWrite: [tasks]", "apiWrite: [tasks, usage]", `:10: spec.manifest.legacy.apiWrite[1]: "usage" is no resource`},
		"an event of all":       {"task.*", "task.>", ":10: spec.manifest.legacy.events[0]: is no pattern"},
		"a grant too many":      {"apiWrite: [tasks]", "apiWrite: []", `:15: spec.compatibility.legacyWriters[0].resource: "tasks" isn't declared`},
		"a grant to nobody":     {"3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77", "standup", `:15: spec.compatibility.legacyWriters[0].installationID: "standup" is no`},
		"a grant by nobody":     {", approvedBy: ada", "", ":15: spec.compatibility.legacyWriters[0].approvedBy: is missing"},
		"a value out of bounds": {"days: 2", "days: 0", ":12: spec.config.days: should be greater"},
		"a schema that is none": {"type: integer", "type: whole", ":11: spec.manifest.configSchema.properties.days.type: must be one of"},
	} {
		m := parseManifests([]source{{"f", []byte(strings.Replace(manifest, c.old, c.text, 1))}}, "")
		switch {
		case c.says == "" && len(m.faults) > 0:
			t.Errorf("%s: %v", name, m.faults)
		case c.says != "" && (len(m.faults) != 1 || !strings.Contains(m.faults[0].String(), c.says)):
			t.Errorf("%s: %v, want %s", name, m.faults, c.says)
		}
	}
}

func TestPackageIsCheckedBeforeItIsRead(t *testing.T) {
	sum := func(text string) string { h := sha256.Sum256([]byte(text)); return hex.EncodeToString(h[:]) }
	type file struct{ name, text string }
	pack := func(files ...file) string {
		var b bytes.Buffer
		zip := gzip.NewWriter(&b)
		out := tar.NewWriter(zip)
		for _, f := range files {
			header := &tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.text)), Typeflag: tar.TypeReg}
			if f.text == "->" {
				header.Typeflag, header.Linkname, header.Size = tar.TypeSymlink, "/etc/passwd", 0
			}
			if err := out.WriteHeader(header); err != nil {
				t.Fatal(err)
			}
			if header.Size > 0 {
				if _, err := io.WriteString(out, f.text); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := errors.Join(out.Close(), zip.Close()); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(t.TempDir(), "package.tar.gz")
		if err := os.WriteFile(name, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	sums := file{"checksums.txt", sum(shipped) + "  manifest.yaml\n" + sum("x") + "  server/plugin\n"}
	whole := []file{{"./manifest.yaml", shipped}, {"server/plugin", "x"}, sums}
	if text, err := readPackage(pack(whole...)); err != nil || string(text) != shipped {
		t.Errorf("got %q, %v", text, err)
	}
	for name, c := range map[string]struct {
		files []file
		says  string
	}{
		"no manifest":      {[]file{whole[1], {"checksums.txt", sum("x") + "  server/plugin\n"}}, "missing manifest.yaml"},
		"no checksums":     {whole[:2], "missing checksums.txt"},
		"another file":     {[]file{whole[0], {"server/plugin", "y"}, sums}, `checksum mismatch: "server/plugin"`},
		"a missing file":   {[]file{whole[0], sums}, `"server/plugin" is listed and missing`},
		"an unlisted file": {append(slices.Clone(whole), file{"extra", "z"}), `not listed in checksums.txt: "extra"`},
		"a way out":        {append(slices.Clone(whole), file{"../evil", "z"}), "unsafe archive path"},
		"a rooted one":     {append(slices.Clone(whole), file{"/evil", "z"}), "unsafe archive path"},
		"a link":           {append(slices.Clone(whole), file{"link", "->"}), "neither a file nor a folder"},
		"twice":            {append(slices.Clone(whole), whole[0]), `"manifest.yaml" is there twice`},
	} {
		if _, err := readPackage(pack(c.files...)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
	}
}

func TestInstallPrintsWhatToCommit(t *testing.T) {
	manifest := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(manifest, []byte(shipped), 0o600); err != nil {
		t.Fatal(err)
	}
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	code := run(t.Context(), []string{"install", "-f", manifest, "--service-account", "plugin-standup/standup", "-o", "yaml", "--require", "host.v2.read:tasks"}, streams, time.Now)
	if code != exitDone {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	m := parseManifests([]source{{"out", out.Bytes()}}, "")
	if len(m.faults) > 0 || len(m.documents) != 1 || strings.Contains(out.String(), "status") {
		t.Errorf("%v\n%s", m.faults, out)
	}
}

func TestShortName(t *testing.T) {
	for id, want := range map[string]string{"kandev.standup-notes": "standup-notes", "standup": "standup", "a.b_c": "b-c"} {
		if got := shortName(id); got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
}

func nodeOf(t *testing.T, text string) *yaml.Node {
	t.Helper()
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(text), &root); err != nil {
		t.Fatal(err)
	}
	return root.Content[0]
}

func TestUnprovenAreThoseThatStand(t *testing.T) {
	approval := func(name string, state v1alpha1.State, assurance v1alpha1.ApproverAssurance) v1alpha1.PluginCapabilityApproval {
		return v1alpha1.PluginCapabilityApproval{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "payments"},
			Status:     v1alpha1.PluginCapabilityApprovalStatus{State: state, ApproverAssurance: assurance, ApprovedBy: "ada", Revision: 3, EffectiveSummary: "1/2"},
		}
	}
	rows := unproven([]v1alpha1.PluginCapabilityApproval{
		approval("a", v1alpha1.StateActive, v1alpha1.ApproverUnproven),
		approval("b", v1alpha1.StateRevoked, v1alpha1.ApproverUnproven),
		approval("c", v1alpha1.StateActive, v1alpha1.ApproverVerified),
		approval("d", v1alpha1.StateActive, v1alpha1.ApproverClaimed),
	})
	if len(rows) != 1 || !slices.Equal(rows[0], []string{"payments", "a", "3", "ada", "1/2"}) {
		t.Errorf("got %v", rows)
	}
}
