package kubectl_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	lua "github.com/yuin/gopher-lua"
	"sigs.k8s.io/yaml"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/test/world"
)

const healthFile = "../../config/samples/gitops/argocd/health.lua"

// health runs the check that we ship for Argo CD on an object, as Argo CD does: the
// object is the global obj, and the script returns a table.
func health(t *testing.T, object any) (status, message string) {
	t.Helper()
	script, err := os.ReadFile(healthFile)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var fields any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	state := lua.NewState()
	defer state.Close()
	state.SetGlobal("obj", luaValue(state, fields))
	if err := state.DoString(string(script)); err != nil {
		t.Fatal(err)
	}
	result, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("it returns %v", state.Get(-1))
	}
	return result.RawGetString("status").String(), result.RawGetString("message").String()
}

func luaValue(state *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for name, member := range v {
			table.RawSetString(name, luaValue(state, member))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, element := range v {
			table.Append(luaValue(state, element))
		}
		return table
	case string:
		return lua.LString(v)
	case float64:
		return lua.LNumber(v)
	case bool:
		return lua.LBool(v)
	default:
		return lua.LNil
	}
}

// The check says what the Host says, at every stage of a real approval, and nothing
// by a status that is older than the object.
func TestGitOps_ArgoCDHealthFollowsTheApproval(t *testing.T) {
	installed(t, "healthy", readTasks)
	is := func(want string, o *v1alpha1.PluginCapabilityApproval) {
		t.Helper()
		flux := map[string]string{"Healthy": "current", "Degraded": "failed"}[want]
		if got := fluxHealth(t, o); got != flux {
			t.Errorf("Flux finds it %q, want %q", got, flux)
		}
		if got, message := health(t, o); got != want || message == "" {
			t.Errorf("it is %s (%s), want %s", got, message, want)
		}
	}
	must(t, 0, world.Ada, "approve", "healthy", "-n", "team-a", "--all-declared", "--yes", "--reason", "x")
	granted := settled(t, "team-a", "healthy", "the grant", works(readTasks))
	is("Healthy", granted)

	for name, age := range map[string]func(*v1alpha1.PluginCapabilityApproval){
		"a newer spec":              func(o *v1alpha1.PluginCapabilityApproval) { o.Generation++ },
		"no status":                 func(o *v1alpha1.PluginCapabilityApproval) { o.Status = v1alpha1.PluginCapabilityApprovalStatus{} },
		"conditions of one before":  func(o *v1alpha1.PluginCapabilityApproval) { o.Generation++; o.Status.ObservedGeneration++ },
		"a revision that is coming": func(o *v1alpha1.PluginCapabilityApproval) { fencing(o) },
	} {
		old := granted.DeepCopy()
		age(old)
		if got, _ := health(t, old); got != "Progressing" {
			t.Errorf("%s: it is %s, want Progressing", name, got)
		}
		if got := fluxHealth(t, old); got == "current" || got == "failed" {
			t.Errorf("%s: Flux finds it %q", name, got)
		}
	}

	mustKube(t, "", "patch", "plugininstallation", "healthy", "--type=merge", "-p", `{"spec":{"suspend":true}}`)
	is("Suspended", settled(t, "team-a", "healthy", "the suspension", func(o *v1alpha1.PluginCapabilityApproval) bool { return len(o.Status.Gates) > 0 }))
	mustKube(t, "", "patch", "plugininstallation", "healthy", "--type=merge", "-p", `{"spec":{"suspend":false}}`)
	settled(t, "team-a", "healthy", "the end of it", works(readTasks))

	must(t, 0, world.Grace, "revoke", "healthy", "-n", "team-a", "--reason", "y")
	is("Healthy", settled(t, "team-a", "healthy", "the revocation", works()))
	mustKube(t, world.Ada, "-n", "team-a", "patch", "pca", "healthy", "--type=merge", "-p", `{"spec":{"state":"Active","approvedBy":"ada@example.com"}}`)
	is("Degraded", settled(t, "team-a", "healthy", "the revert", func(o *v1alpha1.PluginCapabilityApproval) bool {
		return o.Spec.State == v1alpha1.StateActive
	}))
}

// fluxHealth evaluates the expressions that we ship for Flux in its order: an
// object that is in progress is asked nothing else. "" is none of them.
func fluxHealth(t *testing.T, o *v1alpha1.PluginCapabilityApproval) string {
	t.Helper()
	text, err := os.ReadFile("../../config/samples/gitops/flux/approvals.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var kustomization struct {
		Spec struct{ HealthCheckExprs []map[string]string }
	}
	if err := yaml.Unmarshal(text, &kustomization); err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(encoded, &object); err != nil {
		t.Fatal(err)
	}
	if object["status"] == nil {
		object["status"] = map[string]any{}
	}
	env, err := cel.NewEnv(cel.Variable("metadata", cel.DynType), cel.Variable("spec", cel.DynType), cel.Variable("status", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"inProgress", "failed", "current"} {
		ast, issues := env.Compile(kustomization.Spec.HealthCheckExprs[0][state])
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		program, err := env.Program(ast)
		if err != nil {
			t.Fatal(err)
		}
		holds, _, err := program.Eval(object)
		if err != nil {
			t.Fatalf("%s: %v", state, err)
		}
		if holds == types.True {
			return state
		}
	}
	return ""
}

// fencing makes the status that of a revision that can't be recorded yet.
func fencing(o *v1alpha1.PluginCapabilityApproval) {
	for i := range o.Status.Conditions {
		c := &o.Status.Conditions[i]
		switch c.Type {
		case v1alpha1.ConditionFenced:
			c.Status, c.Reason = "False", v1alpha1.ReasonFencing
		case v1alpha1.ConditionReviewRequired:
			c.Status, c.Reason = "Unknown", v1alpha1.ReasonFencing
		}
	}
}

func TestGitOps_TheConfigMapHoldsTheCheck(t *testing.T) {
	script, err := os.ReadFile(healthFile)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../config/samples/gitops/argocd/argocd-cm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var object struct{ Data map[string]string }
	if err := yaml.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	const key = "resource.customizations.health.plugins.kandev.ai_PluginCapabilityApproval"
	if object.Data[key] != string(script) {
		t.Errorf("%s is another check than health.lua", key)
	}
}
