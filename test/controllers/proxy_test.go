package controllers_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// proxy stands between one process and the API server, and can hold a call back:
// that is where a process is stopped in the middle of its work.
type proxy struct {
	kubeconfig string

	mu    sync.Mutex
	armed *door
}

// door is the place of one call.
type door struct {
	method, part string
	// answered: the API server has served the call, and its answer is held back.
	answered bool
	// reached is closed when the call is there; it goes on once opened is closed.
	reached, opened chan struct{}
}

// The calls of a pass: what a process has done when it makes them, or waits for
// their answer.
func newDoor(method, part string, answered bool) *door {
	return &door{method: method, part: part, answered: answered, reached: make(chan struct{}), opened: make(chan struct{})}
}

func (p *proxy) arm(d *door) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = d
}

// take returns the door that a call has come to, once.
func (p *proxy) take(request *http.Request) *door {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.armed
	if d == nil || request.Method != d.method || !strings.HasSuffix(request.URL.Path, d.part) || request.URL.Query().Has("dryRun") {
		return nil
	}
	p.armed = nil
	return d
}

// startProxy runs one until the end of the spec.
func startProxy() *proxy {
	GinkgoHelper()
	p := &proxy{kubeconfig: filepath.Join(GinkgoT().TempDir(), "kubeconfig")}
	to, err := url.Parse(config.Host)
	Expect(err).NotTo(HaveOccurred())
	transport, err := rest.TransportFor(config)
	Expect(err).NotTo(HaveOccurred())
	forward := httputil.NewSingleHostReverseProxy(to)
	forward.FlushInterval = -1
	forward.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	forward.Transport = roundTripper(func(request *http.Request) (*http.Response, error) {
		d := p.take(request)
		if d != nil && !d.answered {
			close(d.reached)
			<-d.opened
		}
		response, err := transport.RoundTrip(request)
		if d != nil && d.answered {
			close(d.reached)
			<-d.opened
		}
		return response, err
	})
	server := httptest.NewServer(forward)
	DeferCleanup(server.CloseClientConnections)
	who := asHost(&rest.Config{}).Impersonate
	Expect(clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"proxy": {Server: server.URL}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"host": {Impersonate: who.UserName, ImpersonateGroups: who.Groups}},
		Contexts:       map[string]*clientcmdapi.Context{"proxy": {Cluster: "proxy", AuthInfo: "host"}},
		CurrentContext: "proxy",
	}, p.kubeconfig)).To(Succeed())
	return p
}
