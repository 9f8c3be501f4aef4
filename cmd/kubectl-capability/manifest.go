package main

import (
	"bytes"
	"cmp"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/controllers/kinds"
)

// The bounds of what is read: a folder of manifests, not a disk.
const (
	maxFileBytes = 4 << 20
	maxFiles     = 10000
)

// document is one YAML document of a file.
type document struct {
	file string
	// line is the one of the file that the document begins at.
	line int
	node *yaml.Node
	kind string
	// object is one of our kinds or a Namespace, nil for every other.
	object client.Object
}

// fault is something that no cluster would take.
type fault struct {
	File string `json:"file"`
	Line int    `json:"line"`
	What string `json:"what"`
}

func (f fault) String() string {
	return fmt.Sprintf("%s:%d: %s", visible(f.File), f.Line, visible(f.What))
}

// manifests are the documents of some files.
type manifests struct {
	documents []document
	faults    []fault
	// others counts documents of kinds that don't concern us.
	others int
}

// source is a file and its content.
type source struct {
	name string
	text []byte
}

// readSources reads a file, a folder with those below it, or "-" for in.
func readSources(in io.Reader, path string) ([]source, error) {
	if path == "-" {
		text, err := io.ReadAll(io.LimitReader(in, maxFileBytes+1))
		if err != nil {
			return nil, fmt.Errorf("read the standard input: %w", err)
		}
		if len(text) > maxFileBytes {
			// Less than all of it could hide a grant.
			return nil, problem{what: fmt.Sprintf("the standard input is larger than %d bytes", maxFileBytes)}
		}
		return []source{{"-", text}}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the path
	}
	if !info.IsDir() {
		s, err := readSource(path)
		return []source{s}, err
	}
	var all []source
	err = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == ".git":
			return filepath.SkipDir
		case entry.IsDir() || !isManifest(name):
			return nil
		case len(all) == maxFiles:
			return problem{what: fmt.Sprintf("%s holds more than %d manifests", path, maxFiles), hint: "name a folder below it"}
		}
		s, err := readSource(name)
		all = append(all, s)
		return err
	})
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the path
	}
	if len(all) == 0 {
		return nil, problem{what: path + " holds no .yaml, .yml or .json file"}
	}
	return all, nil
}

func readSource(path string) (source, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxFileBytes {
		err = problem{what: fmt.Sprintf("%s is larger than %d bytes", path, maxFileBytes)}
	}
	if err != nil {
		return source{}, err
	}
	text, err := os.ReadFile(path) //nolint:gosec // the user names it
	return source{path, text}, err //nolint:wrapcheck // it names the path
}

func isManifest(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name)))
}

// parseManifests understands what concerns us of all sources. namespace is where
// an approval belongs that names none; it may be empty.
func parseManifests(sources []source, namespace string) manifests {
	var m manifests
	for _, s := range sources {
		m.parse(s, namespace)
	}
	m.refuseDuplicates()
	slices.SortStableFunc(m.faults, func(a, b fault) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) })
	return m
}

// spelledOut finds letters that are written as escapes, behind which the name of a
// kind could hide.
var spelledOut = regexp.MustCompile(`\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})`)

func (m *manifests) parse(s source, namespace string) {
	decoder := yaml.NewDecoder(bytes.NewReader(s.text))
	for {
		var root yaml.Node
		err := decoder.Decode(&root)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			// A template of another tool is none of our business, unless it makes
			// one of our kinds.
			if bytes.Contains(s.text, []byte(v1alpha1.GroupVersion.Group)) || spelledOut.Match(s.text) {
				m.faults = append(m.faults, fault{s.name, 1, "it is no YAML: " + firstLine(err) + "; render templates first and give the result with -f -"})
			}
			return
		}
		if len(root.Content) != 1 || root.Content[0].Kind != yaml.MappingNode {
			continue
		}
		m.take(document{file: s.name, line: root.Content[0].Line, node: root.Content[0]}, namespace)
	}
}

// take understands one document. Whoever applies it decides what it is, so it is read:
// with aliases and merges resolved, with the last of two members of one name, and
// with what stands in a list, of any kind.
func (m *manifests) take(d document, namespace string) {
	text, err := yaml.Marshal(d.node)
	if err != nil {
		m.fault(d, "", "%v", err)
		return
	}
	asJSON, err := sigsyaml.YAMLToJSON(text)
	if err != nil {
		m.fault(d, "", "%v", err)
		return
	}
	_, strict := sigsyaml.YAMLToJSONStrict(text)
	m.takeObject(d, asJSON, strict, namespace)
}

// takeObject understands an object. twice is the error of a member that stands there
// twice.
func (m *manifests) takeObject(d document, text []byte, twice error, namespace string) {
	var is struct {
		APIVersion any                  `json:"apiVersion"`
		Kind       any                  `json:"kind"`
		Items      []stdjson.RawMessage `json:"items"`
	}
	// What doesn't fit is none of an object that any cluster takes.
	_ = json.UnmarshalCaseSensitivePreserveInts(text, &is)
	if is.Items != nil {
		nodes := member(d.node, "items")
		for i, item := range is.Items {
			one := document{file: d.file, line: d.line, node: d.node}
			if nodes != nil && nodes.Kind == yaml.SequenceNode && i < len(nodes.Content) && nodes.Content[i].Kind == yaml.MappingNode {
				one.node, one.line = nodes.Content[i], nodes.Content[i].Line
			}
			m.takeObject(one, item, twice, namespace)
		}
		return
	}
	apiVersion, _ := is.APIVersion.(string)
	kind, _ := is.Kind.(string)
	d.kind = kind
	object, field := objectOf(apiVersion, kind)
	switch {
	case field != "":
		m.fault(d, field, "%q is no kind of %s that this tool knows", kind, apiVersion)
		return
	case object == nil:
		m.others++
		return
	case twice != nil:
		m.fault(d, "", "%v", twice)
		return
	}
	if _, isNamespace := object.(*corev1.Namespace); isNamespace {
		if err := json.UnmarshalCaseSensitivePreserveInts(text, object); err != nil {
			m.fault(d, "", "%v", err)
			return
		}
	} else if strict, err := json.UnmarshalStrict(text, object); err != nil || len(strict) > 0 {
		for _, e := range append(strict, err) {
			if e != nil {
				field, what := decoding(e)
				m.fault(d, field, "%s", what)
			}
		}
		return
	}
	d.object = object
	before := len(m.faults)
	m.checkNames(d, object)
	switch o := object.(type) {
	case *v1alpha1.PluginCapabilityApproval:
		if o.Namespace == "" {
			o.Namespace = namespace
		}
		m.checkApproval(d, o)
	case *v1alpha1.PluginInstallation:
		m.checkInstallation(d, o)
	case *v1alpha1.HumanPolicy:
		m.checkPolicy(d, o)
	}
	if len(m.faults) == before {
		m.documents = append(m.documents, d)
	}
}

// objectOf returns an empty object of a document's kind, nil for kinds that don't
// concern us, and the field to blame where it is one of ours that we don't know.
func objectOf(apiVersion, kind string) (object client.Object, field string) {
	group, _, _ := strings.Cut(apiVersion, "/")
	switch {
	case apiVersion == "v1" && kind == "Namespace":
		return &corev1.Namespace{}, ""
	case group != v1alpha1.GroupVersion.Group:
		return nil, ""
	case apiVersion != v1alpha1.GroupVersion.String():
		return nil, "apiVersion"
	}
	switch kind {
	case "PluginCapabilityApproval":
		return &v1alpha1.PluginCapabilityApproval{}, ""
	case "PluginInstallation":
		return &v1alpha1.PluginInstallation{}, ""
	case "HumanPolicy":
		return &v1alpha1.HumanPolicy{}, ""
	default:
		return nil, "kind"
	}
}

func (m *manifests) fault(d document, field, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if field != "" {
		what = field + ": " + what
	}
	m.faults = append(m.faults, fault{File: d.file, Line: lineOf(d.node, field), What: what})
}

// The forms of the schema, so that a pull request is told before a cluster sees
// it. The cluster's schema has the last word.
var (
	uuidForm      = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	workspaceForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	actForm       = regexp.MustCompile(`^(\d{1,19}-[a-z2-7]{6})?$`)
	pluginForm    = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,127}$`)
	versionForm   = regexp.MustCompile(`^[[:graph:]]{1,64}$`)
)

// checkNames refuses what can be no name in a cluster, and would be printed.
func (m *manifests) checkNames(d document, o client.Object) {
	if name := o.GetName(); name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
		m.fault(d, "metadata.name", "%q is no name", name)
	}
	if namespace := o.GetNamespace(); namespace != "" && len(validation.IsDNS1123Label(namespace)) > 0 {
		m.fault(d, "metadata.namespace", "%q is no name", namespace)
	}
}

func (m *manifests) checkApproval(d document, o *v1alpha1.PluginCapabilityApproval) {
	s := o.Spec
	if o.Namespace == "" {
		m.fault(d, "metadata.namespace", "is missing; where another tool fills it in, give it with --namespace")
	}
	if s.InstallationName != o.Name || o.Name == "" {
		m.fault(d, "spec.installationName", "is %q and must equal metadata.name, %q", s.InstallationName, o.Name)
	}
	if !uuidForm.MatchString(s.InstallationID) {
		m.fault(d, "spec.installationID", "%q is no lower-case UUID", s.InstallationID)
	}
	if _, err := contract.ParseManifestDigest("spec.manifestDigest", s.ManifestDigest); err != nil {
		m.fault(d, "spec.manifestDigest", "%s", err.Detail)
	}
	if !workspaceForm.MatchString(s.WorkspaceID) {
		m.fault(d, "spec.workspaceID", "%q is no workspace ID", s.WorkspaceID)
	}
	if !actForm.MatchString(s.SupersedesAct) {
		m.fault(d, "spec.supersedesAct", "%q is no name of an act", s.SupersedesAct)
	}
	if s.ApprovedBy == "" {
		m.fault(d, "spec.approvedBy", "is missing: who grants this?")
	}
	if s.State != "" && s.State != v1alpha1.StateActive && s.State != v1alpha1.StateRevoked {
		m.fault(d, "spec.state", "is %q; it is Active or Revoked", s.State)
	}
	ids := make([]string, len(s.Capabilities))
	for i, id := range s.Capabilities {
		ids[i] = string(id)
	}
	if _, err := contract.ParseCapabilities(ids); err != nil {
		m.fault(d, "spec.capabilities", "%s", strings.TrimPrefix(err.Error(), "capabilities"))
	}
}

func (m *manifests) checkInstallation(d document, o *v1alpha1.PluginInstallation) {
	if o.Name == "" {
		m.fault(d, "metadata.name", "is missing")
	}
	if !pluginForm.MatchString(o.Spec.PluginID) {
		m.fault(d, "spec.pluginID", "%q is no plugin ID", o.Spec.PluginID)
	}
	if contract.ReadsAsInstallationID(o.Spec.PluginID) {
		m.fault(d, "spec.pluginID", "can't be a UUID: installation IDs are")
	}
	if !versionForm.MatchString(o.Spec.Version) {
		m.fault(d, "spec.version", "%q is no version", o.Spec.Version)
	}
	if o.Spec.ServiceAccountRef.Namespace == "" || o.Spec.ServiceAccountRef.Name == "" {
		m.fault(d, "spec.serviceAccountRef", "needs a namespace and a name")
	}
	ids := make([]string, len(o.Spec.Manifest.Capabilities))
	for i, declared := range o.Spec.Manifest.Capabilities {
		ids[i] = string(declared.ID)
	}
	if _, err := contract.ParseCapabilities(ids); err != nil {
		m.fault(d, "spec.manifest.capabilities", "%s", strings.TrimPrefix(err.Error(), "capabilities"))
	}
	m.checkLegacy(d, o)
	if fault := kinds.ConfigFault(o); fault != nil {
		m.fault(d, fault.Field, "%s", fault.Detail)
	}
}

func (m *manifests) checkLegacy(d document, o *v1alpha1.PluginInstallation) {
	var legacy v1alpha1.LegacyManifest
	if o.Spec.Manifest.Legacy != nil {
		legacy = *o.Spec.Manifest.Legacy
	}
	for i, resource := range legacy.APIRead {
		if _, ok := contract.ParseLegacyCapability(contract.LegacyReadPrefix + string(resource)); !ok {
			m.fault(d, fmt.Sprintf("spec.manifest.legacy.apiRead[%d]", i), "%q is no resource that v1 reads", resource)
		}
	}
	for i, resource := range legacy.APIWrite {
		if _, ok := contract.ParseLegacyCapability(contract.LegacyWritePrefix + string(resource)); !ok {
			m.fault(d, fmt.Sprintf("spec.manifest.legacy.apiWrite[%d]", i), "%q is no resource that v1 writes", resource)
		}
	}
	for i, pattern := range legacy.Events {
		field := fmt.Sprintf("spec.manifest.legacy.events[%d]", i)
		if fault := contract.CheckEventPattern(field, pattern); fault != nil {
			m.fault(d, field, "%s", fault.Detail)
		}
	}
	if o.Spec.Compatibility == nil {
		return
	}
	grant := func(field string, g v1alpha1.CompatibilityGrant) {
		if !uuidForm.MatchString(g.InstallationID) {
			m.fault(d, field+".installationID", "%q is no lower-case UUID", g.InstallationID)
		}
		if g.ApprovedBy == "" {
			m.fault(d, field+".approvedBy", "is missing: who grants this?")
		}
	}
	for i, writer := range o.Spec.Compatibility.LegacyWriters {
		field := fmt.Sprintf("spec.compatibility.legacyWriters[%d]", i)
		grant(field, writer.CompatibilityGrant)
		if !slices.Contains(legacy.APIWrite, writer.Resource) {
			m.fault(d, field+".resource", "%q isn't declared in spec.manifest.legacy.apiWrite", writer.Resource)
		}
	}
	if o.Spec.Compatibility.ImplicitExpectNone != nil {
		grant("spec.compatibility.implicitExpectNone", *o.Spec.Compatibility.ImplicitExpectNone)
	}
}

func (m *manifests) checkPolicy(d document, o *v1alpha1.HumanPolicy) {
	if o.Name == "" {
		m.fault(d, "metadata.name", "is missing")
	}
	if len(o.Spec.Rules) == 0 {
		m.fault(d, "spec.rules", "is empty")
	}
	for i, rule := range o.Spec.Rules {
		field := fmt.Sprintf("spec.rules[%d]", i)
		if !slices.Contains(grantableClasses(), string(rule.Class)) {
			m.fault(d, field, "class %q is none of %s", rule.Class, strings.Join(grantableClasses(), ", "))
		}
		if !rule.Deny && !rule.FourEyes && rule.MaxLifetimeSeconds == nil {
			m.fault(d, field, "must deny, cap the lifetime or demand four eyes")
		}
	}
}

// refuseDuplicates: of two manifests of one object, nobody knows which one the
// cluster ends up with.
func (m *manifests) refuseDuplicates() {
	first := map[string]document{}
	kept := m.documents[:0]
	for _, d := range m.documents {
		if before, ok := first[d.identity()]; ok {
			m.fault(d, "", "%s stands in %s:%d too", d.identity(), before.file, before.line)
			continue
		}
		first[d.identity()] = d
		kept = append(kept, d)
	}
	m.documents = kept
}

// identity names the object of a document.
func (d document) identity() string {
	return strings.Trim(fmt.Sprintf("%s %s/%s", d.kind, d.object.GetNamespace(), d.object.GetName()), " ")
}

// member is the value node of a mapping's member, nil where there is none.
func member(node *yaml.Node, name string) *yaml.Node {
	if node == nil || node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			return node.Content[i+1]
		}
	}
	return nil
}

// lineOf finds the line of a field such as "spec.rules[1].class", or of the
// innermost part of it that is there.
func lineOf(node *yaml.Node, field string) int {
	line := node.Line
	for part := range strings.SplitSeq(field, ".") {
		name, index, indexed := strings.Cut(part, "[")
		next := member(node, name)
		if next == nil {
			return line
		}
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == name {
				line = node.Content[i].Line
			}
		}
		node = next
		var i int
		if _, err := fmt.Sscanf(index, "%d]", &i); indexed && err == nil && node.Kind == yaml.SequenceNode && i < len(node.Content) {
			node = node.Content[i]
			line = node.Line
		}
	}
	return line
}

var (
	typeFault  = regexp.MustCompile(`cannot unmarshal (\w+) into Go (?:struct field \w+\.(\S+)|value) of type (\S+)`)
	fieldFault = regexp.MustCompile(`^(?:json: )?(unknown|duplicate) field "(.*)"$`)
)

// decoding says in words which field a decoder doesn't like, and why.
func decoding(err error) (field, what string) {
	text := err.Error()
	if m := typeFault.FindStringSubmatch(text); m != nil {
		if strings.HasSuffix(m[3], "string") || strings.Contains(m[3], "CapabilityID") || strings.Contains(m[3], "State") {
			return m[2], "is a " + m[1] + " and must be a text; put it between quotes"
		}
		return m[2], "is a " + m[1] + ", which doesn't belong there"
	}
	if m := fieldFault.FindStringSubmatch(text); m != nil {
		if m[1] == "duplicate" {
			return m[2], "stands there twice"
		}
		return m[2], "is no field of this kind"
	}
	return "", strings.TrimPrefix(text, "json: ")
}
