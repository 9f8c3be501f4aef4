package controllers

import (
	"reflect"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestFieldsThatASchemaLacks(t *testing.T) {
	type part struct {
		Name  string       `json:"name"`
		Since *metav1.Time `json:"since,omitempty"`
	}
	type base struct {
		Old string `json:"old"`
	}
	type whole struct {
		base   `json:",inline"`
		Parts  []part   `json:"parts"`
		One    *part    `json:"one,omitempty"`
		Names  []string `json:"names"`
		Hidden string   `json:"-"`
	}
	leaf := &fields{}
	full := func() *fields {
		known := &fields{Properties: map[string]*fields{"name": leaf, "since": leaf}}
		return &fields{Properties: map[string]*fields{"old": leaf, "parts": {Items: known}, "one": known, "names": {Items: leaf}}}
	}
	for name, c := range map[string]struct {
		edit    func(*fields)
		missing []string
	}{
		"none":                     {func(*fields) {}, nil},
		"more than we know":        {func(f *fields) { f.Properties["newer"] = leaf }, nil},
		"a field":                  {func(f *fields) { delete(f.Properties, "names") }, []string{"x.names"}},
		"an inlined one":           {func(f *fields) { delete(f.Properties, "old") }, []string{"x.old"}},
		"one in a list and beside": {func(f *fields) { delete(f.Properties["one"].Properties, "since") }, []string{"x.parts[].since", "x.one.since"}},
		"an open object":           {func(f *fields) { f.Properties["one"] = &fields{Open: true} }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			known := full()
			c.edit(known)
			if missing := lacking(known, reflect.TypeFor[whole](), "x"); !slices.Equal(missing, c.missing) {
				t.Errorf("missing %q, want %q", missing, c.missing)
			}
		})
	}
}
