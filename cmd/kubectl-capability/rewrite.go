package main

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

// edit sets one field of a document, in the text itself: what a human wrote
// around it stays as it was, and Git shows the lines that matter.
type edit struct {
	document document
	// field is a member of spec.
	field string
	value string
}

// rewrite applies edits to the text of one file. An edit that the layout of the
// file doesn't allow is an error.
func rewrite(text string, edits []edit) (string, error) {
	lines := strings.SplitAfter(text, "\n")
	type insertion struct {
		behind int
		text   string
	}
	var insertions []insertion
	for _, e := range edits {
		spec := member(e.document.node, "spec")
		if spec == nil {
			return "", problem{what: fmt.Sprintf("%s:%d: spec doesn't stand in the manifest itself", e.document.file, e.document.line)}
		}
		value := member(spec, e.field)
		if value != nil {
			if err := replace(lines, value, e.value); err != nil {
				return "", fmt.Errorf("%s:%d: spec.%s: %w", e.document.file, value.Line, e.field, err)
			}
			continue
		}
		if spec.Style&yaml.FlowStyle != 0 || len(spec.Content) == 0 {
			return "", problem{what: fmt.Sprintf("%s:%d: spec has no %s, and isn't laid out in lines that one could be put between", e.document.file, spec.Line, e.field)}
		}
		key := spec.Content[0]
		insertions = append(insertions, insertion{key.Line - 1, strings.Repeat(" ", key.Column-1) + e.field + ": " + quote(e.value) + "\n"})
	}
	slices.SortStableFunc(insertions, func(a, b insertion) int { return b.behind - a.behind })
	for _, i := range insertions {
		lines = slices.Insert(lines, i.behind, i.text)
	}
	return strings.Join(lines, ""), nil
}

// replace puts a value in the place of a scalar that stands on one line.
func replace(lines []string, node *yaml.Node, value string) error {
	if node.Kind != yaml.ScalarNode || node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return problem{what: "is no plain value"}
	}
	line := lines[node.Line-1]
	start := node.Column - 1
	if start < 0 || start > len(line) {
		return problem{what: "can't be found in the file"}
	}
	rest := line[start:]
	length := len(node.Value)
	switch {
	case strings.HasPrefix(rest, `"`), strings.HasPrefix(rest, `'`):
		end := strings.Index(rest[1:], rest[:1])
		if end < 0 {
			return problem{what: "goes over several lines"}
		}
		length = end + 2
	case !strings.HasPrefix(rest, node.Value):
		return problem{what: "is written in a way that can't be replaced"}
	case node.Value == "":
		// `field:` with nothing behind it.
		value = " " + quote(value)
		start = len(strings.TrimRight(strings.TrimRight(line, "\r\n"), " "))
		lines[node.Line-1] = line[:start] + value + line[start:]
		return nil
	}
	if !plain(value) || strings.HasPrefix(rest, `"`) {
		value = quote(value)
	}
	lines[node.Line-1] = line[:start] + value + rest[length:]
	return nil
}

// plain tells whether YAML takes a value for this text without quotes.
func plain(value string) bool {
	return uuidForm.MatchString(value) || strings.HasPrefix(value, "v1:")
}

// forCluster lists the edits that make an approval's manifest speak of this
// cluster, and what a human has to look at before committing them.
func forCluster(d document, o, live *v1alpha1.PluginCapabilityApproval, installation *v1alpha1.PluginInstallation, workspaceID string) (edits []edit, notes []string) {
	where := fmt.Sprintf("%s:%d: ", d.file, d.line)
	note := func(format string, args ...any) { notes = append(notes, where+fmt.Sprintf(format, args...)) }
	if installation == nil || installation.Status.InstallationID == "" {
		note("%s isn't installed in this cluster, or has no ID yet; left as it is", o.Name)
		return nil, notes
	}
	act := ""
	if live != nil && live.Status.InstallationID == installation.Status.InstallationID {
		act = live.Status.Act
	}
	set := func(field, has, want string) {
		if has != want {
			edits = append(edits, edit{d, field, want})
		}
	}
	set("installationID", o.Spec.InstallationID, installation.Status.InstallationID)
	set("manifestDigest", o.Spec.ManifestDigest, installation.Status.ManifestDigest)
	set("supersedesAct", o.Spec.SupersedesAct, act)
	if o.Spec.ManifestDigest != installation.Status.ManifestDigest {
		note("the manifest that is installed here is another one than was reviewed; look at `kubectl capability review %s -n %s` before you commit", o.Name, o.Namespace)
	}
	if workspaceID != o.Spec.WorkspaceID {
		note("spec.workspaceID is %q and the namespace %s is %s here; left as it is", o.Spec.WorkspaceID, o.Namespace, workspaceOr(workspaceID))
	}
	listed := setOf(o.Spec.Capabilities)
	for _, declared := range installation.Spec.Manifest.Capabilities {
		if declared.Required && !listed.Covers(setOf([]v1alpha1.CapabilityID{declared.ID})) {
			note("the plugin requires %s, which the manifest doesn't grant; nothing is added to a grant here", declared.ID)
		}
	}
	return edits, notes
}

func workspaceOr(id string) string {
	if id == "" {
		return "no workspace"
	}
	return "workspace " + id
}
