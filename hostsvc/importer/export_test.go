package importer

import (
	"slices"
	"time"
)

// FieldNames returns the names of all fields that each kind has, beside kind.
func FieldNames() map[string][]string {
	all := map[string][]string{}
	for _, k := range kinds {
		var names []string
		k.fill(&document{}, &fields{values: map[string]any{}, in: &gathered{names: &names}}, time.Now())
		slices.Sort(names)
		all[k.name] = slices.Compact(names)
	}
	return all
}
