package view_test

import (
	"testing"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
)

// A namespace whose label was changed stays bound to what it was, too. In whatever
// order the bindings come, what happens in it shows for the workspace that it is.
func TestI6_ANamespaceThatWasAnotherWorkspace(t *testing.T) {
	former := authority.Workspace{ID: "former", Namespace: namespace, NamespaceUID: "n-1"}
	elsewhere := authority.Workspace{ID: "former", Namespace: "elsewhere", NamespaceUID: "n-2"}
	for name, bindings := range map[string][]authority.Workspace{
		"bound before":             {former, bound},
		"bound after":              {bound, former},
		"bound before, and passed": {former, bound, elsewhere},
		"bound after, and passed":  {bound, former, elsewhere},
	} {
		v := view.New(authority.BuiltInPolicy())
		v.SetInstallation(installed())
		v.SetNamespace(namespace, view.Namespace{UID: "n-1", WorkspaceID: workspace})
		v.SetApproval(place, approved(3))
		for _, binding := range bindings {
			v.SetBinding(binding)
		}
		v.SetApproval(place, approved(4))
		if got := v.Observe(key); got.Approval.Generation != 4 {
			t.Errorf("%s: an edit of the approval doesn't show: %+v", name, got.Approval)
		}
		if got, ok := v.StandsAt(place); !ok || got != key {
			t.Errorf("%s: the approval stands for %+v, %t", name, got, ok)
		}
		labelled := v.Observe(key).Vector
		v.RemoveNamespace(namespace)
		if v.Observe(key).Vector == labelled {
			t.Errorf("%s: that the namespace is gone doesn't show", name)
		}
	}
}
