// Package controlplane runs a real Kubernetes control plane, etcd and
// kube-apiserver, for tests and the demo, with the binaries that package toolbox
// builds or that KUBEBUILDER_ASSETS names; on request kube-controller-manager too.
//
// It differs from plain envtest where a plugin host needs the real thing:
// ServiceAccount admission is on, so pods name an existing ServiceAccount and their
// tokens are bound to them; etcd can be durable; and nothing is left running when
// the process that started it dies. Without the controller manager nobody creates a
// `default` ServiceAccount, collects garbage or finishes deleting a namespace. There
// is never a scheduler or a node: pods stay pending.
//
// It may import hack/toolbox, hack/rundir, controller-runtime's envtest and
// client-go, and nothing of the product.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kandev/plugin-host/hack/rundir"
	"github.com/kandev/plugin-host/hack/toolbox"
)

// processTime is how long each process may take to start, and to stop.
const processTime = time.Minute

// Options say what kind of control plane to start. The zero value suits a test.
type Options struct {
	// CRDDirs are folders of CustomResourceDefinitions to install before Start
	// returns. A folder that doesn't exist is an error.
	CRDDirs []string
	// Durable makes etcd sync every write to disk, as a real cluster does. Tests
	// that don't measure or crash etcd are faster without.
	Durable bool
	// ControllerManager runs kube-controller-manager too, with its real identities,
	// and Start returns once its controllers work: default ServiceAccounts, garbage
	// collection, namespace deletion, workloads. It takes some two seconds more, and
	// the binary `kube-controller-manager` of the toolbox.
	ControllerManager bool
	// OwnSignals says that the caller handles SIGINT and SIGTERM itself: by
	// cancelling the context of Start, or by calling Stop. Otherwise either signal
	// stops the control plane and then ends the process, as it would have without.
	// Ginkgo suites set it, their AfterSuite runs on an interrupt.
	OwnSignals bool
}

// ControlPlane is a running control plane. It is safe for concurrent use.
type ControlPlane struct {
	env        *envtest.Environment
	dir        *rundir.Dir
	config     *rest.Config
	kubeconfig []byte
	box        *toolbox.Box
	// manager is nil unless asked for.
	manager *manager

	// started is closed once starting has succeeded or failed: before that, only
	// dir may be touched.
	started chan struct{}
	stop    func() error
	stopped chan struct{}
}

// Start starts etcd and kube-apiserver and returns once the API server serves and
// the CRDs are established; on two idle cores that takes about three seconds. The
// control plane ends with Stop, with ctx, or with a signal (see Options). What an
// earlier process left running because it was killed is ended first.
//
// When the binaries are missing the error is a *toolbox.MissingError and says
// which make target builds them.
func Start(ctx context.Context, options Options) (*ControlPlane, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start the control plane: %w", err)
	}
	box, err := toolbox.Here()
	if err != nil {
		return nil, fmt.Errorf("start the control plane: %w", err)
	}
	names := []string{"kube-apiserver", "etcd"}
	if options.ControllerManager {
		names = append(names, controllerManager)
	}
	binaries, err := box.Paths(names...)
	if err != nil {
		return nil, fmt.Errorf("start the control plane: %w", err)
	}
	dir, err := rundir.Create("cp")
	if err != nil {
		return nil, fmt.Errorf("start the control plane: %w", err)
	}
	c := &ControlPlane{dir: dir, box: box, started: make(chan struct{}), stopped: make(chan struct{})}
	c.stop = sync.OnceValue(func() error {
		defer close(c.stopped)
		<-c.started
		return c.tearDown()
	})
	signals := make(chan os.Signal, 1)
	if !options.OwnSignals {
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	}
	go c.guard(ctx, signals)

	err = c.start(options, binaries[0], binaries[1])
	if err == nil && options.ControllerManager {
		err = c.startManager(ctx, binaries[2])
	}
	close(c.started)
	if err != nil {
		err = fmt.Errorf("start the control plane: %w%s", err, c.lastWords())
		return nil, errors.Join(err, c.Stop())
	}
	if err := ctx.Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the control plane: %w", err), c.Stop())
	}
	return c, nil
}

// Config returns a new client configuration of the cluster's administrator
// (group system:masters), without a tight client-side rate limit.
func (c *ControlPlane) Config() *rest.Config { return rest.CopyConfig(c.config) }

// CA returns the PEM certificate of the authority that signed the API server's
// serving certificate.
func (c *ControlPlane) CA() []byte { return append([]byte(nil), c.config.CAData...) }

// WriteKubeconfig writes a kubeconfig of the administrator, readable by this user
// only. It holds a private key; kubectl reads it with --kubeconfig.
func (c *ControlPlane) WriteKubeconfig(path string) error {
	if err := os.WriteFile(path, c.kubeconfig, 0o600); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	return nil
}

// Kubectl returns the path of a kubectl of the server's version, or a
// *toolbox.MissingError.
func (c *ControlPlane) Kubectl() (string, error) { return c.box.Path("kubectl") }

// Stop ends the processes, waits for them, and removes their data. Calling it
// again, or after the context or a signal ended the control plane, returns the
// first result.
func (c *ControlPlane) Stop() error { return c.stop() }

// start runs the processes through envtest, each below a shell that records the
// process id it is about to become: envtest tells nobody, and whoever cleans up
// after a killed process must know.
func (c *ControlPlane) start(options Options, apiserver, etcd string) error {
	for _, name := range []string{"etcd", "certs"} {
		if err := os.Mkdir(filepath.Join(c.dir.Path(), name), 0o700); err != nil {
			return fmt.Errorf("create the folder of %s: %w", name, err)
		}
	}
	recordEtcd, err := c.recorder("etcd", etcd)
	if err != nil {
		return err
	}
	recordAPIServer, err := c.recorder("kube-apiserver", apiserver)
	if err != nil {
		return err
	}
	etcdLog, err := c.log("etcd")
	if err != nil {
		return err
	}
	defer func() { _ = etcdLog.Close() }() // the child has its own handle
	apiserverLog, err := c.log("kube-apiserver")
	if err != nil {
		return err
	}
	defer func() { _ = apiserverLog.Close() }()

	existing := false
	c.env = &envtest.Environment{
		UseExistingCluster:    &existing,
		CRDDirectoryPaths:     options.CRDDirs,
		ErrorIfCRDPathMissing: true,
		// Generous, for machines where several test packages build and run at once.
		ControlPlaneStartTimeout: processTime,
		ControlPlaneStopTimeout:  processTime,
	}
	server := c.env.ControlPlane.GetAPIServer()
	server.Path, server.CertDir = recordAPIServer, filepath.Join(c.dir.Path(), "certs")
	server.Out, server.Err = apiserverLog, apiserverLog
	server.Configure().Disable("disable-admission-plugins")
	c.env.ControlPlane.Etcd = &envtest.Etcd{
		Path: recordEtcd, DataDir: filepath.Join(c.dir.Path(), "etcd"), Out: etcdLog, Err: etcdLog,
	}
	if options.Durable {
		c.env.ControlPlane.Etcd.Configure().Set("unsafe-no-fsync", "false")
	}
	// envtest looks for the binary itself unless it is told; it only needs a name.
	c.env.ControlPlane.KubectlPath = "kubectl"

	if c.config, err = c.env.Start(); err != nil {
		return fmt.Errorf("start etcd and kube-apiserver: %w", err)
	}
	c.kubeconfig = c.env.KubeConfig
	return nil
}

// recorder writes the script that stands in for a binary.
func (c *ControlPlane) recorder(name, binary string) (string, error) {
	path := filepath.Join(c.dir.Path(), name)
	if name == "etcd" { // its data is in a folder of that name
		path += ".sh"
	}
	script := fmt.Sprintf("#!/bin/sh\necho $$ > %s || exit 1\nexec %s \"$@\"\n",
		quote(filepath.Join(c.dir.Path(), name+".pid")), quote(binary))
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		return "", fmt.Errorf("write the start script of %s: %w", name, err)
	}
	return path, nil
}

func (c *ControlPlane) log(name string) (*os.File, error) {
	file, err := os.Create(filepath.Join(c.dir.Path(), name+".log"))
	if err != nil {
		return nil, fmt.Errorf("create the log of %s: %w", name, err)
	}
	return file, nil
}

// lastWords returns the end of each log, for an error message.
func (c *ControlPlane) lastWords() string {
	const lines = 15
	var text strings.Builder
	for _, name := range []string{"etcd", "kube-apiserver", controllerManager} {
		data, err := os.ReadFile(filepath.Join(c.dir.Path(), name+".log"))
		if err != nil || len(data) == 0 {
			continue
		}
		all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
		fmt.Fprintf(&text, "\n--- end of the log of %s:\n%s", name, strings.Join(all[max(0, len(all)-lines):], "\n"))
	}
	return text.String()
}

// guard stops the control plane with its context or on a signal. A signal it was
// given is sent again once nothing listens, so that the process ends of it.
func (c *ControlPlane) guard(ctx context.Context, signals chan os.Signal) {
	defer signal.Stop(signals)
	select {
	case <-c.stopped:
	case <-ctx.Done():
		_ = c.interrupt() // whoever calls Stop gets the same result
	case got := <-signals:
		if err := c.interrupt(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the control plane:", err)
		}
		signal.Stop(signals)
		if number, ok := got.(syscall.Signal); ok {
			_ = syscall.Kill(os.Getpid(), number)
		}
	}
}

// interrupt is Stop at any time: while the processes are starting, it takes them
// away, so that starting fails at once instead of after envtest's timeouts.
func (c *ControlPlane) interrupt() error {
	select {
	case <-c.started:
		return c.Stop()
	default:
		return errors.Join(c.dir.Remove(), c.Stop())
	}
}

func (c *ControlPlane) tearDown() error {
	var errs []error
	if c.manager != nil {
		errs = append(errs, c.manager.stop())
	}
	if c.env != nil {
		errs = append(errs, c.env.Stop())
	}
	if err := errors.Join(append(errs, c.dir.Remove())...); err != nil {
		return fmt.Errorf("stop the control plane: %w", err)
	}
	return nil
}

// quote makes a string one word of a POSIX shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
