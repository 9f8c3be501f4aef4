package plugindata_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/controllers/plugindata"
	"github.com/kandev/plugin-host/hack/controlplane"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/legacy"
	"github.com/kandev/plugin-host/hostsvc/store"
	"github.com/kandev/plugin-host/hostsvc/store/sqlite"
)

// The API server of the package's tests, and an administrator's client.
var (
	admin  *rest.Config
	api    client.Client
	scheme = runtime.NewScheme()
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return 1, err
		}
	}
	plane, err := controlplane.Start(context.Background(), controlplane.Options{CRDDirs: []string{"../../config/crd/bases"}})
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopped := plane.Stop(); err == nil {
			err = stopped
		}
	}()
	admin = plane.Config()
	if api, err = client.New(admin, client.Options{Scheme: scheme}); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// hostUser is who the Host is: it may read installations, and the Secrets that it is
// given.
const hostUser = "system:serviceaccount:plugin-host-system:plugin-host"

func host(t *testing.T) *rest.Config {
	t.Helper()
	config := rest.CopyConfig(admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: hostUser}
	return config
}

// scene is one plugin's namespace, with a source that watches.
type scene struct {
	*testing.T
	namespace string
	source    *plugindata.Source
	log       *buffer
}

// every is how often the tests' sources read Secrets.
const every = 50 * time.Millisecond

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{T: t, log: &buffer{}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "plugin-"}}
	s.must(api.Create(t.Context(), namespace))
	s.namespace = namespace.Name
	s.allow(&rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"plugininstallations"}, Verbs: []string{"get", "list", "watch"}}},
	})

	live, err := client.New(host(t), client.Options{Scheme: scheme})
	s.must(err)
	s.source = plugindata.NewSource(live, every, slog.New(slog.NewTextHandler(s.log, nil)))
	informers, err := cache.New(host(t), cache.Options{Scheme: scheme})
	s.must(err)
	s.must(s.source.Register(t.Context(), informers))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := informers.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	running.Go(func() {
		if err := s.source.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return s
}

// allow gives the Host a cluster role.
func (s *scene) allow(role *rbacv1.ClusterRole) {
	s.Helper()
	s.must(api.Create(s.Context(), role))
	s.must(api.Create(s.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: hostUser}},
	}))
}

// let lets the Host read Secrets by name, as docs/howto/plugin-configuration.md
// says.
func (s *scene) let(names ...string) {
	s.Helper()
	s.must(api.Create(s.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "plugin-host-secrets", Namespace: s.namespace},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: names, Verbs: []string{"get"}}},
	}))
	s.must(api.Create(s.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "plugin-host-secrets", Namespace: s.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "plugin-host-secrets"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: hostUser}},
	}))
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *scene) secret(name string, data map[string]string) *corev1.Secret {
	s.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace}, StringData: data}
	s.must(api.Create(s.Context(), secret))
	return secret
}

// install makes an installation and gives it an ID, as the controller does.
func (s *scene) install(id, config string, refs ...v1alpha1.SecretReference) *v1alpha1.PluginInstallation {
	s.Helper()
	o := &v1alpha1.PluginInstallation{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "standup-"},
		Spec: v1alpha1.PluginInstallationSpec{
			PluginID: "standup", Version: "1.0.0", ServiceAccountRef: v1alpha1.ServiceAccountReference{Namespace: s.namespace, Name: "standup"},
			Manifest: v1alpha1.PluginManifest{ConfigSchema: &apiextensionsv1.JSON{Raw: []byte(
				`{"type":"object","properties":{"days":{"type":"integer"},"channel":{"type":"string"},"token":{"type":"string","secret":true},"more":{"type":"string","secret":true}}}`)}},
			SecretRefs: refs,
		},
	}
	if config != "" {
		o.Spec.Config = &apiextensionsv1.JSON{Raw: []byte(config)}
	}
	s.must(api.Create(s.Context(), o))
	s.Cleanup(func() { s.must(client.IgnoreNotFound(api.Delete(context.Background(), o))) })
	o.Status.InstallationID = id
	s.must(api.Status().Update(s.Context(), o))
	return o
}

func ref(property, secret, key string) v1alpha1.SecretReference {
	return v1alpha1.SecretReference{Name: property, SecretName: secret, Key: key}
}

// becomes waits until the source says so of an installation.
func (s *scene) becomes(id string, want legacy.Config) {
	s.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		got := s.source.Config(id)
		if reflect.DeepEqual(got, want) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			s.Fatalf("the configuration is %+v, want %+v; logged: %s", got, want, s.log)
		}
	}
}

// edit changes an object until no other write is in between.
func (s *scene) edit(o *v1alpha1.PluginInstallation, change func(*v1alpha1.PluginInstallation)) {
	s.Helper()
	s.must(api.Get(s.Context(), client.ObjectKeyFromObject(o), o))
	change(o)
	s.must(api.Update(s.Context(), o))
}

const (
	first  = "11111111-1111-4111-8111-111111111111"
	second = "22222222-2222-4222-8222-222222222222"
)

func TestConfigurationFollowsTheInstallation(t *testing.T) {
	s := newScene(t)
	if got := s.source.Config(""); got.Standing != legacy.ConfigUnknown {
		t.Errorf("the configuration of nobody is %+v", got)
	}
	o := s.install(first, "")
	s.becomes(first, legacy.Config{Standing: legacy.ConfigAccepted})
	s.edit(o, func(o *v1alpha1.PluginInstallation) {
		o.Spec.Config = &apiextensionsv1.JSON{Raw: []byte(`{"days":2,"channel":"standup"}`)}
	})
	s.becomes(first, legacy.Config{Standing: legacy.ConfigAccepted, Values: domain.Object{"days": 2.0, "channel": "standup"}})
	s.edit(o, func(o *v1alpha1.PluginInstallation) {
		o.Spec.Config = &apiextensionsv1.JSON{Raw: []byte(`{"days":"many"}`)}
	})
	s.becomes(first, legacy.Config{Standing: legacy.ConfigRefused})
	if got := s.source.Config(second); got.Standing != legacy.ConfigUnknown {
		t.Errorf("the configuration of another one is %+v", got)
	}
	s.must(api.Delete(s.Context(), o))
	s.becomes(first, legacy.Config{})
	// A reinstall has an ID of its own.
	s.install(second, `{"days":3}`)
	s.becomes(second, legacy.Config{Standing: legacy.ConfigAccepted, Values: domain.Object{"days": 3.0}})
	s.becomes(first, legacy.Config{})
}

func TestSecretsAreResolvedByTheRightsGiven(t *testing.T) {
	s := newScene(t)
	with := func(token, more legacy.ConfigSecret) legacy.Config {
		return legacy.Config{
			Standing: legacy.ConfigAccepted, Values: domain.Object{"days": 1.0},
			Secrets: map[string]legacy.ConfigSecret{"token": token, "more": more},
		}
	}
	fault := func(text string) legacy.ConfigSecret { return legacy.ConfigSecret{Fault: text} }
	value := func(text string) legacy.ConfigSecret { return legacy.ConfigSecret{Value: text} }
	given := s.secret("given", map[string]string{"token": "s3cr3t-token", "long": strings.Repeat("x", plugindata.MaxSecretBytes+1)})
	s.secret("kept", map[string]string{"token": "s3cr3t-kept"})
	o := s.install(first, `{"days":1}`, ref("token", "given", "token"), ref("more", "given", "more"))
	const forbidden = "the Host may not read its Secret"
	s.becomes(first, with(fault(forbidden), fault(forbidden)))
	s.let("given", "later")
	s.becomes(first, with(value("s3cr3t-token"), fault("its Secret has no such key")))
	given.StringData = map[string]string{"more": "s3cr3t-more", "token": "s3cr3t-new"}
	s.must(api.Update(s.Context(), given))
	s.becomes(first, with(value("s3cr3t-new"), value("s3cr3t-more")))

	refer := func(secret, key string) {
		t.Helper()
		s.edit(o, func(o *v1alpha1.PluginInstallation) { o.Spec.SecretRefs[1] = ref("more", secret, key) })
	}
	// The right to read one Secret is none to read another.
	refer("kept", "token")
	s.becomes(first, with(value("s3cr3t-new"), fault(forbidden)))
	refer("later", "token")
	s.becomes(first, with(value("s3cr3t-new"), fault("its Secret isn't there")))
	s.secret("later", map[string]string{"token": "s3cr3t-later"})
	s.becomes(first, with(value("s3cr3t-new"), value("s3cr3t-later")))
	refer("given", "long")
	s.becomes(first, with(value("s3cr3t-new"), fault("its value is longer than 65536 bytes")))
	given.Data["long"] = []byte{0xff, 0xfe}
	given.StringData = nil
	s.must(api.Update(s.Context(), given))
	s.becomes(first, with(value("s3cr3t-new"), fault("its value isn't UTF-8")))
	refer("given", "more")
	s.becomes(first, with(value("s3cr3t-new"), value("s3cr3t-more")))

	// What is taken away is gone.
	s.must(api.Delete(s.Context(), given))
	s.becomes(first, with(fault("its Secret isn't there"), fault("its Secret isn't there")))
	if text := s.log.String(); strings.Contains(text, "s3cr3t") || !strings.Contains(text, "given") {
		t.Errorf("the log is %s", text)
	}
	s.edit(o, func(o *v1alpha1.PluginInstallation) { o.Spec.SecretRefs = nil })
	s.becomes(first, legacy.Config{Standing: legacy.ConfigAccepted, Values: domain.Object{"days": 1.0}})
}

// TestSecretsOfAnotherNamespaceAreNobodys: the name of a Secret is one in the
// plugin's own namespace, whatever the Host may read elsewhere.
func TestSecretsOfAnotherNamespaceAreNobodys(t *testing.T) {
	s, other := newScene(t), newScene(t)
	other.secret("given", map[string]string{"token": "s3cr3t"})
	other.let("given")
	other.install(second, "", ref("token", "given", "token"))
	other.becomes(second, legacy.Config{Standing: legacy.ConfigAccepted, Secrets: map[string]legacy.ConfigSecret{"token": {Value: "s3cr3t"}}})
	s.let("given")
	s.install(first, "", ref("token", "given", "token"))
	s.becomes(first, legacy.Config{Standing: legacy.ConfigAccepted, Secrets: map[string]legacy.ConfigSecret{"token": {Fault: "its Secret isn't there"}}})
}

// TestI13_SweepPurgesWhatNobodySawGo: an uninstall while no Host ran.
func TestI13_SweepPurgesWhatNobodySawGo(t *testing.T) {
	s := newScene(t)
	engine, err := sqlite.Open(t.TempDir() + "/host.db")
	s.must(err)
	durable, err := store.Open(t.Context(), engine, store.Options{Now: time.Now, Log: slog.New(slog.DiscardHandler), Fatal: func(err error) { t.Error(err) }})
	s.must(err)
	t.Cleanup(func() { s.must(durable.Close()) })
	ids := map[string]string{}
	for _, name := range []string{"stays", "goes"} {
		o := s.install("", "")
		id, err := durable.RecordInstallation(t.Context(), string(o.UID), o.Name)
		s.must(err)
		ids[name] = id
		s.must(durable.PutState(t.Context(), domain.PluginState{InstallationID: id, Key: "k"}, journal.Receipt{
			AuditID: uuid.NewString(), InstallationID: id, Result: contract.StateApplied,
		}, func(legacy.StateWrite) error { return nil }))
		if name == "goes" {
			s.must(api.Delete(t.Context(), o))
		}
	}
	sweep := &plugindata.Sweep{Store: durable, Live: api, Every: time.Hour, Log: slog.New(slog.NewTextHandler(s.log, nil))}
	for range 2 {
		s.must(sweep.Run(t.Context()))
	}
	for name, want := range map[string]bool{"stays": true, "goes": false} {
		_, found, err := durable.State(t.Context(), legacy.StateKey{InstallationID: ids[name], Key: "k"})
		s.must(err)
		dead, err := durable.Tombstoned(t.Context(), ids[name])
		s.must(err)
		if found != want || dead == want {
			t.Errorf("what %s has kept is there: %t, tombstoned: %t", name, found, dead)
		}
	}
	// Without an answer of the cluster nothing is concluded.
	// This user may list nothing.
	stranger := rest.CopyConfig(admin)
	stranger.Impersonate = rest.ImpersonationConfig{UserName: "stranger"}
	sweep.Live, err = client.New(stranger, client.Options{Scheme: scheme})
	s.must(err)
	if err := sweep.Run(t.Context()); err == nil {
		t.Error("a sweep without the cluster succeeds")
	}
	if _, found, err := durable.State(t.Context(), legacy.StateKey{InstallationID: ids["stays"], Key: "k"}); !found || err != nil {
		t.Errorf("it left %t, %v", found, err)
	}
}

// buffer keeps a log.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
