package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/configschema"
	"github.com/kandev/plugin-host/launcher/pack"
)

// readPackage returns a package's manifest: the file itself, or what a gzipped tar
// holds as manifest.yaml, once it is checked as the launcher will check it.
func readPackage(name string) ([]byte, error) {
	file, err := os.Open(name) //nolint:gosec // the user names it
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the path
	}
	defer func() { _ = file.Close() }() // it was only read
	buffered := bufio.NewReader(file)
	if magic, _ := buffered.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		text, err := io.ReadAll(io.LimitReader(buffered, pack.MaxManifestBytes+1))
		if err == nil && len(text) > pack.MaxManifestBytes {
			err = problem{what: fmt.Sprintf("%s is larger than %d bytes", name, pack.MaxManifestBytes)}
		}
		return text, err
	}
	text, err := pack.ReadManifest(buffered)
	if err != nil {
		return nil, problem{what: name + ": " + err.Error(), hint: "a package is a gzipped tar with manifest.yaml and checksums.txt at its root"}
	}
	return text, nil
}

// elsewhere are the fields of a package that say nothing about the Host's
// authority: other parts of Kandev read them.
var elsewhere = []string{
	"api_version", "display_name", "description", "author", "categories", "icon", "repo_url", "base_url", "endpoints",
	"runtime", "webhooks", "actions", "repository_providers", "reference_sources", "auth_providers",
	"agent_tools", "ui", "automation_conditions", "executor_providers", "distribution",
}

// The names that packages use, and the IDs that they mean here. Where one name has
// covered several rights, all of them are listed. The names that v1 methods ask for
// are declared for those besides.
var (
	shippedReads = map[string][]contract.Capability{
		"tasks": {contract.ReadTasks}, "sessions": {contract.ReadSessions}, "workspaces": {contract.ReadWorkspaces},
		"workflows": {contract.ReadWorkflows}, "messages": {contract.ReadMessages}, "interactions": {contract.ReadInteractions},
		"task_inbox": {contract.ReadTaskInbox}, "task_directives": {contract.ReadTaskDirectives},
		"task_relations": {contract.ReadTaskRelations}, "task_transitions": {contract.ReadTaskTransitions},
		"change_requests": {contract.ReadChangeRequests}, "managed_agent_conversations": {contract.ReadManagedAgentConversations},
	}
	shippedWrites = map[string][]contract.Capability{
		"tasks": {contract.WriteTasks, contract.WriteTaskRelations}, "messages": {contract.WriteMessages},
		"task_directives":             {contract.WriteTaskDirectives},
		"execution":                   {contract.WriteTaskRuns, contract.WriteSessions, contract.WriteTaskTransitions},
		"managed_agent_conversations": {contract.WriteManagedAgentConversations},
	}
)

// parsedPackage is what an installation needs of a package.
type parsedPackage struct {
	pluginID, version, minHostVersion string
	// from says for each ID which declarations of the package stand behind it.
	from     map[contract.Capability][]string
	required contract.CapabilitySet
	// legacy is what it declares for v1 methods, by the same words.
	legacy v1alpha1.LegacyManifest
	// configSchema is the JSON text of the schema of its configuration, if any.
	configSchema []byte
	// ignored are fields of other parts of Kandev, leftOut those that --without
	// names.
	ignored, leftOut []string
}

// translator reads a manifest and collects what it doesn't understand.
type translator struct {
	file    string
	without []string
	used    map[string]bool
	faults  []string
	parsed  parsedPackage
}

// translate reads the manifest of a package. Whatever it doesn't understand is an
// error that names field and line, unless without names the field.
func translate(file string, text []byte, without []string) (parsedPackage, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return parsedPackage{}, problem{what: file + ": it is no YAML: " + firstLine(err)}
	}
	if len(root.Content) != 1 || root.Content[0].Kind != yaml.MappingNode {
		return parsedPackage{}, problem{what: file + ": it is no manifest: a mapping with id, version and capabilities"}
	}
	tr := translator{file: file, without: without, used: map[string]bool{}, parsed: parsedPackage{from: map[contract.Capability][]string{}}}
	tr.top(root.Content[0])
	for _, field := range without {
		if !tr.used[field] {
			tr.faults = append(tr.faults, fmt.Sprintf("--without: the manifest has no %s", field))
		}
	}
	if len(tr.faults) > 0 {
		return parsedPackage{}, problem{
			what: "the manifest can't be translated:\n  " + strings.Join(tr.faults, "\n  "),
			hint: "--without FIELD leaves one out: the plugin then does without it here",
		}
	}
	return tr.parsed, nil
}

func (tr *translator) fault(node *yaml.Node, field, format string, args ...any) {
	tr.faults = append(tr.faults, fmt.Sprintf("%s:%d: %s: %s", tr.file, node.Line, field, fmt.Sprintf(format, args...)))
}

// skipped tells whether --without names a field.
func (tr *translator) skipped(field string) bool {
	if !slices.Contains(tr.without, field) {
		return false
	}
	tr.used[field] = true
	tr.parsed.leftOut = append(tr.parsed.leftOut, field)
	return true
}

func (tr *translator) top(node *yaml.Node) {
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if seen[key.Value] {
			tr.fault(key, key.Value, "stands there twice")
			continue
		}
		seen[key.Value] = true
		switch {
		case tr.skipped(key.Value):
		case value.Kind == yaml.AliasNode && !slices.Contains(elsewhere, key.Value):
			// Its text is the name of an anchor, not what stands there.
			tr.fault(value, key.Value, "is an alias; write the value itself")
		case key.Value == "id":
			tr.parsed.pluginID = value.Value
			if !pluginForm.MatchString(value.Value) || strings.HasSuffix(value.Value, ".config") {
				tr.fault(value, "id", "%q is no plugin ID", value.Value)
			} else if contract.ReadsAsInstallationID(value.Value) {
				tr.fault(value, "id", "can't be a UUID: installation IDs are")
			}
		case key.Value == "version":
			tr.parsed.version = value.Value
			if !versionForm.MatchString(value.Value) || strings.ContainsAny(value.Value, `/\`) {
				tr.fault(value, "version", "%q is no version of 1 to 64 printable characters", value.Value)
			}
		case key.Value == "min_kandev_version":
			tr.minimum(value)
		case key.Value == "capabilities":
			tr.capabilities(value)
		case key.Value == "config_schema":
			tr.configSchema(value)
		case slices.Contains(elsewhere, key.Value):
			tr.parsed.ignored = append(tr.parsed.ignored, key.Value)
		default:
			tr.fault(key, key.Value, "is no field of a manifest that this tool knows")
		}
	}
	for _, field := range []string{"id", "version"} {
		if !seen[field] {
			tr.fault(node, field, "is missing")
		}
	}
}

var releaseForm = regexp.MustCompile(`^v?(0|[1-9]\d{0,5})(\.(0|[1-9]\d{0,5})){0,2}$`)

func (tr *translator) minimum(node *yaml.Node) {
	if !releaseForm.MatchString(node.Value) {
		tr.fault(node, "min_kandev_version", "%q is no release version, such as 0.91.1", node.Value)
		return
	}
	version := strings.TrimPrefix(node.Value, "v")
	if !strings.Contains(version, ".") {
		version += ".0"
	}
	tr.parsed.minHostVersion = version
}

func (tr *translator) capabilities(node *yaml.Node) {
	if node.Kind != yaml.MappingNode {
		tr.fault(node, "capabilities", "is no mapping")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		field := "capabilities." + key.Value
		if seen[field] {
			tr.fault(key, field, "stands there twice")
			continue
		}
		seen[field] = true
		off := value.Kind == yaml.ScalarNode && (value.Value == "false" || value.Tag == "!!null") ||
			value.Kind == yaml.SequenceNode && len(value.Content) == 0
		switch {
		case tr.skipped(field), off:
		case key.Value == "api_read":
			tr.names(field, value, shippedReads, contract.LegacyReadPrefix, func(name string) {
				tr.parsed.legacy.APIRead = appendNew(tr.parsed.legacy.APIRead, v1alpha1.LegacyReadResource(name))
			})
		case key.Value == "api_write":
			tr.names(field, value, shippedWrites, contract.LegacyWritePrefix, func(name string) {
				tr.parsed.legacy.APIWrite = appendNew(tr.parsed.legacy.APIWrite, v1alpha1.LegacyWriteResource(name))
			})
		case key.Value == "events":
			tr.events(field, value)
		case key.Value == "state":
			tr.parsed.legacy.State = tr.yes(field, value)
		case key.Value == "secrets":
			tr.parsed.legacy.Secrets = tr.yes(field, value)
		case key.Value == "agent_invoke":
			tr.parsed.legacy.AgentInvoke = tr.yes(field, value)
		case slices.Contains([]string{"auth", "user_state", "agent_conversation", "executor_provider"}, key.Value):
			tr.fault(key, field, "no capability of this Host stands for it")
		default:
			tr.fault(key, field, "is no capability that this tool knows")
		}
	}
}

// names takes a list of resources. A name stands for capabilities, for a v1
// declaration, or for both.
func (tr *translator) names(field string, node *yaml.Node, known map[string][]contract.Capability, prefix string, legacy func(string)) {
	if node.Kind != yaml.SequenceNode {
		tr.fault(node, field, "is no list")
		return
	}
	for _, item := range node.Content {
		if item.Kind != yaml.ScalarNode {
			tr.fault(item, field, "holds something that is no name")
			continue
		}
		full := field + "." + item.Value
		if tr.skipped(full) {
			continue
		}
		capabilities, ok := known[item.Value]
		_, isLegacy := contract.ParseLegacyCapability(prefix + item.Value)
		if !ok && !isLegacy {
			tr.fault(item, full, "no capability of this Host stands for it")
			continue
		}
		if isLegacy {
			legacy(item.Value)
		}
		for _, c := range capabilities {
			tr.parsed.from[c] = appendNew(tr.parsed.from[c], strings.TrimPrefix(full, "capabilities."))
		}
	}
}

func appendNew[T comparable](list []T, value T) []T {
	if slices.Contains(list, value) {
		return list
	}
	return append(list, value)
}

func (tr *translator) events(field string, node *yaml.Node) {
	if node.Kind != yaml.SequenceNode {
		tr.fault(node, field, "is no list")
		return
	}
	for _, item := range node.Content {
		full := field + "." + item.Value
		if item.Kind != yaml.ScalarNode {
			tr.fault(item, field, "holds something that is no pattern")
			continue
		}
		if tr.skipped(full) {
			continue
		}
		if fault := contract.CheckEventPattern(full, item.Value); fault != nil {
			tr.fault(item, full, "%s", fault.Detail)
			continue
		}
		tr.parsed.legacy.Events = appendNew(tr.parsed.legacy.Events, item.Value)
	}
	if len(tr.parsed.legacy.Events) > contract.MaxEventPatterns {
		tr.fault(node, field, "lists more than %d patterns", contract.MaxEventPatterns)
	}
}

// yes takes a flag that isn't false.
func (tr *translator) yes(field string, node *yaml.Node) bool {
	if node.Kind != yaml.ScalarNode || node.Value != "true" {
		tr.fault(node, field, "is neither true nor false")
		return false
	}
	return true
}

func (tr *translator) configSchema(node *yaml.Node) {
	if node.Tag == "!!null" {
		return
	}
	var decoded any
	err := node.Decode(&decoded)
	if err == nil {
		tr.parsed.configSchema, err = json.Marshal(decoded)
	}
	if err != nil {
		tr.fault(node, "config_schema", "can't be read: %s", firstLine(err))
		return
	}
	if _, fault := configschema.Compile(tr.parsed.configSchema); fault != nil {
		field := strings.Replace(fault.Field, "spec.manifest.configSchema", "config_schema", 1)
		tr.faults = append(tr.faults, fmt.Sprintf("%s:%d: %s: %s", tr.file, node.Line, field, fault.Detail))
	}
}

func (p *parsedPackage) declared() contract.CapabilitySet {
	var set contract.CapabilitySet
	for c := range p.from {
		set |= contract.SetOf(c)
	}
	return set
}

// require marks what the plugin can't work without. Packages don't say it.
func (p *parsedPackage) require(ids []string) error {
	set, err := contract.ParseCapabilities(ids)
	if err != nil {
		return problem{what: "--require: " + err.Error()}
	}
	if extra := set &^ p.declared(); extra != 0 {
		return problem{what: "--require: the package doesn't declare " + listed(extra), hint: "it declares " + listed(p.declared())}
	}
	p.required = set
	return nil
}

// spec is the installation of the package, but for its ServiceAccount.
func (p *parsedPackage) spec() v1alpha1.PluginInstallationSpec {
	spec := v1alpha1.PluginInstallationSpec{PluginID: p.pluginID, Version: p.version, Manifest: v1alpha1.PluginManifest{MinHostVersion: p.minHostVersion}}
	for c := range p.declared().All() {
		spec.Manifest.Capabilities = append(spec.Manifest.Capabilities, v1alpha1.ManifestCapability{
			ID: v1alpha1.CapabilityID(c.String()), Required: p.required.Has(c),
			Reason: "The package declares " + strings.Join(p.from[c], ", ") + ".",
		})
	}
	if legacy := p.legacy; len(legacyNames(&legacy)) > 0 {
		spec.Manifest.Legacy = &legacy
	}
	if p.configSchema != nil {
		spec.Manifest.ConfigSchema = &apiextensionsv1.JSON{Raw: p.configSchema}
	}
	return spec
}

// explain shows the human what the package's words mean here.
func (p *parsedPackage) explain(t *tool) {
	fmt.Fprintf(t.ErrOut, "%s %s\n", p.pluginID, p.version)
	rows := [][]string{{"THE PACKAGE SAYS", "HERE IT MEANS", "CLASS", "REQUIRED"}}
	for c := range p.declared().All() {
		rows = append(rows, []string{strings.Join(p.from[c], ", "), c.String(), classOf(c), yes(p.required.Has(c))})
	}
	if len(rows) == 1 {
		fmt.Fprintln(t.ErrOut, "It asks for no capability.")
	} else {
		table(t.ErrOut, rows)
	}
	p.explainLegacy(t)
	if len(p.leftOut) > 0 {
		fmt.Fprintln(t.ErrOut, "Left out, as you asked:", strings.Join(p.leftOut, ", "))
	}
	if len(p.ignored) > 0 {
		fmt.Fprintln(t.ErrOut, "Not part of an installation here:", strings.Join(p.ignored, ", "))
	}
}
