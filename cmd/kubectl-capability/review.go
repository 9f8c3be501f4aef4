package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
)

type reviewOptions struct {
	output       string
	file         string
	inPlace      bool
	unproven     bool
	capabilities []string
	allDeclared  bool
	expiresIn    string
	reason       string
	approvedBy   string
	confirmedBy  string
	via          string
}

func (t *tool) reviewCommand() *cobra.Command {
	var o reviewOptions
	cmd := &cobra.Command{
		Use:   "review (NAME | -f FILE|DIR | --unproven)",
		Short: "Show what a plugin asks for, what it has, and who could abuse it",
		Long: `Show what a plugin asks for in a workspace, what it is granted, what works, and
why the rest doesn't; who approved, and how far that name can be trusted; who can
become the plugin, and who can approve. The last two come from RBAC alone: other
authorizers, members of groups and people with rights on nodes can't be seen.

With -o yaml it prints the approval to commit, with everything right: the IDs, the
digest, the act that it supersedes, and you as the approver. It lists what is
granted now, or what the plugin requires if nothing is; --capability and
--all-declared choose otherwise. An expiry that is there stays, unless --expires-in
says otherwise. Nothing is written to the cluster.

With -f it rewrites approvals in a folder for this cluster: the installation's ID,
the manifest digest and the act. It never adds a capability to them.`,
		Example: `  # What does "standup" want, and what has it got in the workspace payments?
  kubectl capability review standup -n payments

  # The manifest to commit
  kubectl capability review standup -n payments -o yaml --capability host.v2.read:tasks > standup.yaml

  # The same where Flux applies it
  kubectl capability review standup -n payments -o yaml --via system:serviceaccount:flux-system:kustomize-controller

  # A new cluster from the same Git
  kubectl capability review -f clusters/new --in-place

  # Grants that were made before the admission policies were proven in force
  kubectl capability review --unproven`,
		ValidArgsFunction: t.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.review(cmd.Context(), cmd, o, args)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.output, "output", "o", "table", "table, or yaml or json for the approval to commit")
	f.StringVarP(&o.file, "filename", "f", "", "file or folder whose approvals are rewritten for this cluster")
	f.BoolVar(&o.inPlace, "in-place", false, "with -f: write the files instead of printing them")
	f.BoolVar(&o.unproven, "unproven", false, "list the grants whose approver nobody has verified, in all namespaces")
	f.StringSliceVar(&o.capabilities, "capability", nil, "with -o: a capability to grant; may be repeated")
	f.BoolVar(&o.allDeclared, "all-declared", false, "with -o: grant everything that the plugin declares")
	f.StringVar(&o.expiresIn, "expires-in", "", "with -o: end the grant after this time, such as 12h or 30d, instead of when it ends now")
	f.StringVar(&o.reason, "reason", "", "with -o: why, for those who read the history")
	f.StringVar(&o.approvedBy, "approved-by", "", "with -o and --via: the human who approves; you, unless given")
	f.StringVar(&o.confirmedBy, "confirmed-by", "", "with -o and --via: the second human, where the human policy asks for two")
	f.StringVar(&o.via, "via", "", "with -o: the GitOps identity that will apply the manifest")
	complete(cmd, "output", "table", "yaml", "json")
	completeCapabilities(cmd, "capability")
	return cmd
}

func (t *tool) review(ctx context.Context, cmd *cobra.Command, o reviewOptions, args []string) error {
	if err := oneOf(o.output, "table", "yaml", "json"); err != nil {
		return err
	}
	adds := len(o.capabilities) > 0 || o.allDeclared
	switch {
	case o.file != "" && adds:
		return problem{
			what: "a folder is rewritten as it was reviewed: --capability and --all-declared would add to it",
			hint: "to grant more, `kubectl capability review NAME -o yaml` prints another manifest",
		}
	case o.file != "" && (len(args) > 0 || o.unproven), o.unproven && len(args) > 0:
		return problem{what: "review takes one of NAME, -f and --unproven"}
	case o.output == "table" && (adds || o.via != "" || o.expiresIn != "" || o.reason != "" || o.approvedBy != "" || o.confirmedBy != ""):
		return problem{what: "--capability, --all-declared, --expires-in, --reason, --approved-by, --confirmed-by and --via are for the manifest", hint: "add -o yaml, or use `kubectl capability approve` to grant at once"}
	case (o.approvedBy != "" || o.confirmedBy != "") && o.via == "":
		return problem{what: "--approved-by and --confirmed-by are for a GitOps identity to claim, so they need --via", hint: "whoever writes to the cluster themselves is the approver; the second human runs `kubectl capability confirm`"}
	case o.inPlace && o.file == "":
		return problem{what: "--in-place is for -f"}
	}
	c, err := t.connect()
	if err != nil {
		return err
	}
	switch {
	case o.file != "":
		return t.reviewFiles(ctx, c, o)
	case o.unproven:
		return t.reviewUnproven(ctx, c)
	}
	if err := oneName(cmd, args); err != nil {
		return err
	}
	s, err := c.subject(ctx, args[0])
	if err != nil {
		return err
	}
	if o.output == "table" {
		return t.show(ctx, c, s)
	}
	return t.printDraft(ctx, c, s, o)
}

// printDraft prints the approval to commit.
func (t *tool) printDraft(ctx context.Context, c *cluster, s subject, o reviewOptions) error {
	p := proposal{reason: o.reason, via: o.via, approvedBy: o.approvedBy, confirmedBy: o.confirmedBy}
	var err error
	if p.capabilities, err = s.choose(o.capabilities); err != nil {
		return err
	}
	switch {
	case o.allDeclared:
		p.capabilities = s.declared
	case len(o.capabilities) > 0:
	case s.granted() != 0:
		p.capabilities = s.granted()
	default:
		p.capabilities = s.required
	}
	if p.approvedBy == "" {
		if p.approvedBy, err = c.whoami(ctx); err != nil {
			return err
		}
	}
	if p.expiresAt, err = t.expiry(o.expiresIn); err != nil {
		return err
	}
	if o.expiresIn == "" && s.approval != nil && s.approval.Spec.ExpiresAt != nil {
		// Without it, what is printed would grant for ever what has an end.
		if end := s.approval.Spec.ExpiresAt.Time; end.After(t.now()) {
			p.expiresAt = end
		} else {
			fmt.Fprintf(t.ErrOut, "note: the grant ended at %s, and this one has no end; --expires-in sets one\n", instant(end))
		}
	}
	if !s.settled() {
		fmt.Fprintln(t.ErrOut, "note: the Host has not looked at the approval as it is now; its act may change")
	}
	text := s.manifest(s.draft(p))
	if o.output == "yaml" {
		fmt.Fprint(t.Out, text)
		return nil
	}
	asJSON, err := sigsyaml.YAMLToJSON([]byte(text))
	if err != nil {
		return fmt.Errorf("print as json: %w", err)
	}
	fmt.Fprintln(t.Out, string(asJSON))
	return nil
}

// expiry is the instant that lies a time such as 12h or 30d ahead, zero for none.
func (t *tool) expiry(in string) (time.Time, error) {
	if in == "" {
		return time.Time{}, nil
	}
	text := in
	days := time.Duration(0)
	if n, rest, ok := strings.Cut(in, "d"); ok {
		var whole int
		if _, err := fmt.Sscanf(n, "%d", &whole); err != nil || fmt.Sprint(whole) != n {
			return time.Time{}, badTime(in)
		}
		days, text = time.Duration(whole)*24*time.Hour, rest
	}
	d := time.Duration(0)
	if text != "" {
		var err error
		if d, err = time.ParseDuration(text); err != nil {
			return time.Time{}, badTime(in)
		}
	}
	if d += days; d < time.Minute {
		return time.Time{}, badTime(in)
	}
	return t.now().Add(d).UTC().Truncate(time.Second), nil
}

func badTime(text string) problem {
	return problem{what: fmt.Sprintf("--expires-in is %q; it is a time of at least a minute, such as 90m, 12h or 30d", text)}
}

// show prints everything that a human looks at before a decision.
func (t *tool) show(ctx context.Context, c *cluster, s subject) error {
	w, paint := t.Out, t.paint(t.Out)
	fmt.Fprintf(w, "%s %s (%s) in %s\n\n", paint.bold(s.name), s.installation.Spec.Version, s.installation.Spec.PluginID, s.namespace)
	ready := "not ready"
	if c := meta.FindStatusCondition(s.installation.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		if ready = "ready"; c.Status != metav1.ConditionTrue {
			ready = "not ready: " + c.Message
		}
	}
	account := s.installation.Spec.ServiceAccountRef.Namespace + "/" + s.installation.Spec.ServiceAccountRef.Name
	facts(w, append([]string{
		"Installation", s.installation.Status.InstallationID + ", " + ready, "Runs as", account,
		"Manifest", s.installation.Status.ManifestDigest, "Workspace", s.workspaceID,
	}, s.grantFacts()...)...)
	fmt.Fprintln(w)
	table(w, s.capabilityRows())
	for _, declared := range s.installation.Spec.Manifest.Capabilities {
		if declared.Reason != "" {
			fmt.Fprintf(w, "\n%s: %s", declared.ID, strings.Join(strings.Fields(declared.Reason), " "))
		}
	}
	fmt.Fprintln(w)
	if rows := legacyRows(s.installation); len(rows) > 0 {
		fmt.Fprintln(w)
		table(w, rows)
		t.hintWriters(s.installation)
	}
	for _, c := range waitsOf(s.installation) {
		says := "Waits for a human"
		if c.Type == v1alpha1.ConditionConfigReady {
			says = "Has no configuration"
		}
		fmt.Fprintf(w, "\n%s (%s): %s\n", paint.yellow(says), c.Reason, visible(c.Message))
	}
	if s.approval != nil {
		for _, gate := range s.approval.Status.Gates {
			fmt.Fprintf(w, "\n%s %s: %s\n", paint.red("Gate"), gate.Type, gate.Message)
		}
		c := meta.FindStatusCondition(s.approval.Status.Conditions, v1alpha1.ConditionReviewRequired)
		if c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == s.approval.Generation {
			fmt.Fprintf(w, "\n%s (%s): %s\n", paint.yellow("Waits for a human"), c.Reason, c.Message)
		}
		if !s.settled() {
			fmt.Fprintln(w, "\n"+paint.yellow("Not settled")+": the Host has not looked at the approval as it is now")
		}
	}
	t.showPeople(ctx, c, "Who can become the plugin: whoever can do this in "+s.installation.Spec.ServiceAccountRef.Namespace,
		s.installation.Spec.ServiceAccountRef.Namespace, becoming(s.installation.Spec.ServiceAccountRef.Name))
	t.showPeople(ctx, c, "Who can approve in "+s.namespace+", or pass for somebody who can", s.namespace, approving())
	fmt.Fprintf(w, "\nTo grant:  kubectl capability approve %s -n %s --capability ID\nTo commit: kubectl capability review %s -n %s -o yaml\n", s.name, s.namespace, s.name, s.namespace)
	return nil
}

// grantFacts are what is in force.
func (s subject) grantFacts() []string {
	if s.approval == nil {
		return []string{"Approval", "none: nothing is granted here"}
	}
	st := s.approval.Status
	expires := "never"
	if st.ExpiresAt != nil {
		expires = instant(st.ExpiresAt.Time)
	}
	who := st.ApprovedBy
	if who != "" {
		who += " " + trust(st.ApproverAssurance)
		if st.IssuedAt != nil {
			who += ", " + instant(st.IssuedAt.Time)
		}
	}
	works := "nothing"
	if st.EffectiveSummary != "" {
		works = strings.Replace(st.EffectiveSummary, "/", " of ", 1) + " declared capabilities"
	}
	return []string{
		"Approval", fmt.Sprintf("%s, revision %d", st.State, st.Revision), "Works", works, "Expires", expires,
		"Act", st.Act, "Approved by", who, "Applied by", st.ApprovedVia, "Confirmed by", st.ConfirmedBy,
	}
}

// trust says how far an approver's name can be trusted.
func trust(a v1alpha1.ApproverAssurance) string {
	switch a {
	case v1alpha1.ApproverVerified:
		return "(Verified: admission checked that they wrote it)"
	case v1alpha1.ApproverClaimed:
		return "(Claimed: a GitOps identity applied it and names them; only the review in Git knows)"
	case v1alpha1.ApproverUnproven:
		return "(Unproven: nobody has checked; review it and approve anew)"
	default:
		return "(not known)"
	}
}

// capabilityRows are the capabilities that are declared or asked for.
func (s subject) capabilityRows() [][]string {
	rows := [][]string{{"CAPABILITY", "CLASS", "ASKED", "GRANTED", "WORKS", "WHY NOT"}}
	var effective, asked contract.CapabilitySet
	why := map[string]string{}
	if s.approval != nil {
		effective = setOf(s.approval.Status.EffectiveCapabilities)
		asked = setOf(s.approval.Spec.Capabilities)
		for _, inactive := range s.approval.Status.InactiveCapabilities {
			why[inactive.ID] = string(inactive.Reason)
		}
	}
	granted := s.granted()
	for c := range (s.declared | asked).All() {
		need := "optional"
		switch {
		case !s.declared.Has(c):
			need = "no"
		case s.required.Has(c):
			need = "required"
		}
		reason := why[c.String()]
		if reason == "" && !granted.Has(c) {
			reason = "NotReviewed"
		}
		if reason == "" && !effective.Has(c) {
			reason = s.blocked()
		}
		rows = append(rows, []string{c.String(), classOf(c), need, yes(granted.Has(c)), yes(effective.Has(c)), reason})
	}
	return rows
}

// blocked says what keeps a grant from working.
func (s subject) blocked() string {
	var gates []string
	for _, gate := range s.approval.Status.Gates {
		gates = append(gates, string(gate.Type))
	}
	if len(gates) > 0 {
		return strings.Join(gates, ", ")
	}
	return string(s.approval.Status.State)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func (t *tool) showPeople(ctx context.Context, c *cluster, title, namespace string, wants []want) {
	fmt.Fprintf(t.Out, "\n%s (by RBAC; best effort)\n", title)
	all, err := c.rights(ctx, namespace)
	if apierrors.IsForbidden(err) {
		fmt.Fprintln(t.Out, "  can't be told: you may not list roles and their bindings")
		return
	}
	if err != nil {
		fmt.Fprintln(t.Out, "  can't be told:", explainError(err).what)
		return
	}
	people, own := holders(all, wants)
	for _, p := range people {
		fmt.Fprintf(t.Out, "  %s: %s\n", p.subject, strings.Join(p.does, ", "))
	}
	if own > 0 {
		fmt.Fprintf(t.Out, "  and %s of Kubernetes itself\n", count(own, "component", "components"))
	}
	if len(people)+own == 0 {
		fmt.Fprintln(t.Out, "  nobody")
	}
}

// reviewUnproven lists the grants that were made while nobody checked who wrote.
func (t *tool) reviewUnproven(ctx context.Context, c *cluster) error {
	all, err := c.approvals(ctx)
	if err != nil {
		return err
	}
	rows := unproven(all)
	if len(rows) == 0 {
		fmt.Fprintln(t.Out, "Every grant in force was made while the admission policies were proven.")
		return nil
	}
	table(t.Out, append([][]string{{"NAMESPACE", "PLUGIN", "REVISION", "APPROVED BY", "WORKS"}}, rows...))
	fmt.Fprintln(t.ErrOut, "hint: look at each with `kubectl capability review`, and approve it anew or revoke it")
	return answer(exitNo)
}

// unproven picks the grants that stand and whose approver nobody verified. One that
// is blocked by a gate stands too: it works again when the gate opens.
func unproven(all []v1alpha1.PluginCapabilityApproval) [][]string {
	var rows [][]string
	for _, o := range all {
		if o.Status.ApproverAssurance == v1alpha1.ApproverUnproven && o.Status.State == v1alpha1.StateActive {
			rows = append(rows, []string{o.Namespace, o.Name, fmt.Sprint(o.Status.Revision), o.Status.ApprovedBy, o.Status.EffectiveSummary})
		}
	}
	return rows
}

// reviewFiles rewrites a folder for this cluster.
func (t *tool) reviewFiles(ctx context.Context, c *cluster, o reviewOptions) error {
	sources, err := readSources(t.In, o.file)
	if err != nil {
		return err
	}
	m := parseManifests(sources, *t.flags.Namespace)
	if len(m.faults) > 0 {
		for _, f := range m.faults {
			fmt.Fprintln(t.ErrOut, "invalid:", f)
		}
		return problem{what: "nothing was rewritten: " + count(len(m.faults), "manifest is", "manifests are") + " invalid"}
	}
	edits := map[string][]edit{}
	changed := 0
	for _, d := range m.documents {
		approval, ok := d.object.(*v1alpha1.PluginCapabilityApproval)
		if !ok {
			continue
		}
		found, notes, err := c.editsFor(ctx, d, approval)
		if err != nil {
			return err
		}
		for _, note := range notes {
			fmt.Fprintln(t.ErrOut, "note:", note)
		}
		if len(found) > 0 {
			changed++
		}
		edits[d.file] = append(edits[d.file], found...)
	}
	for i, s := range sources {
		text, err := rewrite(string(s.text), edits[s.name])
		if err != nil {
			return err
		}
		switch {
		case !o.inPlace:
			if i > 0 && !strings.HasPrefix(text, "---") {
				fmt.Fprintln(t.Out, "---")
			}
			fmt.Fprint(t.Out, text)
		case text != string(s.text):
			if err := os.WriteFile(s.name, []byte(text), 0o600); err != nil { // the mode of a file that is there stays
				return err //nolint:wrapcheck // it names the path
			}
		}
	}
	fmt.Fprintf(t.ErrOut, "%s rewritten for this cluster; no capability was added\n", count(changed, "approval", "approvals"))
	return nil
}

// editsFor looks up what an approval's manifest has to say in this cluster.
func (c *cluster) editsFor(ctx context.Context, d document, o *v1alpha1.PluginCapabilityApproval) ([]edit, []string, error) {
	installation, err := c.installation(ctx, o.Name)
	if err != nil {
		return nil, nil, err
	}
	live, err := c.approval(ctx, o.Namespace, o.Name)
	if err != nil {
		return nil, nil, err
	}
	namespace, err := c.workspace(ctx, o.Namespace)
	if err != nil {
		return nil, nil, err
	}
	workspaceID := ""
	if namespace != nil {
		workspaceID = namespace.Labels[v1alpha1.LabelWorkspaceID]
	}
	edits, notes := forCluster(d, o, live, installation, workspaceID)
	return edits, notes, nil
}
