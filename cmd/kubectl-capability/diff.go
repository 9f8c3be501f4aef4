package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/controllers/kinds"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

type diffOptions struct {
	file, span, output string
}

func (t *tool) diffCommand() *cobra.Command {
	var o diffOptions
	cmd := &cobra.Command{
		Use:   "diff (-f FILE|DIR|- | --git BASE..HEAD [PATH])",
		Short: "Show what manifests would grant and take away",
		Long: `Show what manifests would grant and take away, before anybody applies them.

It reads approvals, installations, human policies and namespaces from the
manifests, and computes on the objects of the cluster what the Host would: the
same function, on the row that the newest event of each approval rebuilds. With
--git it reads what a range of commits changes, deletions included; then a
manifest that is deleted counts as pruned.

A field that a manifest leaves out counts as its default. Where another field
manager has written fields of the object, applying may keep them; force the
apply, or take the others away first.

Exit codes, the highest that applies:
  0  nothing changes
  1  the command failed
  2  something is taken away, or stops working
  3  something is granted, or starts working
  4  a manifest asks for more and does not get it
  5  a manifest is invalid`,
		Example: `  # What would this folder change?
  kubectl capability diff -f clusters/prod

  # What would this pull request change? In CI, as a comment:
  kubectl capability diff --git origin/main...HEAD clusters/prod -o markdown

  # What a template makes
  kustomize build clusters/prod | kubectl capability diff -f -`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "."
			if len(args) == 1 {
				path = args[0]
			}
			return t.diff(cmd.Context(), o, path)
		},
	}
	cmd.Flags().StringVarP(&o.file, "filename", "f", "", "file, folder, or - for the standard input")
	cmd.Flags().StringVar(&o.span, "git", "", "range of commits, BASE..HEAD or BASE...HEAD; PATH limits it")
	cmd.Flags().StringVarP(&o.output, "output", "o", "table", "table, markdown, json or yaml")
	complete(cmd, "output", "table", "markdown", "json", "yaml")
	return cmd
}

// difference is the whole answer of diff.
type difference struct {
	Changes       []change             `json:"changes"`
	Installations []installationChange `json:"installations,omitempty"`
	// Unchanged counts approvals whose manifests change nothing.
	Unchanged int      `json:"unchanged"`
	Invalid   []fault  `json:"invalid,omitempty"`
	Notes     []string `json:"notes,omitempty"`
	ExitCode  int      `json:"exitCode"`
}

// installationChange is what the manifest of an installation changes by itself.
type installationChange struct {
	Name string `json:"name"`
	File string `json:"file"`
	Line int    `json:"line"`
	// Kind is Installed, Changed or Uninstalled.
	Kind           string      `json:"kind"`
	Version        *transition `json:"version,omitempty"`
	ManifestDigest *transition `json:"manifestDigest,omitempty"`
	Declares       []string    `json:"declares,omitempty"`
	Undeclares     []string    `json:"undeclares,omitempty"`
	// V1Starts and V1Stops compare what v1 calls may do, in every workspace.
	V1Starts []string `json:"v1Starts,omitempty"`
	V1Stops  []string `json:"v1Stops,omitempty"`
	Notes    []string `json:"notes,omitempty"`
}

func (t *tool) diff(ctx context.Context, o diffOptions, path string) error {
	if err := oneOf(o.output, "table", "markdown", "json", "yaml"); err != nil {
		return err
	}
	if (o.file == "") == (o.span == "") {
		return problem{what: "diff needs manifests: -f FILE, or --git BASE..HEAD", hint: "`kubectl capability diff --help` has examples"}
	}
	c, err := t.connect()
	if err != nil {
		return err
	}
	d := differ{tool: t, cluster: c}
	if err := d.load(ctx, o, path); err != nil {
		return err
	}
	result, err := d.run(ctx)
	if err != nil {
		return err
	}
	switch o.output {
	case "markdown":
		result.markdown(t.Out)
	case "table":
		result.text(t.Out, t.paint(t.Out))
	default:
		if err := t.encode(o.output, result); err != nil {
			return err
		}
	}
	if result.ExitCode != exitDone {
		return answer(result.ExitCode)
	}
	return nil
}

// spot is where an approval stands.
type spot struct{ namespace, name string }

// differ holds the cluster as it is and as the manifests want it.
type differ struct {
	*tool
	*cluster
	wanted, removed manifests

	installations map[string]*v1alpha1.PluginInstallation
	policies      []v1alpha1.HumanPolicy
	namespaces    map[string]*corev1.Namespace
	notes         []string
}

func (d *differ) load(ctx context.Context, o diffOptions, path string) error {
	namespace := *d.flags.Namespace
	if o.file != "" {
		sources, err := readSources(d.In, o.file)
		if err != nil {
			return err
		}
		d.wanted = parseManifests(sources, namespace)
		return nil
	}
	g, err := readRange(ctx, o.span, path)
	if err != nil {
		return err
	}
	d.notes = g.notes
	d.wanted = parseManifests(g.after, namespace)
	d.removed = parseManifests(g.before, namespace)
	d.removed.faults = nil // what was invalid never stood in the cluster
	kept := map[string]bool{}
	for _, document := range d.wanted.documents {
		kept[document.identity()] = true
	}
	d.removed.documents = slices.DeleteFunc(d.removed.documents, func(document document) bool { return kept[document.identity()] })
	return nil
}

func (d *differ) run(ctx context.Context) (difference, error) {
	result := difference{Invalid: d.wanted.faults, Changes: []change{}}
	if err := d.read(ctx); err != nil {
		return result, err
	}
	var err error
	if result.Installations, err = d.installationChanges(); err != nil {
		return result, err
	}
	spots, err := d.spots(ctx)
	if err != nil {
		return result, err
	}
	for _, s := range spots {
		c, concerned, err := d.change(ctx, s)
		switch {
		case err != nil:
			return result, err
		case !concerned:
		case c.Effect == effectNone && c.Act == "" && len(c.Notes) == 0 && len(c.GatesClosed)+len(c.GatesOpened) == 0:
			result.Unchanged++
		default:
			result.Changes = append(result.Changes, c)
		}
	}
	result.Notes = d.notes
	result.ExitCode = result.code()
	return result, nil
}

// code is the highest of what applies.
func (r difference) code() int {
	code := exitDone
	for _, c := range r.Installations {
		if len(c.V1Stops) > 0 {
			code = max(code, exitNarrows)
		}
		if len(c.V1Starts) > 0 {
			code = max(code, exitWidens)
		}
	}
	for _, c := range r.Changes {
		switch {
		case c.Asks != nil:
			code = max(code, exitNoEffect)
		case c.Effect == effectWidens:
			code = max(code, exitWidens)
		case c.Effect == effectNarrows:
			code = max(code, exitNarrows)
		}
	}
	if len(r.Invalid) > 0 {
		code = exitInvalid
	}
	return code
}

// read reads what every approval depends on.
func (d *differ) read(ctx context.Context) error {
	all, err := d.cluster.installations(ctx)
	if err != nil {
		return err
	}
	d.installations = map[string]*v1alpha1.PluginInstallation{}
	for i := range all {
		if all[i].DeletionTimestamp == nil {
			d.installations[all[i].Name] = &all[i]
		}
	}
	if d.policies, err = d.humanPolicies(ctx); err != nil {
		return err
	}
	d.namespaces = map[string]*corev1.Namespace{}
	var namespaces corev1.NamespaceList
	err = d.api.List(ctx, &namespaces, client.HasLabels{v1alpha1.LabelWorkspaceID})
	switch {
	case apierrors.IsForbidden(err):
		d.notes = append(d.notes, "you may not list namespaces, so whether two of them claim one workspace can't be told")
		d.namespaces = nil
	case err != nil:
		return reading{doing: "list the workspaces", err: err}
	}
	for i := range namespaces.Items {
		if namespaces.Items[i].DeletionTimestamp == nil {
			d.namespaces[namespaces.Items[i].Name] = &namespaces.Items[i]
		}
	}
	return nil
}

// find returns the document of an object, nil where there is none.
func find[T client.Object](m manifests, namespace, name string) (object T, at document, ok bool) {
	for _, document := range m.documents {
		if o, is := document.object.(T); is && o.GetNamespace() == namespace && o.GetName() == name {
			return o, document, true
		}
	}
	return object, at, false
}

// installationChanges compares the installations themselves.
func (d *differ) installationChanges() ([]installationChange, error) {
	var list []installationChange
	for _, document := range slices.Concat(d.wanted.documents, d.removed.documents) {
		o, ok := document.object.(*v1alpha1.PluginInstallation)
		if !ok {
			continue
		}
		_, _, wanted := find[*v1alpha1.PluginInstallation](d.wanted, "", o.Name)
		live := d.installations[o.Name]
		c := installationChange{Name: o.Name, File: document.file, Line: document.line}
		switch {
		case !wanted && live == nil:
			continue
		case !wanted:
			c.Kind = "Uninstalled"
		case live == nil:
			c.Kind = "Installed"
		default:
			c.Kind = "Changed"
		}
		var was, will authority.Installation
		var err error
		if live != nil {
			if was, _, err = kinds.InstallationOf(live); err != nil {
				return nil, err
			}
		}
		if wanted {
			if will, _, err = kinds.InstallationOf(o); err != nil {
				return nil, err
			}
		}
		if c.Kind == "Changed" && equality.Semantic.DeepEqual(live.Spec, o.Spec) {
			continue
		}
		var byV1, willByV1 []string
		if live != nil {
			byV1 = worksByV1(live, kinds.UnverifiedGrants(live))
		}
		if wanted {
			next := o.DeepCopy()
			next.Status = v1alpha1.PluginInstallationStatus{}
			var unverified []string
			if live != nil {
				next.UID, next.Status.InstallationID = live.UID, live.Status.InstallationID
				unverified = stillUnverified(live, next)
			}
			willByV1 = worksByV1(next, unverified)
			for _, field := range unverified {
				c.Notes = append(c.Notes, field+" grants nothing: nobody has checked who wrote it")
			}
			for _, field := range kinds.OtherGrants(next) {
				c.Notes = append(c.Notes, field+" names another installation and grants nothing")
			}
		}
		c.V1Starts, c.V1Stops = leftOut(willByV1, byV1), leftOut(byV1, willByV1)
		c.Declares, c.Undeclares = ids(will.Declared&^was.Declared), ids(was.Declared&^will.Declared)
		if was.Version != will.Version {
			c.Version = &transition{was.Version, will.Version}
		}
		if was.ManifestDigest != will.ManifestDigest {
			c.ManifestDigest = &transition{was.ManifestDigest, will.ManifestDigest}
		}
		if c.Kind == "Changed" {
			c.Notes = append(c.Notes, keepers(live, leftOut(declaredBy(live), declaredBy(o)), "spec", "manifest", "capabilities")...)
		}
		list = append(list, c)
	}
	return list, nil
}

// spots lists the approvals that the manifests concern.
func (d *differ) spots(ctx context.Context) ([]spot, error) {
	set := map[spot]bool{}
	everywhere := false
	for _, document := range slices.Concat(d.wanted.documents, d.removed.documents) {
		var options []client.ListOption
		switch o := document.object.(type) {
		case *v1alpha1.PluginCapabilityApproval:
			set[spot{o.Namespace, o.Name}] = true
			continue
		case *v1alpha1.PluginInstallation:
			options = append(options, client.MatchingFields{"spec.installationName": o.Name})
		case *v1alpha1.HumanPolicy:
			if everywhere {
				continue
			}
			everywhere = true
		case *corev1.Namespace:
			options = append(options, client.InNamespace(o.Name))
		}
		found, err := d.approvals(ctx, options...)
		if err != nil {
			return nil, err
		}
		for _, o := range found {
			set[spot{o.Namespace, o.Name}] = true
		}
	}
	return slices.SortedFunc(maps.Keys(set), func(a, b spot) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	}), nil
}

// change computes what happens to one approval. concerned is false where nothing
// that it depends on changes.
func (d *differ) change(ctx context.Context, s spot) (c change, concerned bool, err error) {
	live, err := d.approval(ctx, s.namespace, s.name)
	if err != nil {
		return c, false, err
	}
	before, notes, err := d.before(ctx, s, live)
	if err != nil {
		return c, false, err
	}
	after, edited, err := d.after(ctx, s, before)
	if err != nil {
		return c, false, err
	}
	if live == nil && after.approval == nil {
		return c, false, nil
	}
	defer func() { c.Namespace, c.Name = s.namespace, s.name }()
	_, at, _ := find[*v1alpha1.PluginCapabilityApproval](d.wanted, s.namespace, s.name)
	if missing := whatIsMissing(after); missing != "" && after.approval != nil && before.installation == nil {
		return change{
			File: at.file, Line: at.line, Effect: effectNoEffect, Notes: []string{missing},
			Asks: &asking{
				Reason: v1alpha1.ReasonInstallationNotFound, Grants: idsOf(after.approval.Spec.Capabilities),
				SupersedesAct: after.approval.Spec.SupersedesAct, ManifestDigest: after.approval.Spec.ManifestDigest,
			},
		}, true, nil
	}
	key := before.key()
	published := int64(0)
	if live != nil && live.Status.InstallationID == key.InstallationID {
		published = live.Status.Revision
	}
	row, err := d.row(ctx, key, published)
	if err != nil {
		return c, false, err
	}
	if c, err = effectOf(seen(row, live), before, after, edited, d.now()); err != nil {
		return c, false, err
	}
	c.File, c.Line = at.file, at.line
	for _, note := range notes {
		d.note(note)
	}
	if edited && live != nil && after.approval != nil {
		gone := leftOut(idsOf(live.Spec.Capabilities), idsOf(after.approval.Spec.Capabilities))
		c.Notes = append(c.Notes, keepers(live, gone, "spec", "capabilities")...)
	}
	if edited && after.approval != nil && after.workspaceID() == "" {
		c.Notes = append(c.Notes, "the namespace isn't a workspace: it bears no label "+v1alpha1.LabelWorkspaceID)
	}
	if live != nil && after.approval == nil {
		c.Notes = append(c.Notes, "the approval is deleted, which revokes for good and can't say who did it; adding it back unchanged restores nothing")
	}
	return c, true, nil
}

// note says something once that may concern several approvals.
func (d *differ) note(text string) {
	if !slices.Contains(d.notes, text) {
		d.notes = append(d.notes, text)
	}
}

func whatIsMissing(p picture) string {
	switch {
	case p.installation == nil:
		return "no installation has this name"
	case p.installation.Status.InstallationID == "":
		return "the installation has no ID yet, so nobody can have reviewed it: install first, then `kubectl capability review`"
	default:
		return ""
	}
}

// before is the picture of the cluster.
func (d *differ) before(ctx context.Context, s spot, live *v1alpha1.PluginCapabilityApproval) (picture, []string, error) {
	p := picture{approval: live, installation: d.installations[s.name], checked: live != nil && checked(live)}
	var notes []string
	var err error
	if d.namespaces == nil {
		if p.namespace, err = d.workspace(ctx, s.namespace); err != nil {
			return p, nil, reading{
				doing: "read the namespace " + s.namespace, err: err,
				hint: "whoever may list namespaces sees what the manifests do in every workspace; docs/howto/diff-in-ci.md has the rights",
			}
		}
	} else {
		p.namespace = d.namespaces[s.namespace]
		p.conflict = d.conflict(p.namespace)
	}
	if p.policy, _, err = kinds.PolicyOf(authority.BuiltInPolicy(), d.policies); err != nil {
		return p, nil, err
	}
	if p.installation != nil {
		p.principal, notes, err = d.principal(ctx, p.installation, slices.Collect(d.everyInstallation()))
	}
	return p, notes, err
}

func (d *differ) everyInstallation() func(yield func(v1alpha1.PluginInstallation) bool) {
	return func(yield func(v1alpha1.PluginInstallation) bool) {
		for _, name := range slices.Sorted(maps.Keys(d.installations)) {
			if !yield(*d.installations[name]) {
				return
			}
		}
	}
}

func (d *differ) conflict(namespace *corev1.Namespace) bool {
	if namespace == nil {
		return false
	}
	for name, other := range d.namespaces {
		if name != namespace.Name && other.Labels[v1alpha1.LabelWorkspaceID] == namespace.Labels[v1alpha1.LabelWorkspaceID] {
			return true
		}
	}
	return false
}

// after is the picture with the manifests applied. edited says that the
// approval's own manifest changes.
func (d *differ) after(ctx context.Context, s spot, before picture) (after picture, edited bool, err error) {
	after = before
	if o, _, ok := find[*v1alpha1.PluginCapabilityApproval](d.wanted, s.namespace, s.name); ok {
		after.approval, edited = applied(before.approval, o)
	} else if _, _, gone := find[*v1alpha1.PluginCapabilityApproval](d.removed, s.namespace, s.name); gone {
		after.approval, edited = nil, before.approval != nil
	}
	after.checked = before.checked || edited
	if o, _, ok := find[*v1alpha1.PluginInstallation](d.wanted, "", s.name); ok {
		installation := o.DeepCopy()
		if before.installation != nil {
			installation = before.installation.DeepCopy()
			installation.Spec = *o.Spec.DeepCopy()
		}
		others := slices.DeleteFunc(slices.Collect(d.everyInstallation()), func(other v1alpha1.PluginInstallation) bool { return other.Name == s.name })
		principal, _, err := d.principal(ctx, installation, others)
		if err != nil {
			return after, edited, err
		}
		if accept := string(installation.Spec.ServiceAccountRef.AcceptUID); accept != "" && accept == principal.AccountUID {
			// The installer acknowledges it; the controllers pin it then.
			installation.Status.ServiceAccountUID = installation.Spec.ServiceAccountRef.AcceptUID
			installation.Status.NamespaceUID = types.UID(principal.NamespaceUID)
		}
		after.installation, after.principal = installation, principal
	} else if _, _, gone := find[*v1alpha1.PluginInstallation](d.removed, "", s.name); gone {
		after.installation = nil
	}
	if o, _, ok := find[*corev1.Namespace](d.wanted, "", s.namespace); ok {
		namespace := o.DeepCopy()
		if before.namespace != nil {
			namespace.UID = before.namespace.UID
		}
		after.namespace = namespace
	} else if _, _, gone := find[*corev1.Namespace](d.removed, "", s.namespace); gone {
		after.namespace = nil
	}
	after.policy, err = d.policyAfter()
	return after, edited, err
}

// applied is the live object with a manifest applied. A manifest that says what
// the object says changes nothing.
func applied(live, wanted *v1alpha1.PluginCapabilityApproval) (after *v1alpha1.PluginCapabilityApproval, edited bool) {
	after = wanted.DeepCopy()
	if after.Spec.State == "" {
		after.Spec.State = v1alpha1.StateActive
	}
	if live == nil {
		after.UID, after.Generation = "new", 1
		return after, true
	}
	spec := after.Spec
	after = live.DeepCopy()
	if equality.Semantic.DeepEqual(normal(live.Spec), normal(spec)) {
		return after, false
	}
	after.Spec = spec
	after.Generation++
	return after, true
}

// normal is a spec as it is compared: the order of a set says nothing.
func normal(spec v1alpha1.PluginCapabilityApprovalSpec) v1alpha1.PluginCapabilityApprovalSpec {
	spec = *spec.DeepCopy()
	slices.Sort(spec.Capabilities)
	return spec
}

func (d *differ) policyAfter() (authority.Policy, error) {
	policies := slices.DeleteFunc(slices.Clone(d.policies), func(p v1alpha1.HumanPolicy) bool {
		_, _, gone := find[*v1alpha1.HumanPolicy](d.removed, "", p.Name)
		return gone
	})
	for _, document := range d.wanted.documents {
		o, ok := document.object.(*v1alpha1.HumanPolicy)
		known := ok && slices.ContainsFunc(policies, func(p v1alpha1.HumanPolicy) bool { return p.Name == o.Name })
		if ok && !known {
			created := *o.DeepCopy()
			created.CreationTimestamp = metav1.NewTime(d.now())
			policies = append(policies, created)
		}
	}
	policy, _, err := kinds.PolicyOf(authority.BuiltInPolicy(), policies)
	return policy, err
}

func idsOf(list []v1alpha1.CapabilityID) []string {
	texts := make([]string, len(list))
	for i, id := range list {
		texts[i] = string(id)
	}
	return texts
}

// headline says an effect in a word for people.
func (c *change) headline() string {
	switch {
	case c.Asks != nil:
		return "asks and does not get"
	case c.Effect == effectWidens:
		return "grants"
	case c.Effect == effectNarrows:
		return "takes away"
	default:
		return "grants nothing and takes nothing away"
	}
}

// lines says in detail what changes; each begins with + or - where it is more or
// less.
func (c *change) lines() []string {
	var lines []string
	add := func(sign, suffix string, list []string) {
		for _, id := range list {
			capability, err := contract.ParseCapability(id)
			class := ""
			if err == nil {
				class = "  (" + classOf(capability) + ")"
			}
			lines = append(lines, sign+" "+id+class+suffix)
		}
	}
	add("+", "", c.Grants)
	add("-", "", c.Takes)
	add("+", "  works again", c.Starts)
	add("-", "  stops working", c.Stops)
	if c.State != nil {
		lines = append(lines, "  state: "+c.State.From+" -> "+c.State.To)
	}
	if c.ExpiresAt != nil {
		lines = append(lines, "  expires: "+c.ExpiresAt.From+" -> "+c.ExpiresAt.To)
	}
	for _, gate := range c.GatesClosed {
		lines = append(lines, "- gate "+gate+" closes: nothing works until it opens")
	}
	for _, gate := range c.GatesOpened {
		lines = append(lines, "+ gate "+gate+" opens")
	}
	if c.Asks != nil {
		var wants []string
		if len(c.Asks.Grants) > 0 {
			wants = append(wants, "for "+strings.Join(c.Asks.Grants, ", "))
		}
		if c.Asks.Reactivates {
			wants = append(wants, "to be active")
		}
		if c.Asks.Extends {
			wants = append(wants, "to last longer")
		}
		lines = append(lines, "! asks "+strings.Join(wants, ", and ")+": "+c.Asks.sentence())
	}
	if c.Act != "" {
		lines = append(lines, "  it uses up the act "+c.Act)
	}
	for _, note := range c.Notes {
		lines = append(lines, "  note: "+note)
	}
	return lines
}

func (c installationChange) sentence() string {
	var parts []string
	if c.Version != nil {
		parts = append(parts, "version "+orNone(c.Version.From)+" -> "+orNone(c.Version.To))
	}
	if len(c.Declares) > 0 {
		parts = append(parts, "declares in addition "+strings.Join(c.Declares, ", ")+" (granted nowhere by that)")
	}
	if len(c.Undeclares) > 0 {
		parts = append(parts, "no longer declares "+strings.Join(c.Undeclares, ", "))
	}
	if len(c.V1Starts) > 0 {
		parts = append(parts, "may in addition, by v1 and in every workspace: "+strings.Join(c.V1Starts, ", "))
	}
	if len(c.V1Stops) > 0 {
		parts = append(parts, "may no longer, by v1: "+strings.Join(c.V1Stops, ", "))
	}
	if c.ManifestDigest != nil && c.ManifestDigest.To != "" {
		parts = append(parts, "new manifest digest "+c.ManifestDigest.To)
	}
	parts = append(parts, c.Notes...)
	if len(parts) == 0 {
		return strings.ToLower(c.Kind)
	}
	return strings.ToLower(c.Kind) + ": " + strings.Join(parts, "; ")
}

func declaredBy(o *v1alpha1.PluginInstallation) []string {
	list := make([]string, len(o.Spec.Manifest.Capabilities))
	for i, declared := range o.Spec.Manifest.Capabilities {
		list[i] = string(declared.ID)
	}
	return list
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

func (c *change) title() string {
	title := c.Name + " in " + c.Namespace
	if c.WorkspaceID != "" && c.WorkspaceID != c.Namespace {
		title += " (workspace " + c.WorkspaceID + ")"
	}
	return title
}

func (c *change) where() string {
	if c.File == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d", visible(c.File), c.Line)
}

// summary counts what there is.
func (r difference) summary() string {
	counts := map[string]int{}
	for i := range r.Changes {
		counts[r.Changes[i].headline()]++
	}
	var parts []string
	more, less := 0, 0
	for _, c := range r.Installations {
		if len(c.V1Starts) > 0 {
			more++
		}
		if len(c.V1Stops) > 0 {
			less++
		}
	}
	if more > 0 {
		parts = append(parts, count(more, "installation", "installations")+" that may do more by v1")
	}
	if less > 0 {
		parts = append(parts, count(less, "installation", "installations")+" that may do less by v1")
	}
	for _, word := range []string{"grants", "takes away", "asks and does not get", "grants nothing and takes nothing away"} {
		if n := counts[word]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s that %s", count(n, "approval", "approvals"), plural(word, n)))
		}
	}
	if len(r.Invalid) > 0 {
		parts = append(parts, count(len(r.Invalid), "fault", "faults"))
	}
	if len(parts) == 0 {
		return "Nothing changes."
	}
	return strings.Join(parts, ", ") + "."
}

// plural turns the words of headline into those of several.
func plural(word string, n int) string {
	if n == 1 {
		return word
	}
	return strings.NewReplacer("grants", "grant", "takes", "take", "asks", "ask", "does", "do").Replace(word)
}

func (r difference) text(w io.Writer, p painter) {
	for _, c := range r.Installations {
		fmt.Fprintf(w, "%s  %s:%d\n  %s\n\n", p.bold("installation "+visible(c.Name)), visible(c.File), c.Line, visible(c.sentence()))
	}
	for i := range r.Changes {
		c := &r.Changes[i]
		fmt.Fprintln(w, strings.TrimRight(p.bold(visible(c.title()))+": "+c.headline()+"  "+c.where(), " "))
		for _, line := range c.lines() {
			line = visible(line)
			switch line[0] {
			case '+':
				line = p.yellow(line)
			case '-', '!':
				line = p.red(line)
			}
			fmt.Fprintln(w, "  "+line)
		}
		fmt.Fprintln(w)
	}
	for _, f := range r.Invalid {
		fmt.Fprintln(w, p.red("invalid:"), f)
	}
	for _, note := range r.Notes {
		fmt.Fprintln(w, "note:", visible(note))
	}
	fmt.Fprintln(w, r.summary())
}

// markdown is the comment of a pull request.
func (r difference) markdown(w io.Writer) {
	fmt.Fprintln(w, "### Plugin capabilities")
	fmt.Fprintln(w, "\n"+r.summary())
	if len(r.Changes)+len(r.Installations) > 0 {
		fmt.Fprintln(w, "\n| What | Effect | Detail |\n|---|---|---|")
	}
	for _, c := range r.Installations {
		fmt.Fprintf(w, "| installation %s | %s | %s |\n", cell(c.Name), strings.ToLower(c.Kind), cell(c.sentence()))
	}
	for i := range r.Changes {
		c := &r.Changes[i]
		var detail []string
		for _, line := range c.lines() {
			detail = append(detail, cell(strings.TrimSpace(line)))
		}
		effect := c.headline()
		if c.Effect == effectWidens || c.Asks != nil {
			effect = "**" + effect + "**"
		}
		fmt.Fprintf(w, "| %s | %s | %s |\n", cell(c.title()), effect, strings.Join(detail, "<br>"))
	}
	if len(r.Invalid) > 0 {
		fmt.Fprintln(w, "\n**Invalid**")
		for _, f := range r.Invalid {
			fmt.Fprintln(w, "- "+cell(f.String()))
		}
	}
	for _, note := range r.Notes {
		fmt.Fprintln(w, "\nNote: "+cell(note))
	}
}

// cell keeps a text inside its cell, and what it says from being taken for
// markup, for a link, for somebody or for another issue: manifests hold what a
// stranger wrote.
func cell(text string) string {
	text = visible(strings.NewReplacer("\n", " ", "\r", " ", "\t", " ").Replace(text))
	return strings.NewReplacer(
		"&", "&amp;", "<", "&lt;", ">", "&gt;", "\\", "&#92;", "|", "\\|", "`", "\\`", "[", "\\[", "]", "\\]",
		"*", "\\*", "_", "\\_", "~", "\\~", "!", "\\!", "$", "\\$",
		"@", "@\u200b", "#", "#\u200b", "://", ":\u200b//", "www.", "www\u200b.",
	).Replace(text)
}
