package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const (
	controllerManager = "kube-controller-manager"
	// managerGrace is how long it may take to end before it is killed.
	managerGrace = 5 * time.Second
	managerPoll  = 50 * time.Millisecond
)

// manager is a running kube-controller-manager.
type manager struct {
	cmd *exec.Cmd
	// ended is closed when the process has ended.
	ended chan struct{}
}

// startManager starts kube-controller-manager as a cluster does: under its own user,
// with a ServiceAccount for each controller, so that admission sees who really asks.
// It returns once default ServiceAccounts are made, which every pod waits for.
func (c *ControlPlane) startManager(ctx context.Context, binary string) error {
	user, err := c.env.AddUser(envtest.User{Name: "system:" + controllerManager}, &rest.Config{QPS: -1})
	if err != nil {
		return fmt.Errorf("make the user of %s: %w", controllerManager, err)
	}
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		return fmt.Errorf("make the kubeconfig of %s: %w", controllerManager, err)
	}
	files := map[string][]byte{"manager.kubeconfig": kubeconfig, "root-ca.crt": c.config.CAData}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(c.dir.Path(), name), data, 0o600); err != nil {
			return fmt.Errorf("write %s of %s: %w", name, controllerManager, err)
		}
	}
	script, err := c.recorder(controllerManager, binary)
	if err != nil {
		return err
	}
	log, err := c.log(controllerManager)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the child has its own handle

	cmd := exec.Command(script,
		"--kubeconfig="+filepath.Join(c.dir.Path(), "manager.kubeconfig"),
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+filepath.Join(c.dir.Path(), "certs", "sa-signer.key"),
		"--root-ca-file="+filepath.Join(c.dir.Path(), "root-ca.crt"),
		// It wants the addresses of a cloud's nodes, and ends without.
		"--controllers=*,-node-ipam-controller",
		"--leader-elect=false", "--secure-port=0",
		"--kube-api-qps=500", "--kube-api-burst=1000",
	)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", controllerManager, err)
	}
	c.manager = &manager{cmd: cmd, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(c.manager.ended)
	}()
	return c.awaitManager(ctx)
}

func (c *ControlPlane) awaitManager(ctx context.Context) error {
	clients, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, processTime)
	defer cancel()
	ticker := time.NewTicker(managerPoll)
	defer ticker.Stop()
	for {
		_, err := clients.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			return nil
		}
		select {
		case <-c.manager.ended:
			return fmt.Errorf("%s ended: %s", controllerManager, c.manager.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("wait for %s to make a ServiceAccount: %w", controllerManager, errors.Join(ctx.Err(), err))
		case <-ticker.C:
		}
	}
}

// stop asks the process to end, and kills one that takes long: it may be waiting for
// an API server that is gone.
func (m *manager) stop() error {
	for _, number := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := m.cmd.Process.Signal(number); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("end %s: %w", controllerManager, err)
		}
		grace := time.NewTimer(managerGrace)
		select {
		case <-m.ended:
			grace.Stop()
			return nil
		case <-grace.C:
		}
	}
	return fmt.Errorf("%s does not end", controllerManager)
}
