package controllers_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/journal"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// callLimit bounds a call: one to a stopped process is never answered.
const callLimit = 2 * time.Second

// replicas are real processes of plugin-host on one PostgreSQL database.
type replicas struct {
	dir, binary, namespace string
	roots                  *x509.CertPool
}

// replica is one of them.
type replica struct {
	cmd   *exec.Cmd
	log   *logBuffer
	host  pluginv1.HostClient
	ready string
	ended chan struct{}
}

// logBuffer is a log that is read while it is written.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// compileHost builds plugin-host as it is released.
func compileHost(dir string) (string, error) {
	binary := filepath.Join(dir, "plugin-host")
	build := exec.Command("go", "build", "-o", binary, "github.com/kandev/plugin-host/cmd/plugin-host")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build plugin-host: %w: %s", err, out)
	}
	return binary, nil
}

func buildReplicas(ctx context.Context, dsn string) *replicas {
	GinkgoHelper()
	r := &replicas{dir: GinkgoT().TempDir(), namespace: unique("host")}
	newNamespace(ctx, r.namespace)
	letHostIn(ctx, r.namespace)
	var err error
	r.binary, err = buildHost()
	Expect(err).NotTo(HaveOccurred())
	r.certify()
	Expect(os.WriteFile(r.path("dsn"), []byte(dsn), 0o600)).To(Succeed())
	key := base64.StdEncoding.EncodeToString(make([]byte, 32))
	Expect(os.WriteFile(r.path("cursor-keys"), []byte(key), 0o600)).To(Succeed())
	return r
}

func (r *replicas) path(name string) string { return filepath.Join(r.dir, name) }

func (r *replicas) certify() {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "plugin-host"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	Expect(err).NotTo(HaveOccurred())
	certificate, err := x509.ParseCertificate(der)
	Expect(err).NotTo(HaveOccurred())
	private, err := x509.MarshalPKCS8PrivateKey(key)
	Expect(err).NotTo(HaveOccurred())
	r.roots = x509.NewCertPool()
	r.roots.AddCert(certificate)
	Expect(os.WriteFile(r.path("tls.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)).To(Succeed())
	Expect(os.WriteFile(r.path("tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600)).To(Succeed())
}

func freeAddress() string {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(listener.Close()).To(Succeed()) }()
	return listener.Addr().String()
}

// start runs one more process; it ends with the spec, stopped or not.
func (r *replicas) start(args ...string) *replica {
	GinkgoHelper()
	grpcAddress, health := freeAddress(), freeAddress()
	p := &replica{log: &logBuffer{}, ready: "http://" + health + "/readyz", ended: make(chan struct{})}
	p.cmd = exec.Command(r.binary, append([]string{
		"--kubeconfig=" + hostKubeconfig, "--namespace=" + r.namespace, "--store=postgres", "--postgres-dsn-file=" + r.path("dsn"),
		"--grpc-listen=" + grpcAddress, "--health-listen=" + health, "--metrics-listen=0", "--cursor-key-file=" + r.path("cursor-keys"),
		"--tls-cert-file=" + r.path("tls.crt"), "--tls-key-file=" + r.path("tls.key"),
	}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	// A test that is killed leaves no process behind.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	Expect(p.cmd.Start()).To(Succeed())
	go func() {
		_ = p.cmd.Wait() // its state says how it ended
		close(p.ended)
	}()
	DeferCleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.ended
	})
	conn, err := grpc.NewClient(grpcAddress, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: r.roots, MinVersion: tls.VersionTLS13,
	})))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(conn.Close)
	p.host = pluginv1.NewHostClient(conn)
	return p
}

func (p *replica) signal(s syscall.Signal) {
	GinkgoHelper()
	Expect(p.cmd.Process.Signal(s)).To(Succeed())
}

func (p *replica) isReady(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(p.ended).NotTo(BeClosed(), p.log.String())
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.ready, http.NoBody)
		g.Expect(err).NotTo(HaveOccurred())
		response, err := http.DefaultClient.Do(request)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(response.Body.Close()).To(Succeed())
		g.Expect(response.StatusCode).To(Equal(http.StatusOK))
	}).WithTimeout(patience).Should(Succeed(), p.log.String)
}

// token is what a pod of the plugin has.
func (s *scene) token(ctx context.Context) string {
	GinkgoHelper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.plugin, Name: s.plugin},
		Spec: corev1.PodSpec{
			ServiceAccountName: s.plugin, Containers: []corev1.Container{{Name: "plugin", Image: "plugin"}},
		},
	}
	Expect(api.Create(ctx, pod)).To(Succeed())
	return strings.TrimSpace(kubectl(ctx, "create", "token", s.plugin, "--namespace", s.plugin,
		"--audience", contract.Audience, "--bound-object-kind", "Pod", "--bound-object-name", pod.Name))
}

// callers write through the Host's door under one revision, each on its own
// replica, until they are stopped.
type callers struct {
	stop    context.CancelFunc
	group   sync.WaitGroup
	answers []atomic.Int64
	applied atomic.Int64
}

func (s *scene) call(token string, revision uint64, workflowVersion, stepVersion string, n int, on ...*replica) *callers {
	GinkgoHelper()
	bearer := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+token)
	running, cancel := context.WithCancel(bearer)
	w := &callers{stop: cancel, answers: make([]atomic.Int64, n)}
	DeferCleanup(func() {
		cancel()
		w.group.Wait()
	})
	step := column
	for i := range n {
		host := on[i%len(on)].host
		w.group.Go(func() {
			for running.Err() == nil {
				id := uuid.NewString()
				limited, done := context.WithTimeout(running, callLimit)
				response, err := host.CreateTaskExact(limited, &pluginv1.CreateTaskExactRequest{
					RequestId: id, WorkspaceId: s.workspace, IdempotencyKey: id, ExternalId: id, CapabilityRevision: revision,
					Task: &pluginv1.CreateTaskRequest{WorkspaceId: s.workspace, WorkflowId: workflow, WorkflowStepId: &step, Title: "A task"},
					Guard: &pluginv1.PendingTransitionGuard{Expectation: &pluginv1.PendingTransitionGuard_ExpectNone{
						ExpectNone: &pluginv1.PendingTransitionGuard_NoTransition{},
					}},
					ExpectedWorkflowResourceVersion: workflowVersion, ExpectedWorkflowStepResourceVersion: stepVersion,
				})
				done()
				if err != nil {
					continue // no answer: the journal says what became of it
				}
				w.answers[i].Add(1)
				if response.GetResult().GetStatus() == pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_APPLIED {
					w.applied.Add(1)
				}
			}
		})
	}
	return w
}

// everyOther are the counters of the callers of one replica of two.
func everyOther(counters []atomic.Int64, first int) []*atomic.Int64 {
	var some []*atomic.Int64
	for i := first; i < len(counters); i += 2 {
		some = append(some, &counters[i])
	}
	return some
}

var _ = Describe("I5: a leader that is stopped in the middle of its work, as a process of its own, on PostgreSQL", func() {
	for _, how := range []struct {
		what string
		args []string
		ends string
	}{
		{"with a lease that another one takes", []string{"--leader-lease-duration=" + replicaLease.String()}, "leader election lost"},
		{"without a lease", []string{"--leader-elect=false"}, "no longer leads"},
	} {
		It("moves nothing when it comes back, and ends: "+how.what, func(ctx SpecContext) {
			server, err := startPostgres()
			Expect(err).NotTo(HaveOccurred())
			dsn, err := server.NewDatabase(ctx)
			Expect(err).NotTo(HaveOccurred())
			processes := buildReplicas(ctx, dsn)
			first := processes.start(how.args...)
			first.isReady(ctx)
			// The test reads the same database; it leads nothing.
			db := databaseAt(ctx, dsn).store()
			DeferCleanup(db.Close)
			s := newScene(ctx, readTasks, writeTasks)
			workflowVersion, stepVersion := s.seedWorkspace(ctx, db)
			granted := s.grant(ctx, writeTasks)
			key := s.key(ctx)

			leased := how.args[0] != "--leader-elect=false"
			var second *replica
			if leased {
				second = processes.start(how.args...) // waits for the lease
			}
			token := s.token(ctx)
			serving := []*replica{first, first}
			if leased {
				serving[1] = second
			}
			w := s.call(token, uint64(granted.Status.Revision), workflowVersion, stepVersion, 16, serving...)
			Eventually(w.applied.Load).WithTimeout(patience).Should(BeNumerically(">", 100))

			By("stopping it while it processes a narrowing and 16 write")
			narrower := s.spec(ctx, writeTasks)
			narrower.Reason = "Seen by the one that is stopped."
			until := metav1.NewTime(time.Now().Add(time.Hour).UTC().Truncate(time.Second))
			narrower.ExpiresAt = &until
			s.apply(ctx, narrower)
			first.signal(syscall.SIGSTOP)
			if !leased {
				second = processes.start(how.args...)
				w.stop()
				w.group.Wait()
				w = s.call(token, uint64(granted.Status.Revision), workflowVersion, stepVersion, 16, first, second)
			}
			second.isReady(ctx)

			Eventually(second.log.String).WithTimeout(patience).Should(ContainSubstring(isLeading))

			By("revoking, which the other one fences")
			revoking := narrower
			revoking.State = v1alpha1.StateRevoked
			s.apply(ctx, revoking)
			o := s.settled(ctx, revoked)
			entries := commits(ctx, db, s.workspace)
			head, _, err := db.Head(ctx, s.workspace)
			Expect(err).NotTo(HaveOccurred())
			term, err := db.Epochs(ctx)
			Expect(err).NotTo(HaveOccurred())
			before := story(ctx, key)
			fencedOff(entries, uint64(o.Status.Revision))
			Expect(entries[len(entries)-1].Kind).To(Equal(journal.KindFence), "the fence is the last commit")

			By("waking the first one, with calls under the old revision waiting for it")
			answered := w.answers
			first.signal(syscall.SIGCONT)
			again := narrower
			again.Reason = "Something for it to process."
			s.apply(ctx, again)
			Eventually(first.ended).WithTimeout(patience).Should(BeClosed(), first.log.String)
			Expect(first.cmd.ProcessState.ExitCode()).To(Equal(1), first.log.String())
			Expect(first.log.String()).To(ContainSubstring(how.ends))
			for _, counter := range everyOther(answered, 1) {
				from := counter.Load()
				Eventually(counter.Load).Should(BeNumerically(">", from+5), "the one that leads answers on")
			}
			w.stop()
			w.group.Wait()

			revoked(Default, s.settled(ctx, usedAgain))
			last, _, err := db.Head(ctx, s.workspace)
			Expect(err).NotTo(HaveOccurred())
			Expect(last).To(Equal(head), "nothing was committed after Fenced=True: no write, no hold, no fence")
			Expect(db.Epochs(ctx)).To(Equal(term), "the term was not taken back")
			Expect(story(ctx, key)).To(Equal(before))
			Expect(before[len(before)-1]).To(Equal("Revoke Human"))
			row, err := db.Row(ctx, key)
			Expect(err).NotTo(HaveOccurred())
			Expect(row.Hold).To(BeNil())
			Expect(second.ended).NotTo(BeClosed(), second.log.String())
		})
	}
})
