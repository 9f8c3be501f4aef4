package world

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// startHost runs plugin-host as its pod would: under its own ServiceAccount, which
// has the rights that the release gives it, and no more.
func (w *World) startHost(ctx context.Context) error {
	w.narrator.Title("Run plugin-host under its own ServiceAccount")
	token, err := w.kubeQuietly(ctx, "create", "token", hostAccount, "--namespace", hostNamespace,
		"--duration", w.tokenLife.String())
	if err != nil {
		return err
	}
	if err := w.writeHostKubeconfig(strings.TrimSpace(token)); err != nil {
		return err
	}
	if err := w.writeCertificates(); err != nil {
		return err
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return fmt.Errorf("draw a cursor key: %w", err)
	}
	keys := base64.StdEncoding.EncodeToString(key) + "\n"
	if err := os.WriteFile(w.Path("cursor-keys"), []byte(keys), 0o600); err != nil {
		return fmt.Errorf("write the cursor key: %w", err)
	}
	addresses, err := freeAddresses(2)
	if err != nil {
		return err
	}
	w.Database = w.Path("plugin-host.db")
	w.health = "http://" + addresses[1] + "/readyz"
	w.hostArgs = []string{
		"--kubeconfig=" + w.Path("host.kubeconfig"),
		"--store=sqlite", "--sqlite-path=" + w.Database,
		"--grpc-listen=" + addresses[0], "--health-listen=" + addresses[1], "--metrics-listen=0",
		"--tls-cert-file=" + w.Path("tls.crt"), "--tls-key-file=" + w.Path("tls.key"),
		"--cursor-key-file=" + w.Path("cursor-keys"),
		"--leader-election-namespace=" + hostNamespace,
		"--seed-file=" + w.seed,
	}
	w.narrator.Show("plugin-host "+strings.Join(w.Shorten(w.hostArgs), " "), "")
	w.Address, w.CAFile = addresses[0], w.Path("ca.crt")
	if err := w.StartHost(ctx); err != nil {
		return err
	}
	w.narrator.Holds("plugin-host is ready")
	return nil
}

// StartHost runs plugin-host, which has ended or was never started, with
// further variables of its environment, and waits until it is ready.
func (w *World) StartHost(ctx context.Context, env ...string) (err error) {
	if w.Host, err = spawn(w.dir.Path(), env, w.Binary("plugin-host"), w.hostArgs...); err != nil {
		return err
	}
	if err := w.awaitReady(ctx, w.health); err != nil {
		return errors.Join(err, w.Host.LastWords())
	}
	return nil
}

func (w *World) awaitReady(ctx context.Context, url string) error {
	return Await(ctx, "plugin-host is ready", func() (bool, string, error) {
		select {
		case <-w.Host.Ended:
			return false, "", fmt.Errorf("plugin-host ended: %w", w.Host.err)
		default:
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return false, "", err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, err.Error(), nil
		}
		defer func() { _ = response.Body.Close() }()
		checks, err := io.ReadAll(io.LimitReader(response.Body, 4096))
		return response.StatusCode == http.StatusOK, response.Status + ": " + string(checks), err
	})
}

// writeHostKubeconfig is what a pod has in its service account folder.
func (w *World) writeHostKubeconfig(token string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["world"] = &clientcmdapi.Cluster{
		Server: w.control.Config().Host, CertificateAuthorityData: w.control.CA(),
	}
	config.AuthInfos[hostAccount] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["world"] = &clientcmdapi.Context{Cluster: "world", AuthInfo: hostAccount, Namespace: hostNamespace}
	config.CurrentContext = "world"
	if err := clientcmd.WriteToFile(*config, w.Path("host.kubeconfig")); err != nil {
		return fmt.Errorf("write the Host's kubeconfig: %w", err)
	}
	return nil
}

// writeCertificates makes a CA and the Host's serving certificate.
func (w *World) writeCertificates() error {
	now := time.Now()
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "plugin-host CA"},
		NotBefore: now.Add(-time.Minute), NotAfter: now.Add(w.tokenLife + time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	serving := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "plugin-host"},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the CA's key: %w", err)
	}
	servingKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the serving key: %w", err)
	}
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, &authorityKey.PublicKey, authorityKey)
	if err != nil {
		return fmt.Errorf("make the CA: %w", err)
	}
	servingDER, err := x509.CreateCertificate(rand.Reader, serving, authority, &servingKey.PublicKey, authorityKey)
	if err != nil {
		return fmt.Errorf("make the serving certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(servingKey)
	if err != nil {
		return fmt.Errorf("encode the serving key: %w", err)
	}
	files := map[string]*pem.Block{
		"ca.crt":  {Type: "CERTIFICATE", Bytes: authorityDER},
		"tls.crt": {Type: "CERTIFICATE", Bytes: servingDER},
		"tls.key": {Type: "PRIVATE KEY", Bytes: keyDER},
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := os.WriteFile(w.Path(name), pem.EncodeToMemory(files[name]), 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

// freeAddresses finds ports that nobody listens on.
func freeAddresses(n int) ([]string, error) {
	var held []net.Listener
	defer func() {
		for _, listener := range held {
			_ = listener.Close() // it only held its port
		}
	}()
	var addresses []string
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		held = append(held, listener)
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
}
