package launcher_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/test/world"
)

// The whole way: the real Host with its control plane, the pod's own token, the
// launcher, and the plugin, which knows none of them.
func TestAnUnmodifiedPluginAgainstTheHost(t *testing.T) {
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin+"/", "./cmd/plugin-host", "./test/demo/sample-plugin")
	build.Dir = "../.."
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the Host: %v\n%s", err, text)
	}
	w, err := world.Start(t.Context(), world.Options{Bin: bin})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	}()
	err = w.API.Create(t.Context(), &v1alpha1.PluginInstallation{
		ObjectMeta: metav1.ObjectMeta{Name: world.Plugin},
		Spec: v1alpha1.PluginInstallationSpec{
			PluginID: "sample", Version: "1.0.0",
			Manifest: v1alpha1.PluginManifest{Legacy: &v1alpha1.LegacyManifest{
				State: true, Events: []string{"plugin.sample.*"},
			}},
			ServiceAccountRef: v1alpha1.ServiceAccountReference{Namespace: "plugin-sample", Name: "sample"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Installation(t.Context()); err != nil {
		t.Fatal(err)
	}
	peer := &host{address: w.Address, caFile: w.CAFile, tokenFile: w.TokenFile}
	folder := t.TempDir()
	l := launch(t, peer, folder, "--package="+packageOf(t, "1.0.0"))

	eventually(t, "the Host keeps the plugin's state", func() bool {
		code, text := l.hook(t, "do=state&key=k", "")
		return code == http.StatusOK && text == `{"count":2}`
	})
	if code, text := l.hook(t, "do=secret", ""); code != http.StatusConflict || text != "PermissionDenied: capability 'secrets' not declared" {
		t.Errorf("what isn't declared: %d %q", code, text)
	}

	// The place in the events is kept as soon as the stream is open.
	eventually(t, "the launcher follows events", func() bool {
		text, err := os.ReadFile(filepath.Join(folder, "sample", ".events-cursor"))
		return err == nil && len(text) > 0
	})
	seen := func(name string) (ids []string) {
		_, text := l.hook(t, "do=value&key=event.plugin.sample."+name, "")
		var value struct {
			IDs []string `json:"ids"`
		}
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		return value.IDs
	}
	if code, text := l.hook(t, "do=emit&name=first", ""); code != http.StatusNoContent {
		t.Fatalf("emitting answers %d %q", code, text)
	}
	eventually(t, "the event is delivered", func() bool { return len(seen("first")) == 1 })
	if code := l.end(t); code != 0 {
		t.Errorf("ends with status %d", code)
	}

	// The upgraded plugin has what it kept.
	l = launch(t, peer, folder, "--package="+packageOf(t, "1.1.0"))
	if ids := seen("first"); len(ids) != 1 {
		t.Errorf("after the upgrade the event was delivered as %q", ids)
	}
	if code, text := l.hook(t, "do=emit&name=second", ""); code != http.StatusNoContent {
		t.Fatalf("emitting answers %d %q", code, text)
	}
	eventually(t, "the event is delivered after the upgrade", func() bool { return len(seen("second")) == 1 })
	token, err := os.ReadFile(w.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	l.end(t)
	if strings.Contains(l.log(), strings.TrimSpace(string(token))) {
		t.Error("the log holds the pod's token")
	}
}
