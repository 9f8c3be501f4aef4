package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/controllers/kinds"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
	"github.com/kandev/plugin-host/hostsvc/events"
)

type explainOptions struct {
	method     string
	capability string
	revision   uint64
	output     string
}

func (t *tool) explainCommand() *cobra.Command {
	var o explainOptions
	cmd := &cobra.Command{
		Use:   "explain NAME (--method METHOD | --capability ID)",
		Short: "Say why a plugin's call would be allowed or denied now",
		Long: `Say why a plugin's call would be allowed or denied now, check by check.

It is the Host's own decision, on the row that the newest event rebuilds and the
objects of the cluster. WatchEvents needs no capability: of it, each event pattern
that the manifest declares is said to be sent or not, and why. What lives only in the Host's store can't be seen from
here, and the answer says so: a narrowing that was just seen (a hold), and whether
the store vouches for its rows (the lease). Either can only make a call wait or
fail.

Exit codes: 0 allowed, 1 failed, 2 denied or not answered.`,
		Example: `  kubectl capability explain standup -n payments --method UpdateTaskExact
  kubectl capability explain standup -n payments --capability host.v2.read:tasks --revision 3`,
		Args:              oneName,
		ValidArgsFunction: t.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.explain(cmd.Context(), o, args[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.method, "method", "", "the RPC that the plugin calls, such as UpdateTaskExact")
	f.StringVar(&o.capability, "capability", "", "the capability that the call needs")
	f.Uint64Var(&o.revision, "revision", 0, "the capability revision that the plugin sends")
	f.StringVarP(&o.output, "output", "o", "table", "table, json or yaml")
	complete(cmd, "output", "table", "json", "yaml")
	completeCapabilities(cmd, "capability")
	completeBy(cmd, "method", func(*cobra.Command) []string { return methodNames() })
	return cmd
}

func methodNames() []string {
	var names []string
	for _, m := range hostMethods() {
		names = append(names, m.name)
	}
	return names
}

// explanation is the answer of explain.
type explanation struct {
	Plugin      string  `json:"plugin"`
	Namespace   string  `json:"namespace"`
	WorkspaceID string  `json:"workspaceID"`
	Method      string  `json:"method,omitempty"`
	Capability  string  `json:"capability,omitempty"`
	State       string  `json:"state"`
	Reason      string  `json:"reason,omitempty"`
	Retry       string  `json:"retry,omitempty"`
	Allowed     bool    `json:"allowed"`
	Revision    uint64  `json:"revision"`
	Checks      []check `json:"checks,omitempty"`
	// Events are those that a call of WatchEvents is about.
	Events []eventNeed `json:"events,omitempty"`
	Why    []string    `json:"why,omitempty"`
	// Notes are what else is the matter with the installation; they don't decide the call.
	Notes   []string `json:"notes,omitempty"`
	NotSeen []string `json:"notSeen"`
}

type check struct {
	Check string `json:"check"`
	// Verdict is Passed, Failed or NotAsked.
	Verdict string `json:"verdict"`
	Reason  string `json:"reason,omitempty"`
}

func (t *tool) explain(ctx context.Context, o explainOptions, name string) error {
	if err := oneOf(o.output, "table", "json", "yaml"); err != nil {
		return err
	}
	capability, err := t.needed(&o)
	if err != nil {
		return err
	}
	c, err := t.connect()
	if err != nil {
		return err
	}
	var e explanation
	if o.method == events.Method {
		e, err = t.explainEvents(ctx, c, name, o)
	} else {
		e, err = t.explainCall(ctx, c, name, capability, o)
	}
	if err != nil {
		return err
	}
	if o.output == "table" {
		t.printExplanation(e)
	} else if err := t.encode(o.output, e); err != nil {
		return err
	}
	if !e.Allowed {
		return answer(exitNo)
	}
	return nil
}

// needed is the capability that the options are about.
func (t *tool) needed(o *explainOptions) (contract.Capability, error) {
	if (o.method == "") == (o.capability == "") {
		return 0, problem{what: "which call? Give --method or --capability", hint: "methods: " + strings.Join(methodNames(), ", ")}
	}
	if o.capability != "" {
		c, err := contract.ParseCapability(o.capability)
		if err != nil {
			p := problem{what: "--capability: " + err.Error()}
			if near := closest(o.capability, contract.AllCapabilities.IDs()); near != "" {
				p.hint = "is it " + near + "?"
			}
			return 0, p
		}
		return c, nil
	}
	for _, m := range hostMethods() {
		if m.name != o.method {
			continue
		}
		if m.name == events.Method {
			return 0, nil // each event needs what events.Needs says
		}
		if m.open {
			return 0, problem{what: o.method + " needs no capability: every plugin whose token the Host accepts may call it"}
		}
		return m.capability, nil
	}
	p := problem{what: fmt.Sprintf("--method: the Host has no %q", o.method), hint: "it has " + strings.Join(methodNames(), ", ")}
	if near := closest(o.method, methodNames()); near != "" {
		p.hint = "is it " + near + "?"
	}
	return 0, p
}

func (t *tool) explainCall(ctx context.Context, c *cluster, name string, capability contract.Capability, o explainOptions) (explanation, error) {
	s, err := c.subject(ctx, name)
	if err != nil {
		return explanation{}, err
	}
	key := authority.Key{InstallationID: s.installation.Status.InstallationID, WorkspaceID: s.workspaceID}
	published := int64(0)
	if s.approval != nil && s.approval.Status.InstallationID == key.InstallationID {
		published = s.approval.Status.Revision
	}
	row, err := c.row(ctx, key, published)
	if err != nil {
		return explanation{}, err
	}
	row = seen(row, s.approval)
	observed, unseen, err := c.observe(ctx, s, row)
	if err != nil {
		return explanation{}, err
	}
	now := t.now()
	call := authority.Call{Capability: capability, Revision: o.revision}
	inForce := &row
	if row.Revision == 0 {
		inForce = nil
	}
	checks, verdict := authority.Explain(inForce, observed, true, call, now)
	e := explanation{
		Plugin: name, Namespace: s.namespace, WorkspaceID: s.workspaceID, Method: o.method, Capability: capability.String(),
		State: string(verdict.State), Reason: string(verdict.Reason), Allowed: verdict.Allowed(), Revision: verdict.Revision,
		Notes: notesOn(s.installation),
		NotSeen: append([]string{
			"holds: a narrowing that the Host has just seen, and not yet recorded, denies at once",
			"the lease: while the store doesn't vouch for its rows, every call is answered UNAVAILABLE",
			"the plugin's token and pod, which are checked before all of this",
			"the Host's clock, by which a grant expires; this is by yours",
		}, unseen...),
	}
	if info, ok := contract.LookupReason(verdict.Reason); ok {
		e.Retry = string(info.Retry)
	}
	for _, one := range checks {
		verdict := "Passed"
		switch {
		case !one.Asked:
			verdict = "NotAsked"
		case one.Reason != "":
			verdict = "Failed"
		}
		e.Checks = append(e.Checks, check{one.Name, verdict, string(one.Reason)})
	}
	if !e.Allowed {
		e.Why = s.why(row, capability, o.revision)
	}
	return e, nil
}

// observe is what the Host's watches show about the row, from the objects as they
// are now, and what the user may not see of it.
func (c *cluster) observe(ctx context.Context, s subject, row authority.Row) (*authority.Observed, []string, error) {
	policy, err := c.policy(ctx)
	if err != nil {
		return nil, nil, err
	}
	installation, _, err := kinds.InstallationOf(s.installation)
	if err != nil {
		return nil, nil, err
	}
	var unseen []string
	namespaceUID := row.Vector.WorkspaceNamespaceUID
	namespace, err := c.workspace(ctx, s.namespace)
	switch {
	case apierrors.IsForbidden(err) && namespaceUID != "":
		unseen = append(unseen, "the namespace, which you may not read: it counts as the workspace that it was")
	case err != nil:
		return nil, nil, err
	case namespace == nil:
		return nil, nil, missing("namespace", s.namespace, "it was deleted meanwhile, which revokes")
	default:
		namespaceUID = string(namespace.UID)
	}
	v := view.New(policy)
	place := view.Place{Namespace: s.namespace, Name: s.name}
	v.SetInstallation(view.Installation{Installation: installation, PluginID: s.installation.Spec.PluginID})
	v.SetNamespace(s.namespace, view.Namespace{UID: namespaceUID, WorkspaceID: s.workspaceID})
	// The binding is durable in the store; the row was computed for it.
	bound := authority.Workspace{ID: s.workspaceID, Namespace: s.namespace, NamespaceUID: namespaceUID}
	if row.Vector.WorkspaceNamespaceUID != "" {
		bound.Namespace, bound.NamespaceUID = row.Vector.WorkspaceNamespace, row.Vector.WorkspaceNamespaceUID
	}
	v.SetBinding(bound)
	if s.approval != nil {
		v.SetApproval(place, view.Approval{
			UID: string(s.approval.UID), Generation: s.approval.Generation, Spec: kinds.ApprovalOf(s.approval),
			Installation: s.approval.Status.InstallationID, Revision: uint64(s.approval.Status.Revision),
		})
		v.Confirm(place, string(s.approval.UID))
	} else if row.Seen.UID != "" {
		// It was read live: the object that was processed is gone.
		v.SetApproval(place, view.Approval{UID: row.Seen.UID, Generation: row.Seen.Generation})
		v.Confirm(place, row.Seen.UID)
	}
	for _, source := range []view.Source{
		view.SourceApprovals, view.SourceInstallations, view.SourceNamespaces, view.SourcePolicies, view.SourceLedger,
	} {
		v.MarkComplete(source)
	}
	return v.Observe(row.Key), unseen, nil
}

// grantOf is the command that makes a capability work, with what the plugin can't
// work without.
func (s subject) grantOf(capability contract.Capability) string {
	command := "`kubectl capability approve " + s.name + " -n " + s.namespace
	for c := range ((contract.SetOf(capability) | s.required) &^ s.granted()).All() {
		command += " --capability " + c.String()
	}
	return command + "`"
}

// why says in words what stands in the way, and what to do.
func (s subject) why(row authority.Row, capability contract.Capability, revision uint64) []string {
	var why []string
	add := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		if _, said, ok := strings.Cut(text, ": "); !ok || !strings.Contains(strings.Join(why, "\n"), said) {
			why = append(why, text)
		}
	}
	switch {
	case s.approval != nil:
	case s.declared.Has(capability):
		add("there is no approval in %s; %s grants it", s.namespace, s.grantOf(capability))
	default:
		add("there is no approval in %s", s.namespace)
	}
	if !s.declared.Has(capability) {
		add("the manifest in force doesn't declare %s, so nobody can grant it", capability)
	}
	if revision != 0 && revision != row.Revision {
		add("the plugin sent revision %d and %d is in force; it builds a new request on the present one", revision, row.Revision)
	}
	if s.approval == nil {
		return why
	}
	for _, gate := range s.approval.Status.Gates {
		add("gate %s: %s", gate.Type, gate.Message)
		if gate.Type == v1alpha1.GateRequiredCapabilityUnavailable && s.declared.Has(capability) {
			add("%s opens it", s.grantOf(capability))
		}
	}
	waits := meta.IsStatusConditionTrue(s.approval.Status.Conditions, v1alpha1.ConditionReviewRequired)
	for _, inactive := range s.approval.Status.InactiveCapabilities {
		switch {
		case inactive.ID != capability.String():
		case inactive.Reason == v1alpha1.InactiveNotReviewed && !waits:
			add("%s isn't granted: %s; %s grants it", capability, inactive.Reason, s.grantOf(capability))
		default:
			add("%s isn't granted: %s", capability, inactive.Reason)
		}
	}
	for _, c := range s.approval.Status.Conditions {
		if c.Type == v1alpha1.ConditionReviewRequired && c.Status == "True" || c.Type == v1alpha1.ConditionReady && c.Status == "False" {
			add("%s: %s", c.Reason, c.Message)
		}
	}
	if !s.settled() {
		add("the Host has not looked at the approval as it is now")
	}
	return why
}

// notesOn says what of an installation waits for somebody.
func notesOn(o *v1alpha1.PluginInstallation) []string {
	var notes []string
	for _, waits := range waitsOf(o) {
		notes = append(notes, "the installation's "+waits.Type+" ("+waits.Reason+"): "+waits.Message)
	}
	return notes
}

func (t *tool) printExplanation(e explanation) {
	paint := t.paint(t.Out)
	call := e.Capability
	switch {
	case e.Capability == "":
		call = e.Method
	case e.Method != "":
		call = e.Method + " (" + e.Capability + ")"
	}
	verdict := paint.green("allowed")
	if !e.Allowed {
		verdict = paint.red(e.State + "/" + e.Reason)
	}
	fmt.Fprintf(t.Out, "%s in %s calls %s: %s", e.Plugin, e.Namespace, call, verdict)
	if e.Revision > 0 {
		fmt.Fprintf(t.Out, ", at revision %d", e.Revision)
	}
	fmt.Fprintln(t.Out)
	for _, c := range e.Checks {
		mark := paint.green("ok")
		switch c.Verdict {
		case "Failed":
			mark = paint.red("NO")
		case "NotAsked":
			mark = "- "
		}
		line := "  " + mark + "  " + c.Check
		if c.Reason != "" {
			line += ": " + c.Reason
		}
		fmt.Fprintln(t.Out, line)
	}
	t.printEvents(e)
	for _, why := range e.Why {
		fmt.Fprintln(t.Out, "Why:", why)
	}
	for _, note := range e.Notes {
		fmt.Fprintln(t.Out, "Note:", visible(note))
	}
	if e.Retry != "" {
		fmt.Fprintf(t.Out, "What the plugin does with it: %s (docs/reference/results.md)\n", e.Retry)
	}
	fmt.Fprintln(t.Out, "Not seen from here:")
	for _, thing := range e.NotSeen {
		fmt.Fprintln(t.Out, "  "+thing)
	}
}
