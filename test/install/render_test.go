// Package install_test holds what a cluster is given to run the plugin host: the
// kustomization in config/ and the charts in charts/. Both are rendered by the
// pinned tools, applied to a real control plane, and compared with each other. It
// imports the API types, the contract, the toolbox and the dev control plane.
package install_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kandev/plugin-host/hack/toolbox"
)

const (
	namespace = "plugin-host-system"
	host      = "plugin-host"

	configDir   = "../../config"
	chartDir    = "../../charts/plugin-host"
	crdChartDir = "../../charts/plugin-host-crds"
	kubernetes  = "1.37.2"
)

// tool runs a pinned tool and returns what it printed. A tool that isn't built is
// a failure that says how to build it.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := try(t, "", name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func try(t *testing.T, stdin, name string, args ...string) (string, error) {
	t.Helper()
	box, err := toolbox.Here()
	if err != nil {
		t.Fatal(err)
	}
	path, err := box.Path(name)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	// Helm keeps caches and settings in the user's folders.
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// objects are rendered objects by "Kind/name".
type objects map[string]*unstructured.Unstructured

func parse(t *testing.T, text string) objects {
	t.Helper()
	all := objects{}
	reader := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		switch err := reader.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatalf("parse what was rendered: %v", err)
		case len(object.Object) == 0:
			continue
		}
		id := object.GetKind() + "/" + object.GetName()
		if all[id] != nil {
			t.Fatalf("%s is rendered twice", id)
		}
		all[id] = object
	}
}

func (o objects) ofKind(kind string) []*unstructured.Unstructured {
	var found []*unstructured.Unstructured
	for _, object := range o {
		if object.GetKind() == kind {
			found = append(found, object)
		}
	}
	return found
}

// convert reads an object into its Go type and refuses fields that the type
// doesn't have.
func convert[T any](t *testing.T, object *unstructured.Unstructured) T {
	t.Helper()
	var typed T
	if object == nil {
		t.Fatalf("no object to read as %T", typed)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &typed, true); err != nil {
		t.Fatalf("read %s %s: %v", object.GetKind(), object.GetName(), err)
	}
	return typed
}

func kustomized(t *testing.T) objects {
	t.Helper()
	return parse(t, tool(t, "kustomize", "build", filepath.Join(configDir, "default")))
}

// charted renders the chart plugin-host.
func charted(t *testing.T, args ...string) objects {
	t.Helper()
	return rendered(t, chartDir, args...)
}

func rendered(t *testing.T, chart string, args ...string) objects {
	t.Helper()
	return parse(t, tool(t, "helm", append([]string{
		"template", "any-release", chart, "--namespace", namespace, "--kube-version", kubernetes,
	}, args...)...))
}

// valuesFiles are the sets of values that the chart plugin-host is meant for.
func valuesFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(chartDir + "/ci/*-values.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("the chart has no sets of values: %v", err)
	}
	return append(files, chartDir+"/values.yaml")
}

func deployment(t *testing.T, from objects) appsv1.Deployment {
	t.Helper()
	return convert[appsv1.Deployment](t, from["Deployment/"+host])
}
