package toolbox

import (
	"fmt"
	"strings"
)

// tool is one pinned developer tool.
type tool struct {
	// name is the binary's file name and what a user calls the tool.
	name string
	// dir is the directory of the tool's module under hack/tools.
	dir string
	// pkg is the import path of the main package.
	pkg string
	// pin is the module whose version in go.mod is the tool's version.
	pin string
	// stamps returns the linker's -X settings, given the tool's version and its
	// go.mod; nil for a tool that reports its version without help, or that nobody
	// asks for one.
	stamps func(version, goMod string) ([]string, error)
}

// ControlPlane names the tools that run a development control plane, in the
// order in which they are built: the slow one first, so that a failure shows late
// work as little as possible.
func ControlPlane() []string { return []string{kubeAPIServer, etcd, kubectl} }

const (
	kubeAPIServer = "kube-apiserver"
	etcd          = "etcd"
	kubectl       = "kubectl"
	// Garbage collection, the deletion of namespaces and default ServiceAccounts,
	// for those tests that need them.
	controllerManager = "kube-controller-manager"
)

// catalog lists every tool in the order in which all of them are built.
func catalog() []tool {
	return []tool{
		{kubeAPIServer, "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", "k8s.io/kubernetes", kubernetesStamps},
		{etcd, "etcd", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3", nil},
		{kubectl, "kubernetes", "k8s.io/kubernetes/cmd/kubectl", "k8s.io/kubernetes", kubernetesStamps},
		{controllerManager, "kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager", "k8s.io/kubernetes", kubernetesStamps},
		{"protoc-gen-go", "protoc-gen-go", "google.golang.org/protobuf/cmd/protoc-gen-go", "google.golang.org/protobuf", nil},
		{"protoc-gen-go-grpc", "protoc-gen-go-grpc", "google.golang.org/grpc/cmd/protoc-gen-go-grpc", "google.golang.org/grpc/cmd/protoc-gen-go-grpc", nil},
		{"controller-gen", "controller-gen", "sigs.k8s.io/controller-tools/cmd/controller-gen", "sigs.k8s.io/controller-tools", nil},
		{"buf", "buf", "github.com/bufbuild/buf/cmd/buf", "github.com/bufbuild/buf", nil},
		{"kustomize", "kustomize", "sigs.k8s.io/kustomize/kustomize/v5", "sigs.k8s.io/kustomize/kustomize/v5", nil},
		{"golangci-lint", "golangci-lint", "github.com/golangci/golangci-lint/v2/cmd/golangci-lint", "github.com/golangci/golangci-lint/v2", mainStamps},
		{"helm", "helm", "helm.sh/helm/v3/cmd/helm", "helm.sh/helm/v3", helmStamps},
		{"helm4", "helm4", "helm.sh/helm/v4/cmd/helm", "helm.sh/helm/v4", helm4Stamps},
	}
}

// kubernetesStamps gives the Kubernetes binaries the version that release builds
// carry. Without it kubectl can't parse the server's version, and Helm refuses
// every chart that names a kubeVersion.
func kubernetesStamps(version, _ string) ([]string, error) {
	major, minor := majorMinor(version)
	const at = "k8s.io/component-base/version."
	return []string{at + "gitVersion=" + version, at + "gitMajor=" + major, at + "gitMinor=" + minor}, nil
}

// helmStamps gives Helm its own version and, as its release builds do, the
// Kubernetes version of its client library as the one that rendering and linting
// without a cluster assume. Unstamped it is 1.20.
func helmStamps(version, goMod string) ([]string, error) {
	client, err := pinnedVersion(goMod, "k8s.io/client-go")
	if err != nil {
		return nil, err
	}
	_, minor := majorMinor(client) // v0.37.1 is of Kubernetes 1.37
	stamps := []string{"helm.sh/helm/v3/internal/version.version=" + version}
	for _, at := range []string{"helm.sh/helm/v3/pkg/chartutil.", "helm.sh/helm/v3/pkg/lint/rules."} {
		stamps = append(stamps, at+"k8sVersionMajor=1", at+"k8sVersionMinor="+minor)
	}
	return stamps, nil
}

// helm4Stamps gives Helm 4 its own version; the version of its client library it
// reads from what the linker records of every module.
func helm4Stamps(version, _ string) ([]string, error) {
	return []string{"helm.sh/helm/v4/internal/version.version=" + version}, nil
}

func mainStamps(version, _ string) ([]string, error) {
	return []string{"main.version=" + strings.TrimPrefix(version, "v")}, nil
}

// majorMinor splits v1.37.2 into 1 and 37.
func majorMinor(version string) (major, minor string) {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(rest, ".")
	return major, minor
}

// pinnedVersion reads the version that a go.mod requires of a module.
func pinnedVersion(goMod, module string) (string, error) {
	for line := range strings.Lines(goMod) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) >= 2 && fields[0] == module && strings.HasPrefix(fields[1], "v") {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("go.mod requires no version of %s", module)
}
