package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
)

type installOptions struct {
	file           string
	name           string
	serviceAccount string
	require        []string
	without        []string
	output         string
	yes            bool
	timeout        time.Duration
}

func (t *tool) installCommand() *cobra.Command {
	var o installOptions
	cmd := &cobra.Command{
		Use:   "install -f manifest.yaml|package.tar.gz --service-account NAMESPACE/NAME",
		Short: "Install or upgrade a plugin from its package's manifest",
		Long: `Install or upgrade a plugin from its package's manifest.

A package names capabilities as plugins have always named them: api_read, api_write.
What they mean here are the capability IDs that a human grants, and what the plugin
may do by the v1 methods of before, which no approval is asked for; both are shown,
and you are asked. A field that bears on authority and can't be translated is refused
with its line; --without leaves it out, and the plugin does without. The schema of its
configuration is taken over. What the package tells other parts of Kandev (pages, webhooks, actions and the like) isn't
part of an installation here, and is listed.

The least that a manifest.yaml says:

  id: example.standup
  version: 1.4.0
  capabilities:
    api_read: [tasks]
    api_write: [tasks]

Installing grants no capability: a workspace does, with an approval. Nor does it grant
the v1 writers: a platform administrator does, in spec.compatibility. Installing over an
installation of the name is an upgrade; it needs the same plugin ID. Packages don't
say what the plugin can't work without: give --require again with each upgrade.
To uninstall, delete the PluginInstallation: that revokes every grant, for good.

Exit codes: 0 installed and ready, 1 failed, 2 written and not ready.`,
		Example: `  # The plugin's own namespace and account come first
  kubectl create namespace plugin-standup
  kubectl -n plugin-standup create serviceaccount standup

  kubectl capability install -f manifest.yaml --service-account plugin-standup/standup

  # From a package, and only print what to commit
  kubectl capability install -f standup-1.4.0.tar.gz --service-account plugin-standup/standup -o yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.install(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.file, "filename", "f", "", "the package, or its manifest.yaml")
	f.StringVar(&o.name, "name", "", "name of the installation; the last part of the plugin's ID, unless given")
	f.StringVar(&o.serviceAccount, "service-account", "", "NAMESPACE/NAME of the plugin's ServiceAccount; an upgrade keeps the one that is there")
	f.StringSliceVar(&o.require, "require", nil, "capability ID that the plugin can't work without; may be repeated")
	f.StringSliceVar(&o.without, "without", nil, "field of the manifest to leave out, such as capabilities.state; may be repeated")
	f.StringVarP(&o.output, "output", "o", "", "yaml or json: print the installation and write nothing")
	addYes(cmd, &o.yes)
	addTimeout(cmd, &o.timeout)
	complete(cmd, "output", "yaml", "json")
	completeCapabilities(cmd, "require")
	return cmd
}

func (t *tool) install(ctx context.Context, o installOptions) error {
	if o.file == "" {
		return problem{what: "which plugin? Give its package or manifest with -f", hint: "`kubectl capability install --help` has examples"}
	}
	if o.output != "" {
		if err := oneOf(o.output, "yaml", "json"); err != nil {
			return err
		}
	}
	text, err := readPackage(o.file)
	if err != nil {
		return err
	}
	p, err := translate(o.file, text, o.without)
	if err != nil {
		return err
	}
	if err := p.require(o.require); err != nil {
		return err
	}
	name := o.name
	if name == "" {
		name = shortName(p.pluginID)
	}
	wanted := &v1alpha1.PluginInstallation{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PluginInstallation"},
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: p.spec(),
	}
	if o.serviceAccount != "" {
		namespace, account, ok := strings.Cut(o.serviceAccount, "/")
		if !ok || namespace == "" || account == "" || strings.Contains(account, "/") {
			return problem{what: fmt.Sprintf("--service-account is %q; it is NAMESPACE/NAME", o.serviceAccount)}
		}
		wanted.Spec.ServiceAccountRef = v1alpha1.ServiceAccountReference{Namespace: namespace, Name: account}
	}
	if o.output != "" {
		if o.serviceAccount == "" {
			return noAccount(name)
		}
		p.explain(t)
		return t.printInstallation(o.output, wanted)
	}
	c, err := t.connect()
	if err != nil {
		return err
	}
	return t.installIn(ctx, c, p, wanted, o)
}

func noAccount(name string) problem {
	return problem{
		what: "under which ServiceAccount do the plugin's pods run? Give --service-account NAMESPACE/NAME",
		hint: "it needs a namespace of its own, since whoever can create pods there is the plugin:\n" +
			"kubectl create namespace plugin-" + name + " && kubectl -n plugin-" + name + " create serviceaccount " + name,
	}
}

// printInstallation prints what to commit: the spec, and nothing of a status.
func (t *tool) printInstallation(output string, o *v1alpha1.PluginInstallation) error {
	text, err := sigsyaml.Marshal(struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        map[string]string               `json:"metadata"`
		Spec            v1alpha1.PluginInstallationSpec `json:"spec"`
	}{o.TypeMeta, map[string]string{"name": o.Name}, o.Spec})
	if err == nil && output == "json" {
		text, err = sigsyaml.YAMLToJSON(text)
	}
	if err != nil {
		return fmt.Errorf("print as %s: %w", output, err)
	}
	fmt.Fprintln(t.Out, strings.TrimRight(string(text), "\n"))
	return nil
}

func (t *tool) installIn(ctx context.Context, c *cluster, p parsedPackage, wanted *v1alpha1.PluginInstallation, o installOptions) error {
	live, err := c.installation(ctx, wanted.Name)
	if err != nil {
		return err
	}
	switch {
	case live == nil && o.serviceAccount == "":
		return noAccount(wanted.Name)
	case live != nil && live.Spec.PluginID != wanted.Spec.PluginID:
		return problem{
			what: fmt.Sprintf("the installation %q is of another plugin, %s", wanted.Name, live.Spec.PluginID),
			hint: "choose another name with --name",
		}
	case live != nil && o.serviceAccount == "":
		wanted.Spec.ServiceAccountRef = live.Spec.ServiceAccountRef
	}
	p.explain(t)
	t.explainUpgrade(live, wanted)
	account := wanted.Spec.ServiceAccountRef
	question := fmt.Sprintf("Install %s %s as %q, under %s/%s?", wanted.Spec.PluginID, wanted.Spec.Version, wanted.Name, account.Namespace, account.Name)
	if live != nil {
		question = fmt.Sprintf("Upgrade %q from %s to %s? Every workspace gets a new revision, and grants shrink to what is still declared.", wanted.Name, live.Spec.Version, wanted.Spec.Version)
	}
	fmt.Fprintln(t.Out)
	if err := t.ask(ctx, question, o.yes); err != nil {
		return err
	}
	written := wanted
	if live == nil {
		err = c.api.Create(ctx, written, fieldOwner)
	} else {
		written = live.DeepCopy()
		written.Spec.Version, written.Spec.Manifest, written.Spec.ServiceAccountRef = wanted.Spec.Version, wanted.Spec.Manifest, wanted.Spec.ServiceAccountRef
		keepDeclared(written)
		err = c.api.Update(ctx, written, fieldOwner)
	}
	if err != nil {
		return reading{doing: "write the installation " + wanted.Name, role: "plugin-host-installer", err: err}
	}
	return t.installed(ctx, c, written, live != nil, o.timeout)
}

// explainUpgrade warns of what an upgrade changes besides the version and what is
// declared.
func (t *tool) explainUpgrade(live, wanted *v1alpha1.PluginInstallation) {
	if live == nil {
		return
	}
	paint := t.paint(t.ErrOut)
	var was, will contract.CapabilitySet
	for _, c := range live.Spec.Manifest.Capabilities {
		if c.Required {
			was |= setOf([]v1alpha1.CapabilityID{c.ID})
		}
	}
	for _, c := range wanted.Spec.Manifest.Capabilities {
		if c.Required {
			will |= setOf([]v1alpha1.CapabilityID{c.ID})
		}
	}
	if dropped := was &^ will; dropped != 0 {
		fmt.Fprintln(t.ErrOut, paint.yellow("! no longer required: "+listed(dropped)+"; what is granted works without, unless you --require it again"))
	}
	was1, will1 := legacyNames(live.Spec.Manifest.Legacy), legacyNames(wanted.Spec.Manifest.Legacy)
	if more := leftOut(will1, was1); len(more) > 0 {
		fmt.Fprintln(t.ErrOut, paint.yellow("! declares in addition, for v1: "+strings.Join(more, ", ")))
	}
	if fewer := leftOut(was1, will1); len(fewer) > 0 {
		fmt.Fprintln(t.ErrOut, paint.yellow("! no longer declares, for v1: "+strings.Join(fewer, ", ")))
	}
	kept := live.DeepCopy()
	kept.Spec.Manifest = wanted.Spec.Manifest
	if gone := keepDeclared(kept); len(gone) > 0 {
		fmt.Fprintln(t.ErrOut, paint.yellow("! its grant goes with that: "+strings.Join(gone, ", ")))
	}
	from, to := live.Spec.ServiceAccountRef, wanted.Spec.ServiceAccountRef
	if from.Namespace != to.Namespace || from.Name != to.Name {
		fmt.Fprintln(t.ErrOut, paint.yellow("! another ServiceAccount than "+from.Namespace+"/"+from.Name+
			": nothing works until a platform administrator accepts it, with spec.serviceAccountRef.acceptUID"))
	}
}

// installed waits until the Host says what became of an installation.
func (t *tool) installed(ctx context.Context, c *cluster, written *v1alpha1.PluginInstallation, upgrade bool, timeout time.Duration) error {
	var ready *metav1.Condition
	var now v1alpha1.PluginInstallation
	err := wait.PollUntilContextTimeout(ctx, pollEvery, timeout, true, func(ctx context.Context) (bool, error) {
		err := c.api.Get(ctx, client.ObjectKeyFromObject(written), &now)
		if apierrors.IsNotFound(err) {
			return false, problem{what: "the installation was deleted meanwhile"}
		}
		if err != nil {
			return false, reading{doing: "read the installation " + written.Name, role: roleViewer, err: err}
		}
		ready = meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionReady)
		return ready != nil && ready.ObservedGeneration >= written.Generation, nil
	})
	switch {
	case wait.Interrupted(err):
		fmt.Fprintln(t.ErrOut, "Written, and the Host has not looked at it.")
		fmt.Fprintln(t.ErrOut, "hint: is the plugin host running? `kubectl describe plugininstallation "+written.Name+"` shows its conditions")
		return answer(exitNo)
	case err != nil:
		return err //nolint:wrapcheck // it is the condition's
	case ready.Status != metav1.ConditionTrue:
		why := ready.Message
		if accepted := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionAccepted); accepted != nil && accepted.Status != metav1.ConditionTrue {
			why = accepted.Message
		}
		fmt.Fprintf(t.Out, "%s: %s\n", t.paint(t.Out).yellow("Written, and not ready"), why)
		return answer(exitNo)
	}
	if upgrade {
		fmt.Fprintf(t.Out, "%s to %s: what was granted and is still declared works on, anything new waits for a human; in each workspace's namespace:\n  kubectl capability review %s -n NAMESPACE\n",
			t.paint(t.Out).green("Upgraded"), written.Spec.Version, written.Name)
		t.hintWriters(&now)
		return nil
	}
	fmt.Fprintf(t.Out, "%s: its ID is %s. Nothing is granted yet; in a workspace's namespace:\n  kubectl capability review %s -n NAMESPACE\n",
		t.paint(t.Out).green("Installed"), now.Status.InstallationID, written.Name)
	t.hintWriters(&now)
	return nil
}

// shortName is the part of a plugin ID behind its last dot, as an object's name.
func shortName(pluginID string) string {
	name := pluginID[strings.LastIndex(pluginID, ".")+1:]
	return strings.Trim(strings.ReplaceAll(name, "_", "-"), "-")
}
