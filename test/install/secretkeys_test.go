package install_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestPluginSecretsAgree: config/default with the component lets plugins keep secrets
// by the very Deployment that the chart makes for it.
func TestPluginSecretsAgree(t *testing.T) {
	overlay := t.TempDir()
	from := func(parts ...string) string {
		t.Helper()
		target, err := filepath.Abs(filepath.Join(append([]string{configDir}, parts...)...))
		if err != nil {
			t.Fatal(err)
		}
		relative, err := filepath.Rel(overlay, target)
		if err != nil {
			t.Fatal(err)
		}
		return relative
	}
	text := fmt.Sprintf("resources:\n- %s\ncomponents:\n- %s\n", from("default"), from("manager", "secret-keys"))
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const id = "Deployment/" + host
	fromConfig := parse(t, tool(t, "kustomize", "build", overlay))[id]
	fromChart := charted(t, "--set", "secretKeys.existingSecret=plugin-host-secret-keys")[id]
	if got, want := unsigned(t, fromChart), unsigned(t, fromConfig); got != want {
		t.Errorf("the Deployment differs\nchart:\n%s\nconfig:\n%s", got, want)
	}
	if unsigned(t, fromConfig) == unsigned(t, kustomized(t)[id]) {
		t.Error("the component changes nothing")
	}
}
