package main

import (
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// keepers says which capabilities of an object's list stay under server-side apply
// although the manifest leaves them out, and who keeps them: an apply takes away
// only what nobody but its own field manager has put there. path leads to the list.
func keepers(live client.Object, gone []string, path ...string) []string {
	var notes []string
	for _, id := range gone {
		var owners []metav1.ManagedFieldsEntry
		for _, entry := range live.GetManagedFields() {
			if entry.Subresource == "" && owns(entry, id, path) {
				owners = append(owners, entry)
			}
		}
		// The one manager that has applied it is, we suppose, the one that applies.
		if len(owners) < 2 && (len(owners) == 0 || owners[0].Operation == metav1.ManagedFieldsOperationApply) {
			continue
		}
		for _, owner := range owners {
			if owner.Operation == metav1.ManagedFieldsOperationUpdate || len(owners) > 1 {
				notes = append(notes, fmt.Sprintf("server-side apply leaves %s in the list: the field manager %q has put it there", id, owner.Manager))
				break
			}
		}
	}
	return notes
}

// owns tells whether an entry covers one element of a list: of a set by its value,
// of a map by its id.
func owns(entry metav1.ManagedFieldsEntry, id string, path []string) bool {
	if entry.FieldsV1 == nil {
		return false
	}
	var fields map[string]json.RawMessage
	raw := json.RawMessage(entry.FieldsV1.GetRawBytes())
	for _, part := range path {
		if json.Unmarshal(raw, &fields) != nil {
			return false
		}
		next, ok := fields["f:"+part]
		if !ok {
			return false
		}
		raw, fields = next, nil
	}
	if json.Unmarshal(raw, &fields) != nil {
		return false
	}
	_, byValue := fields[fmt.Sprintf("v:%q", id)]
	_, byKey := fields[fmt.Sprintf(`k:{"id":%q}`, id)]
	return byValue || byKey
}

// leftOut are the elements of a that b lacks.
func leftOut(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(id string) bool { return slices.Contains(b, id) })
}
