package kinds

import (
	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

// Principal is what other objects say about the ServiceAccount that an
// installation names.
type Principal struct {
	// AccountUID and NamespaceUID are the live ones, "" when absent.
	AccountUID   string
	NamespaceUID string
	// InWorkspace is the workspace whose namespace the ServiceAccount is in.
	InWorkspace string
	// ClaimedBy are the other installations that name it.
	ClaimedBy []string
}

// Judge sets what depends on other objects: whether the principal is anybody
// else's, and whether it is the one that was reviewed.
func (p Principal) Judge(installation *authority.Installation) {
	installation.ServiceAccountConflict = len(p.ClaimedBy) > 0 || p.InWorkspace != ""
	installation.PrincipalChanged = installation.ServiceAccountUID == "" ||
		installation.ServiceAccountUID != p.AccountUID || installation.ServiceAccountNamespaceUID != p.NamespaceUID
}

// Claims lists the other installations that name the ServiceAccount of one.
func Claims(o *v1alpha1.PluginInstallation, all []v1alpha1.PluginInstallation) []string {
	var names []string
	for i := range all {
		other := &all[i]
		if other.Name != o.Name && other.DeletionTimestamp == nil &&
			other.Spec.ServiceAccountRef.Namespace == o.Spec.ServiceAccountRef.Namespace &&
			other.Spec.ServiceAccountRef.Name == o.Spec.ServiceAccountRef.Name {
			names = append(names, other.Name)
		}
	}
	return names
}
