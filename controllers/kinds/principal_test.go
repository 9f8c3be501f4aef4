package kinds

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

func TestJudge(t *testing.T) {
	pinned := authority.Installation{ServiceAccountUID: "s-1", ServiceAccountNamespaceUID: "n-1"}
	for name, c := range map[string]struct {
		installation      authority.Installation
		principal         Principal
		conflict, changed bool
	}{
		"as reviewed":         {pinned, Principal{AccountUID: "s-1", NamespaceUID: "n-1"}, false, false},
		"another account":     {pinned, Principal{AccountUID: "s-2", NamespaceUID: "n-1"}, false, true},
		"another namespace":   {pinned, Principal{AccountUID: "s-1", NamespaceUID: "n-2"}, false, true},
		"gone":                {pinned, Principal{}, false, true},
		"never pinned":        {authority.Installation{}, Principal{}, false, true},
		"claimed by another":  {pinned, Principal{AccountUID: "s-1", NamespaceUID: "n-1", ClaimedBy: []string{"other"}}, true, false},
		"in a workspace":      {pinned, Principal{AccountUID: "s-1", NamespaceUID: "n-1", InWorkspace: "payments"}, true, false},
		"neither any more it": {pinned, Principal{AccountUID: "s-2", InWorkspace: "payments"}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			judged := c.installation
			c.principal.Judge(&judged)
			if judged.ServiceAccountConflict != c.conflict || judged.PrincipalChanged != c.changed {
				t.Errorf("conflict %v, changed %v", judged.ServiceAccountConflict, judged.PrincipalChanged)
			}
		})
	}
}

func TestClaims(t *testing.T) {
	named := func(name, account string) v1alpha1.PluginInstallation {
		return v1alpha1.PluginInstallation{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.PluginInstallationSpec{ServiceAccountRef: v1alpha1.ServiceAccountReference{Namespace: "p", Name: account}},
		}
	}
	gone := named("gone", "a")
	gone.DeletionTimestamp = &metav1.Time{}
	mine := named("mine", "a")
	got := Claims(&mine, []v1alpha1.PluginInstallation{mine, named("same", "a"), named("else", "b"), gone})
	if !slices.Equal(got, []string{"same"}) {
		t.Errorf("claimed by %q", got)
	}
}
