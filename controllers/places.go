package controllers

import (
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
)

func placeOf(o client.Object) view.Place {
	return view.Place{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func nameOf(place view.Place) types.NamespacedName {
	return types.NamespacedName{Namespace: place.Namespace, Name: place.Name}
}

// keyOf is what an approval names itself; whether it stands where it may is
// another question.
func keyOf(a *authority.Approval) authority.Key {
	return authority.Key{InstallationID: a.InstallationID, WorkspaceID: a.WorkspaceID}
}
