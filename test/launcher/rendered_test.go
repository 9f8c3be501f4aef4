package launcher_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/controllers/kinds"
)

// The launcher as the controllers start it, with the Secret of spec.workload.platform
// mounted where the pod has it: the platform calls an action, and nobody else does.
func TestActionsThroughARenderedWorkload(t *testing.T) {
	h := newHost(t)
	o := &v1alpha1.PluginInstallation{
		Spec: v1alpha1.PluginInstallationSpec{
			PluginID: "sample", Version: "1.0.0", ServiceAccountRef: v1alpha1.ServiceAccountReference{Namespace: "plugin-sample", Name: "sample"},
			Workload: &v1alpha1.Workload{
				Image: "sample@sha256:1", Package: "/plugin/sample.tar.gz", Platform: &v1alpha1.WorkloadPlatform{SecretName: "sample-platform"},
				Args: []string{"--webhook-timeout=20s"},
			},
		},
		Status: v1alpha1.PluginInstallationStatus{InstallationID: "3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77"},
	}
	made, err := kinds.WorkloadOf(o, &kinds.WorkloadHost{Address: h.address, CA: "x", Namespace: "plugin-host-system", Port: 8443})
	if err != nil {
		t.Fatal(err)
	}
	pod := made.Deployment.Spec.Template.Spec
	args := mounted(t, pod, map[string][]byte{"token": []byte(platformToken), corev1.TLSCertKey: read(t, h.caFile), corev1.TLSPrivateKeyKey: read(t, h.keyFile)})
	l := begin(t, h, nil, args...)
	address := l.until(t, "It serves", "server", "plugin")["address"].(string)
	l.until(t, "The plugin runs", "", nil)

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(read(t, h.caFile))
	client := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	defer client.CloseIdleConnections()
	for bearer, want := range map[string]int{platformToken: http.StatusOK, "another": http.StatusUnauthorized} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+address+"/actions/press", strings.NewReader(`{"workspaceId":"w"}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+bearer)
		request.Header.Set("X-Kandev-Actor-Id", "ann")
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != want || want == http.StatusOK && !strings.Contains(string(text), `"actor":"ann"`) {
			t.Errorf("%q is answered %d %q, %v", bearer, answer.StatusCode, text, err)
		}
	}
	if code := l.end(t); code != 0 {
		t.Errorf("ends with status %d", code)
	}
}

// mounted puts what the pod mounts below a folder of the test, and returns the
// container's arguments for it. Ports are those that are free.
func mounted(t *testing.T, pod corev1.PodSpec, secret map[string][]byte) []string {
	t.Helper()
	folder := t.TempDir()
	places := map[string]string{
		":8080": "127.0.0.1:0", ":8081": "127.0.0.1:0", "/plugin/sample.tar.gz": packageOf(t, "1.0.0"),
		"/tmp": "/tmp", // a socket's path must be short
	}
	for _, volume := range pod.Volumes {
		if volume.Secret == nil {
			continue
		}
		for _, item := range volume.Secret.Items {
			writeFile(t, filepath.Join(folder, volume.Name+"."+item.Path), secret[item.Key])
		}
	}
	for _, mount := range pod.Containers[0].VolumeMounts {
		places[mount.MountPath+"/"] = filepath.Join(folder, mount.Name) + "."
		if _, set := places[mount.MountPath]; !set {
			places[mount.MountPath] = filepath.Join(folder, mount.Name)
		}
	}
	var args []string
	for _, arg := range pod.Containers[0].Args {
		flag, value, _ := strings.Cut(arg, "=")
		dir, file := path.Split(value)
		if whole, ok := places[value]; ok {
			value = whole
		} else if below, ok := places[dir]; ok {
			value = below + file
		}
		args = append(args, flag+"="+value)
	}
	return args
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
