package main

import (
	"strings"
	"testing"
)

// What a cluster's schema refuses of a plugin ID, a pull request is told before.
func TestManifests_PluginID(t *testing.T) {
	const manifest = `apiVersion: plugins.kandev.ai/v1alpha1
kind: PluginInstallation
metadata: {name: standup}
spec:
  pluginID: PLUGIN
  version: 1.4.0
  serviceAccountRef: {namespace: plugin-standup, name: standup}
`
	for id, says := range map[string]string{
		"kandev.standup":                             "",
		"Standup":                                    `f:5: spec.pluginID: "Standup" is no plugin ID`,
		"3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77":       "f:5: spec.pluginID: can't be a UUID",
		"3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77.notes": "",
	} {
		var said []string
		for _, fault := range parseManifests([]source{{"f", []byte(strings.Replace(manifest, "PLUGIN", id, 1))}}, "").faults {
			said = append(said, fault.String())
		}
		if all := strings.Join(said, "\n"); len(said) > 1 || (says == "") != (all == "") || !strings.HasPrefix(all, says) {
			t.Errorf("%s: %q, want %q", id, all, says)
		}
	}
}

// So is who installs a package.
func TestTranslate_PluginID(t *testing.T) {
	for id, says := range map[string]string{
		"kandev.standup":                       "",
		"Standup":                              `manifest.yaml:1: id: "Standup" is no plugin ID`,
		"3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77": "manifest.yaml:1: id: can't be a UUID",
	} {
		_, err := translate("manifest.yaml", []byte("id: "+id+"\nversion: '1'\n"), nil)
		if says == "" && err == nil {
			continue
		}
		if says == "" || err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", id, err, says)
		}
	}
}
