package view_test

import (
	"testing"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
)

func TestInstalledPlugin(t *testing.T) {
	v := view.New(authority.Policy{})
	install := func(name, pluginID string) {
		v.SetInstallation(view.Installation{Installation: authority.Installation{Name: name, UID: name}, PluginID: pluginID})
	}
	wants := func(when, name, want string) {
		t.Helper()
		if got := v.InstalledPlugin(name); got != want {
			t.Errorf("%s, %q begins with the plugin %q, want %q", when, name, got, want)
		}
	}
	wants("with nothing installed", "a.b.c", "")
	install("short", "a")
	install("long", "a.b")
	install("again", "a.b") // a plugin can be installed twice
	for name, want := range map[string]string{
		"a": "a", "a.b": "a.b", "a.b.c.d": "a.b", "a.bc": "a", "a.": "a", "ab": "", "b": "", "": "", ".": "", "a.b.": "a.b",
	} {
		wants("with both installed", name, want)
	}
	v.RemoveInstallation("long", "long")
	wants("with one of two gone", "a.b.c", "a.b")
	v.RemoveInstallation("again", "again")
	wants("with both of the longer one gone", "a.b.c", "a")
	v.RemoveInstallation("short", "short")
	wants("with all gone", "a.b.c", "")
	if n := testing.AllocsPerRun(100, func() { v.InstalledPlugin("a.b.c") }); n != 0 {
		t.Errorf("it allocates %v times", n)
	}
}
