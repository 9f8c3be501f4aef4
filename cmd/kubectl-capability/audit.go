package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/controllers/kinds"
	"github.com/kandev/plugin-host/hostsvc/auditlog"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

type auditOptions struct {
	all        bool
	archive    string
	tokenFile  string
	caFile     string
	serverName string
	output     string
}

func (t *tool) auditCommand() *cobra.Command {
	var o auditOptions
	cmd := &cobra.Command{
		Use:   "audit (NAME | --all)",
		Short: "Tell the history of grants, and prove that nobody changed it",
		Long: `Tell the history of grants, and prove that nobody changed it.

Each revision of a grant is an event that names the hash of the one before it. This
reads the events, checks each against its own digest and against its neighbours, and
names every gap and every change. Retention takes old events out of the cluster
after the Host's store has them: --archive joins those, from a file of JSON lines or
from the Host's metrics server, and then the history must be complete.

The newest event of a grant is the one thing that no later event covers. Compare it
with an archive that was taken before.

Exit codes: 0 unchanged and without a gap, 1 failed, 2 something is missing or was
changed.`,
		Example: `  # What happened to the grants of "standup" in payments?
  kubectl capability audit standup -n payments

  # Everything, from the first revision on
  kubectl capability audit --all --archive audit.jsonl

  # The archive from the Host itself, through kubectl port-forward
  kubectl capability audit --all --archive https://localhost:9443/audit/v1/events --token-file token --ca-file ca.crt --server-name plugin-host.plugin-host-system.svc

  # Export
  kubectl capability audit --all -o jsonl > audit.jsonl`,
		ValidArgsFunction: t.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.audit(cmd.Context(), cmd, o, args)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "every installation in every workspace")
	f.StringVar(&o.archive, "archive", "", "file, or URL of a Host's archive, with events that are no longer in the cluster")
	f.StringVar(&o.tokenFile, "token-file", "", "file with the bearer token for the archive's URL")
	f.StringVar(&o.caFile, "ca-file", "", "certificates that the archive's server is trusted by; the system's, unless given")
	f.StringVar(&o.serverName, "server-name", "", "name in the certificate of the archive's server, where the URL has another one")
	f.StringVarP(&o.output, "output", "o", "table", "table, jsonl for an archive, json or yaml")
	complete(cmd, "output", "table", "jsonl", "json", "yaml")
	return cmd
}

func (t *tool) audit(ctx context.Context, cmd *cobra.Command, o auditOptions, args []string) error {
	switch {
	case o.all && len(args) > 0:
		return problem{what: "audit takes NAME or --all, not both"}
	case !strings.Contains(o.archive, "://") && (o.tokenFile != "" || o.caFile != "" || o.serverName != ""):
		return problem{what: "--token-file, --ca-file and --server-name are for the URL of --archive"}
	}
	if err := oneOf(o.output, "table", "jsonl", "json", "yaml"); err != nil {
		return err
	}
	if !o.all {
		if err := oneName(cmd, args); err != nil {
			return err
		}
	}
	c, err := t.connect()
	if err != nil {
		return err
	}
	h := history{tool: t}
	wanted := func(authority.Event) bool { return true }
	if o.all {
		err = h.live(ctx, c, "", "")
	} else {
		var workspaceID string
		if workspaceID, err = c.auditedWorkspace(ctx, args[0]); err != nil {
			return err
		}
		wanted = func(e authority.Event) bool {
			return e.InstallationName == args[0] && e.Row.Key.WorkspaceID == workspaceID
		}
		err = h.live(ctx, c, args[0], workspaceID)
	}
	if err != nil {
		return err
	}
	if o.archive != "" {
		if err := h.join(ctx, o, wanted); err != nil {
			return err
		}
	}
	return h.tell(o)
}

// auditedWorkspace is the workspace of the namespace, also where the approval or
// its label is gone.
func (c *cluster) auditedWorkspace(ctx context.Context, name string) (string, error) {
	s := subject{name: name, namespace: c.namespace}
	var err error
	if s.approval, err = c.approval(ctx, c.namespace, name); err != nil {
		return "", err
	}
	if s.approval != nil {
		return s.approval.Spec.WorkspaceID, nil
	}
	if err := c.place(ctx, &s); err != nil {
		return "", err
	}
	return s.workspaceID, nil
}

// history collects events, of the cluster and of an archive, and what was wrong
// with them.
type history struct {
	*tool
	events    []authority.Event
	archived  []authority.Event
	published map[authority.Key]uint64
	// unread are events that could not be understood, and archived ones whose
	// content was changed. They don't count.
	unread []string
}

// live reads the events of the cluster, and the revisions that statuses show.
func (h *history) live(ctx context.Context, c *cluster, name, workspaceID string) error {
	var eventOptions, approvalOptions []client.ListOption
	if name != "" {
		eventOptions = append(eventOptions, client.MatchingLabels{v1alpha1.LabelWorkspaceID: workspaceID})
		approvalOptions = append(approvalOptions, client.InNamespace(c.namespace), client.MatchingFields{"spec.installationName": name})
	}
	objects, err := c.events(ctx, eventOptions...)
	if err != nil {
		return err
	}
	for i := range objects {
		if name != "" && objects[i].Spec.InstallationName != name {
			continue
		}
		event, err := kinds.EventOf(&objects[i])
		if err != nil {
			h.unread = append(h.unread, err.Error())
			continue
		}
		h.events = append(h.events, event)
	}
	approvals, err := c.approvals(ctx, approvalOptions...)
	if err != nil {
		return err
	}
	h.published = map[authority.Key]uint64{}
	for _, o := range approvals {
		if o.Status.InstallationID != "" {
			h.published[authority.Key{InstallationID: o.Status.InstallationID, WorkspaceID: o.Spec.WorkspaceID}] = uint64(o.Status.Revision)
		}
	}
	return nil
}

// join adds the events of an archive that wanted asks for.
func (h *history) join(ctx context.Context, o auditOptions, wanted func(authority.Event) bool) error {
	if !strings.Contains(o.archive, "://") {
		file, err := os.Open(o.archive)
		if err != nil {
			return err //nolint:wrapcheck // it names the path
		}
		defer func() { _ = file.Close() }() // it was only read
		return h.decode(o.archive, file, wanted)
	}
	asker, err := newAsker(o)
	if err != nil {
		return err
	}
	// A Host answers for one grant at a time.
	for _, key := range h.keys() {
		body, err := asker.ask(ctx, key)
		if err != nil {
			return err
		}
		err = h.decode(o.archive, body, wanted)
		_ = body.Close() // it was only read
		if err != nil {
			return err
		}
	}
	return nil
}

func (h *history) decode(name string, archive io.Reader, wanted func(authority.Event) bool) error {
	for event, err := range auditlog.Decode(archive) {
		if line, ok := errors.AsType[*auditlog.LineError](err); ok {
			h.unread = append(h.unread, name+": "+line.Error())
			continue
		}
		if err != nil {
			return reading{doing: "read the archive " + name, err: err}
		}
		if err := event.Verify(); err != nil {
			// The cluster's own event of that revision may still be right.
			h.unread = append(h.unread, name+": "+err.Error())
			continue
		}
		if wanted(event) {
			h.archived = append(h.archived, event)
		}
	}
	return nil
}

// keys are the grants that the cluster shows anything of.
func (h *history) keys() []authority.Key {
	set := map[authority.Key]bool{}
	for key := range h.published {
		set[key] = true
	}
	for _, e := range h.events {
		set[e.Row.Key] = true
	}
	return slices.SortedFunc(maps.Keys(set), func(a, b authority.Key) int {
		return cmp.Or(cmp.Compare(a.InstallationID, b.InstallationID), cmp.Compare(a.WorkspaceID, b.WorkspaceID))
	})
}

// asker asks a Host for its archive.
type asker struct {
	url    *url.URL
	token  string
	client *http.Client
}

func newAsker(o auditOptions) (*asker, error) {
	address, err := url.Parse(o.archive)
	if err != nil || address.Host == "" || address.Scheme != "https" && address.Scheme != "http" {
		return nil, problem{what: fmt.Sprintf("--archive: %q is no URL of a Host", o.archive)}
	}
	a := &asker{url: address}
	if o.tokenFile != "" {
		token, err := os.ReadFile(o.tokenFile)
		if err != nil {
			return nil, err //nolint:wrapcheck // it names the path
		}
		if address.Scheme != "https" {
			return nil, problem{what: "--token-file: a token goes over https only"}
		}
		a.token = strings.TrimSpace(string(token))
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.serverName}}
	if o.caFile != "" {
		pem, err := os.ReadFile(o.caFile)
		if err != nil {
			return nil, err //nolint:wrapcheck // it names the path
		}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, problem{what: "--ca-file: " + o.caFile + " holds no certificate"}
		}
	}
	// No redirect: the token is for this server.
	a.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return a, nil
}

func (a *asker) ask(ctx context.Context, key authority.Key) (io.ReadCloser, error) {
	address := *a.url
	address.RawQuery = url.Values{"installation": {key.InstallationID}, "workspace": {key.WorkspaceID}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask for the archive: %w", err)
	}
	if a.token != "" {
		request.Header.Set("Authorization", "Bearer "+a.token)
	}
	response, err := a.client.Do(request)
	if err != nil {
		return nil, reading{doing: "ask for the archive", err: err}
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, problem{
			what: "ask for the archive: " + hostOf(a.url.String()) + " answers " + response.Status,
			hint: "the URL ends in " + auditlog.Path + "; the token is of somebody whom the ClusterRole " + roleAuditor + " is bound to",
		}
	}
	return response.Body, nil
}

// chainReport is the answer of audit for one grant.
type chainReport struct {
	InstallationName string   `json:"installationName"`
	InstallationID   string   `json:"installationID"`
	WorkspaceID      string   `json:"workspaceID"`
	Revisions        int      `json:"revisions"`
	Intact           bool     `json:"intact"`
	Complete         bool     `json:"complete"`
	Findings         []string `json:"findings,omitempty"`
	Story            []string `json:"story"`
}

func (h *history) tell(o auditOptions) error {
	chains := auditlog.Verify(h.events, h.archived, h.published)
	bad := len(h.unread) > 0
	for i := range chains {
		bad = bad || !chains[i].Intact() || o.archive != "" && !chains[i].Complete()
	}
	switch o.output {
	case "jsonl":
		for _, chain := range chains {
			for _, e := range chain.Events {
				if err := auditlog.Encode(h.Out, e); err != nil {
					return err
				}
			}
			for _, f := range chain.Findings {
				fmt.Fprintf(h.ErrOut, "%s in %s: %s: %s\n", orID(chain), chain.Key.WorkspaceID, f.Fault, f.Detail)
			}
		}
		for _, text := range h.unread {
			fmt.Fprintln(h.ErrOut, "not counted:", text)
		}
	case "table":
		h.print(chains, o.archive != "")
	default:
		answer := struct {
			Chains     []chainReport `json:"chains"`
			NotCounted []string      `json:"notCounted,omitempty"`
		}{[]chainReport{}, h.unread}
		for i := range chains {
			answer.Chains = append(answer.Chains, reportOf(&chains[i]))
		}
		if err := h.encode(o.output, answer); err != nil {
			return err
		}
	}
	if bad {
		return answer(exitNo)
	}
	return nil
}

func reportOf(chain *auditlog.Chain) chainReport {
	r := chainReport{
		InstallationName: chain.InstallationName, InstallationID: chain.Key.InstallationID, WorkspaceID: chain.Key.WorkspaceID,
		Revisions: len(chain.Events), Intact: chain.Intact(), Complete: chain.Complete(), Story: []string{},
	}
	for _, f := range chain.Findings {
		r.Findings = append(r.Findings, string(f.Fault)+": "+f.Detail)
	}
	var before *authority.Event
	for i := range chain.Events {
		r.Story = append(r.Story, sentence(before, &chain.Events[i]))
		before = &chain.Events[i]
	}
	return r
}

func orID(chain auditlog.Chain) string {
	if chain.InstallationName != "" {
		return chain.InstallationName
	}
	return chain.Key.InstallationID
}

func (h *history) print(chains []auditlog.Chain, archived bool) {
	w, paint := h.Out, h.paint(h.Out)
	for i := range chains {
		chain := &chains[i]
		fmt.Fprintf(w, "%s in workspace %s (installation %s)\n", paint.bold(orID(*chain)), chain.Key.WorkspaceID, chain.Key.InstallationID)
		var before *authority.Event
		for j := range chain.Events {
			fmt.Fprintln(w, "  "+sentence(before, &chain.Events[j]))
			before = &chain.Events[j]
		}
		for _, f := range chain.Findings {
			text := fmt.Sprintf("%s: %s", f.Fault, f.Detail)
			if f.Fault == auditlog.FaultBeginning && !archived {
				fmt.Fprintf(w, "  %s; give --archive to prove the chain from the first one\n", text)
				continue
			}
			fmt.Fprintln(w, "  "+paint.red(text))
		}
		switch {
		case chain.Complete():
			fmt.Fprintf(w, "  %s: %s, none missing and none changed\n\n", paint.green("Proven"), count(len(chain.Events), "revision", "revisions"))
		case chain.Intact():
			fmt.Fprintf(w, "  %s: %s, none changed\n\n", paint.green("Proven from there on"), count(len(chain.Events), "revision", "revisions"))
		default:
			fmt.Fprintf(w, "  %s\n\n", paint.red("NOT proven"))
		}
	}
	for _, text := range h.unread {
		fmt.Fprintln(w, paint.red("not counted:"), text)
	}
	if len(chains) == 0 && len(h.unread) == 0 {
		fmt.Fprintln(w, "No revision was ever recorded.")
	}
}

// sentence tells one revision. before is the one before it, nil for the first
// that is here.
func sentence(before, e *authority.Event) string {
	r := e.Row
	var b strings.Builder
	fmt.Fprintf(&b, "r%d  %s  %s", r.Revision, instant(r.UpdatedAt), e.Type)
	if r.Cause != "" {
		fmt.Fprintf(&b, " (%s)", r.Cause)
	}
	switch r.Actor.Assurance {
	case authority.ActorSystem:
	case authority.ActorUnknown:
		b.WriteString(" by somebody unknown")
	default:
		fmt.Fprintf(&b, " by %s (%s)", r.Actor.Name, r.Actor.Assurance)
	}
	if r.ApprovedVia != "" && r.Cause == authority.CauseHuman && e.Type == authority.EventGrant {
		fmt.Fprintf(&b, " via %s", r.ApprovedVia)
	}
	if r.ConfirmedBy != "" && e.Type == authority.EventGrant {
		fmt.Fprintf(&b, ", confirmed by %s", r.ConfirmedBy)
	}
	var parts []string
	was := authority.Row{}
	if before != nil {
		was = before.Row
	}
	if before != nil || e.BeforeRevision == 0 {
		grants, takes := lasting(r)&^lasting(was), lasting(was)&^lasting(r)
		if grants != 0 {
			parts = append(parts, "+ "+listed(grants))
		}
		if takes != 0 {
			parts = append(parts, "- "+listed(takes))
		}
	} else {
		parts = append(parts, "granted "+listed(lasting(r)))
	}
	if gates := r.Gates.Names(); len(gates) > 0 && r.Gates != was.Gates {
		parts = append(parts, "gates closed: "+strings.Join(gates, ", "))
	}
	if opened := (was.Gates &^ r.Gates).Names(); len(opened) > 0 {
		parts = append(parts, "gates opened: "+strings.Join(opened, ", "))
	}
	if before != nil && was.Vector.Version != r.Vector.Version {
		parts = append(parts, "version "+orNone(was.Vector.Version)+" -> "+orNone(r.Vector.Version))
	}
	if before != nil && was.Vector.PolicyVersion != r.Vector.PolicyVersion {
		parts = append(parts, "policy "+r.Vector.PolicyVersion)
	}
	switch {
	case r.ExpiresAt.Equal(was.ExpiresAt):
	case r.ExpiresAt.IsZero():
		parts = append(parts, "without an end")
	default:
		parts = append(parts, "until "+instant(r.ExpiresAt))
	}
	if r.Unproven {
		parts = append(parts, "unproven")
	}
	if len(parts) > 0 {
		b.WriteString(": " + strings.Join(parts, "; "))
	}
	if r.Reason != "" {
		fmt.Fprintf(&b, " %q", r.Reason)
	}
	return clean(b.String())
}

// lasting is what a recorded revision grants, gates aside.
func lasting(r authority.Row) contract.CapabilitySet { return grantedIn(r, r.UpdatedAt) }

// clean keeps what an archive says from reaching the terminal as a command.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, text)
}
