package v1alpha1_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
)

// maxCRDBytes keeps a client-side apply, whose annotation repeats the object,
// under the API server's 256 KiB for annotations.
const maxCRDBytes = 200_000

type crdFile struct {
	name string
	text []byte
	crd  apiextensionsv1.CustomResourceDefinition
}

func crdFiles(t *testing.T) []crdFile {
	t.Helper()
	paths, err := filepath.Glob("../../config/crd/bases/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) != 4 {
		t.Fatalf("found %d generated CRDs, want 4", len(paths))
	}
	files := make([]crdFile, len(paths))
	for i, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[i] = crdFile{name: filepath.Base(path), text: text}
		if err := yaml.UnmarshalStrict(text, &files[i].crd); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	return files
}

// walk visits every schema below s, s included, with its path.
func walk(path string, s *apiextensionsv1.JSONSchemaProps, visit func(string, *apiextensionsv1.JSONSchemaProps)) {
	visit(path, s)
	for name, property := range s.Properties {
		walk(path+"."+name, &property, visit)
	}
	if s.Items != nil && s.Items.Schema != nil {
		walk(path+"[]", s.Items.Schema, visit)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		walk(path+"{}", s.AdditionalProperties.Schema, visit)
	}
}

func eachSchema(t *testing.T, visit func(string, *apiextensionsv1.JSONSchemaProps)) {
	t.Helper()
	for _, file := range crdFiles(t) {
		for _, part := range []string{"spec", "status"} {
			if s, ok := file.crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties[part]; ok {
				walk(file.crd.Spec.Names.ShortNames[0]+"."+part, &s, visit)
			}
		}
	}
}

func TestCapabilityEnumIsTheContract(t *testing.T) {
	want := contract.AllCapabilities.IDs()
	slices.Sort(want)
	found := 0
	eachSchema(t, func(path string, s *apiextensionsv1.JSONSchemaProps) {
		if len(s.Enum) == 0 || !strings.Contains(string(s.Enum[0].Raw), contract.ReadPrefix) {
			return
		}
		found++
		got := make([]string, len(s.Enum))
		for i, value := range s.Enum {
			got[i] = strings.Trim(string(value.Raw), `"`)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: enum is %v, the contract has %v", path, got, want)
		}
		if s.MaxLength == nil || *s.MaxLength != contract.MaxCapabilityIDBytes {
			t.Errorf("%s: maxLength is not %d", path, contract.MaxCapabilityIDBytes)
		}
	})
	// manifest, approval spec, effective, five lists of the event, its hold, what it has seen.
	if found != 10 {
		t.Errorf("%d fields hold capability IDs, want 10", found)
	}
}

func TestNoOtherProductIsNamed(t *testing.T) {
	const banned = "coord" + "inator"
	for _, file := range crdFiles(t) {
		if strings.Contains(strings.ToLower(string(file.text)), banned) {
			t.Errorf("%s names a %s", file.name, banned)
		}
	}
}

func TestCRDsFitAClientSideApply(t *testing.T) {
	for _, file := range crdFiles(t) {
		if len(file.text) >= maxCRDBytes {
			t.Errorf("%s has %d bytes, want below %d", file.name, len(file.text), maxCRDBytes)
		}
	}
}

func TestEverythingIsBounded(t *testing.T) {
	var documents []string
	eachSchema(t, func(path string, s *apiextensionsv1.JSONSchemaProps) {
		switch s.Type {
		case "string":
			if s.MaxLength == nil && len(s.Enum) == 0 && s.Format != "date-time" {
				t.Errorf("%s: a string without a bound", path)
			}
		case "array":
			if s.MaxItems == nil {
				t.Errorf("%s: a list without a bound", path)
			}
			if s.XListType == nil {
				t.Errorf("%s: a list without a list type", path)
			}
		case "object":
			if s.AdditionalProperties != nil && s.MaxProperties == nil {
				t.Errorf("%s: a map without a bound", path)
			}
			if s.XPreserveUnknownFields != nil {
				documents = append(documents, path)
				if s.MaxProperties == nil {
					t.Errorf("%s: a document without a bound", path)
				}
			}
		}
	})
	// What belongs to the plugin, and is bounded by the controllers besides.
	slices.Sort(documents)
	if want := []string{"pi.spec.config", "pi.spec.manifest.configSchema"}; !slices.Equal(documents, want) {
		t.Errorf("%v keep unknown fields, want %v", documents, want)
	}
}

func TestEveryFieldIsDocumentedUnderItsName(t *testing.T) {
	eachSchema(t, func(path string, s *apiextensionsv1.JSONSchemaProps) {
		if strings.HasSuffix(path, "[]") || strings.HasSuffix(path, "{}") || strings.Contains(path, "conditions") {
			return
		}
		name := path[strings.LastIndex(path, ".")+1:]
		if !strings.HasPrefix(s.Description, name+" ") {
			t.Errorf("%s: description %q doesn't begin with the field's name", path, s.Description)
		}
	})
}

// A time that the API server stores and a client can't decode stops every
// watch of the kind, so each time of ours has a pattern.
func TestTimesAreNarrowerThanTheirFormat(t *testing.T) {
	eachSchema(t, func(path string, s *apiextensionsv1.JSONSchemaProps) {
		if s.Format == "date-time" && !strings.Contains(path, "conditions") && s.Pattern == "" {
			t.Errorf("%s: a time without a pattern", path)
		}
	})
}

func TestSchemeKnowsEveryKind(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, file := range crdFiles(t) {
		for _, kind := range []string{file.crd.Spec.Names.Kind, file.crd.Spec.Names.ListKind} {
			if !scheme.Recognizes(v1alpha1.GroupVersion.WithKind(kind)) {
				t.Errorf("%s is not in the scheme", kind)
			}
		}
	}
}

func TestNamesAndScopes(t *testing.T) {
	want := map[string]string{
		"PluginInstallation":            "pi Cluster [plugins] status:true",
		"PluginCapabilityApproval":      "pca Namespaced [plugins] status:true",
		"PluginCapabilityApprovalEvent": "pcae Cluster [plugins] status:false",
		"HumanPolicy":                   "hup Cluster [plugins] status:true",
	}
	for _, file := range crdFiles(t) {
		names, version := file.crd.Spec.Names, file.crd.Spec.Versions[0]
		hasStatus := version.Subresources != nil && version.Subresources.Status != nil
		got := fmt.Sprintf("%s %s %v status:%t", strings.Join(names.ShortNames, ","), file.crd.Spec.Scope, names.Categories, hasStatus)
		if got != want[names.Kind] {
			t.Errorf("%s: %s, want %s", names.Kind, got, want[names.Kind])
		}
	}
}
