// Package controllers_test proves the authority protocol end to end below the
// wire: a real API server, the real store on both engines, the real
// controllers; humans are clients that write manifests. Names begin with the
// invariant that a test holds. It imports what cmd/plugin-host wires, and the
// developer tools that start servers.
package controllers_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/controllers"
	"github.com/kandev/plugin-host/hack/controlplane"
	"github.com/kandev/plugin-host/test/postgres"
)

var (
	config *rest.Config
	scheme = runtime.NewScheme()
	// api is ada's client, strict as kubectl is; powerful is that of somebody who
	// got hold of the processes' own identity.
	api, powerful client.Client
	// kubectl runs the real one as the cluster's administrator; hostKubeconfig is
	// the processes'.
	kubectlPath, kubeconfig, hostKubeconfig string

	startPostgres func() (*postgres.Server, error)
	// buildHost returns the binary, built once.
	buildHost func() (string, error)
)

// patience is how long a spec waits for what must come: the machine may be slow, and the
// time is no part of what is tested.
const patience = time.Minute

func TestControllers(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Controllers")
}

var _ = BeforeSuite(func() {
	ctrl.SetLogger(logr.Discard())
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	plane, err := controlplane.Start(context.Background(), controlplane.Options{
		CRDDirs: []string{filepath.Join("..", "..", "config", "crd", "bases")}, OwnSignals: true,
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plane.Stop)
	config = plane.Config()
	kubeconfig = filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(plane.WriteKubeconfig(kubeconfig)).To(Succeed())
	kubectlPath, err = plane.Kubectl()
	Expect(err).NotTo(HaveOccurred())

	hostKubeconfig = filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	writeHostKubeconfig(kubeconfig, hostKubeconfig)

	for _, add := range []func(*runtime.Scheme) error{controllers.AddToScheme, apiextensionsv1.AddToScheme, rbacv1.AddToScheme} {
		Expect(add(scheme)).To(Succeed())
	}
	api, powerful = as(ada), as(hostUser)
	installHost(context.Background())

	binaries := GinkgoT().TempDir()
	buildHost = sync.OnceValues(func() (string, error) { return compileHost(binaries) })
	// One server for all specs that need it.
	var server *postgres.Server
	startPostgres = sync.OnceValues(func() (*postgres.Server, error) {
		server, err = postgres.Start(context.Background())
		return server, err
	})
	DeferCleanup(func() error {
		if server == nil {
			return nil
		}
		return server.Stop()
	})
})

// Every spec begins in a cluster without objects of ours: its store is new.
var _ = AfterEach(func(ctx SpecContext) {
	Expect(api.DeleteAllOf(ctx, &v1alpha1.PluginInstallation{})).To(Succeed())
	Expect(powerful.DeleteAllOf(ctx, &v1alpha1.PluginCapabilityApprovalEvent{})).To(Succeed())
	var approvals v1alpha1.PluginCapabilityApprovalList
	Expect(api.List(ctx, &approvals)).To(Succeed())
	for i := range approvals.Items {
		Expect(client.IgnoreNotFound(api.Delete(ctx, &approvals.Items[i]))).To(Succeed())
	}
	var namespaces corev1.NamespaceList
	Expect(api.List(ctx, &namespaces, client.HasLabels{v1alpha1.LabelWorkspaceID})).To(Succeed())
	for i := range namespaces.Items {
		label(ctx, namespaces.Items[i].Name, "")
	}
})
