package plugindata

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/controllers/kinds"
	"github.com/kandev/plugin-host/hostsvc/legacy"
)

const (
	// RefreshEvery is how often the Secrets that an installation names are read: how
	// late a change of one shows.
	RefreshEvery = 30 * time.Second
	// MaxSecretBytes bounds one value of a Secret.
	MaxSecretBytes = 64 << 10
	// readTimeout bounds the reading of one Secret.
	readTimeout = 5 * time.Second
	workers     = 4
)

// Why a reference has no value. Plugins are told so; the Secret's name is for the
// log.
const (
	faultMissing   = "its Secret isn't there"
	faultForbidden = "the Host may not read its Secret"
	faultKey       = "its Secret has no such key"
	faultSize      = "its value is longer than 65536 bytes"
	faultText      = "its value isn't UTF-8"
	faultRead      = "its Secret can't be read at the moment"
)

// Source knows what operators configured, on every replica. It implements
// legacy.ConfigSource, and is a manager's runnable.
type Source struct {
	live  client.Reader
	log   *slog.Logger
	every time.Duration
	queue workqueue.TypedRateLimitingInterface[string]
	// turned is told of each installation whose references stand otherwise than before.
	turned func(name string)

	mu sync.RWMutex
	// installations are by the name of their object, owners the names by ID.
	installations map[string]*installation
	owners        map[string]string
}

var _ legacy.ConfigSource = (*Source)(nil)

// installation is what is known of one: object is never changed.
type installation struct {
	object *v1alpha1.PluginInstallation
	config legacy.Config
	// read: config's secrets were read for this very version, not for an earlier one.
	read bool
}

// NewSource returns a source that has seen nothing. live reads past every cache.
// every is RefreshEvery unless a test can't wait.
func NewSource(live client.Reader, every time.Duration, log *slog.Logger) *Source {
	return &Source{
		live: live, log: log, every: every, turned: func(string) {},
		queue:         workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
		installations: map[string]*installation{}, owners: map[string]string{},
	}
}

// Config implements legacy.ConfigSource.
func (s *Source) Config(installationID string) legacy.Config {
	s.mu.RLock()
	defer s.mu.RUnlock()
	known := s.installations[s.owners[installationID]]
	if known == nil || installationID == "" {
		return legacy.Config{}
	}
	return known.config
}

// Follow has turned called with the name of each installation for which Unresolved
// answers otherwise than before. It is called before the manager starts.
func (s *Source) Follow(turned func(name string)) { s.turned = turned }

// Unresolved lists why references of an installation have no value; known is false
// until the Secrets of this very version were read.
func (s *Source) Unresolved(o *v1alpha1.PluginInstallation) (why []string, known bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	seen := s.installations[o.Name]
	if seen == nil || seen.object.UID != o.UID || seen.object.Generation != o.Generation || seen.config.Secrets == nil {
		return nil, false
	}
	for _, ref := range o.Spec.SecretRefs {
		if fault := seen.config.Secrets[ref.Name].Fault; fault != "" {
			why = append(why, fmt.Sprintf("spec.secretRefs[%s]: %s (Secret %s/%s, key %s)",
				ref.Name, fault, o.Spec.ServiceAccountRef.Namespace, ref.SecretName, ref.Key))
		}
	}
	return why, true
}

// Register adds the source to the watch of installations.
func (s *Source) Register(ctx context.Context, informers cache.Cache) error {
	informer, err := informers.GetInformer(ctx, &v1alpha1.PluginInstallation{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch installations: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: s.observe, UpdateFunc: func(_, object any) { s.observe(object) },
		DeleteFunc: func(object any) {
			if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			if o, ok := object.(*v1alpha1.PluginInstallation); ok {
				s.forget(o.Name)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("handle installations: %w", err)
	}
	return nil
}

// Start implements manager.Runnable.
func (s *Source) Start(ctx context.Context) error {
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for {
				name, ended := s.queue.Get()
				if ended {
					return
				}
				s.refresh(ctx, name)
				s.queue.Done(name)
			}
		})
	}
	<-ctx.Done()
	s.queue.ShutDown()
	working.Wait()
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (s *Source) NeedLeaderElection() bool { return false }

// observe takes in a version of an installation. What was resolved for another one
// of its object counts no more, but for the references that stayed the same.
func (s *Source) observe(object any) {
	o, ok := object.(*v1alpha1.PluginInstallation)
	if !ok {
		return
	}
	if o.DeletionTimestamp != nil {
		s.forget(o.Name)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.installations[o.Name]
	if before != nil && before.object.UID == o.UID && before.object.Generation == o.Generation &&
		before.object.Status.InstallationID == o.Status.InstallationID {
		return
	}
	if before != nil {
		s.disown(before.object)
	}
	s.installations[o.Name] = &installation{object: o, config: configOf(o, before)}
	if id := o.Status.InstallationID; id != "" && s.owners[id] == "" {
		// An ID is minted once: a second object of it has nothing.
		s.owners[id] = o.Name
	}
	if len(o.Spec.SecretRefs) > 0 {
		s.queue.Add(o.Name)
	}
}

func (s *Source) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.installations[name]; known != nil {
		s.disown(known.object)
		delete(s.installations, name)
	}
}

func (s *Source) disown(o *v1alpha1.PluginInstallation) {
	if s.owners[o.Status.InstallationID] == o.Name {
		delete(s.owners, o.Status.InstallationID)
	}
}

// plainOf is the configuration of an object without its secrets.
func plainOf(o *v1alpha1.PluginInstallation) legacy.Config {
	refused := legacy.Config{Standing: legacy.ConfigRefused}
	if kinds.ConfigFault(o) != nil {
		return refused
	}
	config := legacy.Config{Standing: legacy.ConfigAccepted}
	if o.Spec.Config != nil && len(o.Spec.Config.Raw) > 0 && json.Unmarshal(o.Spec.Config.Raw, &config.Values) != nil {
		return refused
	}
	return config
}

// configOf is the configuration of an object before its Secrets are read anew. Until
// then it is unknown, unless before has all of them already.
func configOf(o *v1alpha1.PluginInstallation, before *installation) legacy.Config {
	config := plainOf(o)
	if config.Standing == legacy.ConfigRefused || len(o.Spec.SecretRefs) == 0 {
		return config
	}
	config.Secrets = map[string]legacy.ConfigSecret{}
	for _, ref := range o.Spec.SecretRefs {
		resolved, ok := before.resolved(o, ref)
		if !ok {
			return legacy.Config{}
		}
		config.Secrets[ref.Name] = resolved
	}
	return config
}

// resolved is what a reference was resolved to in an earlier version of the object.
func (i *installation) resolved(o *v1alpha1.PluginInstallation, ref v1alpha1.SecretReference) (legacy.ConfigSecret, bool) {
	if i == nil || i.object.UID != o.UID || i.object.Spec.ServiceAccountRef.Namespace != o.Spec.ServiceAccountRef.Namespace {
		return legacy.ConfigSecret{}, false
	}
	for _, earlier := range i.object.Spec.SecretRefs {
		if earlier == ref {
			resolved, ok := i.config.Secrets[ref.Name]
			return resolved, ok
		}
	}
	return legacy.ConfigSecret{}, false
}

// refresh reads the Secrets that an installation names, and comes again.
func (s *Source) refresh(ctx context.Context, name string) {
	s.mu.RLock()
	known := s.installations[name]
	s.mu.RUnlock()
	if known == nil || len(known.object.Spec.SecretRefs) == 0 {
		return
	}
	defer s.queue.AddAfter(name, s.every)
	o, config := known.object, plainOf(known.object)
	if config.Standing == legacy.ConfigRefused {
		return
	}
	config.Secrets = map[string]legacy.ConfigSecret{}
	read := map[string]secret{}
	// Who asked about this version before it was observed here has had no answer.
	turned := !known.read
	for _, ref := range o.Spec.SecretRefs {
		found, ok := read[ref.SecretName]
		if !ok {
			found = s.read(ctx, o.Spec.ServiceAccountRef.Namespace, ref.SecretName)
			read[ref.SecretName] = found
		}
		before, had := known.config.Secrets[ref.Name]
		resolved := found.value(ref.Key)
		if resolved.Fault == faultRead && had && before.Fault == "" {
			// Nobody has taken it away: the API server doesn't answer.
			resolved = before
		}
		config.Secrets[ref.Name] = resolved
		if resolved.Fault != before.Fault {
			turned = true
			s.tell(ctx, o, ref, resolved.Fault, found.err)
		}
	}
	if s.learn(known, &installation{object: o, config: config, read: true}) && turned {
		s.turned(name)
	}
}

// learn takes what was read, unless another version came meanwhile.
func (s *Source) learn(before, now *installation) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.installations[now.object.Name] != before {
		return false
	}
	s.installations[now.object.Name] = now
	return true
}

// secret is a Secret as it was read.
type secret struct {
	data  map[string][]byte
	fault string
	err   error
}

func (s *Source) read(ctx context.Context, namespace, name string) secret {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var object corev1.Secret
	err := s.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &object)
	switch {
	case err == nil && object.DeletionTimestamp == nil:
		return secret{data: object.Data}
	case err == nil, apierrors.IsNotFound(err):
		return secret{fault: faultMissing, err: err}
	case apierrors.IsForbidden(err):
		return secret{fault: faultForbidden, err: err}
	default:
		return secret{fault: faultRead, err: err}
	}
}

func (s secret) value(key string) legacy.ConfigSecret {
	value, ok := s.data[key]
	switch {
	case s.fault != "":
		return legacy.ConfigSecret{Fault: s.fault}
	case !ok:
		return legacy.ConfigSecret{Fault: faultKey}
	case len(value) > MaxSecretBytes:
		return legacy.ConfigSecret{Fault: faultSize}
	case !utf8.Valid(value):
		return legacy.ConfigSecret{Fault: faultText}
	}
	return legacy.ConfigSecret{Value: string(value)}
}

func (s *Source) tell(ctx context.Context, o *v1alpha1.PluginInstallation, ref v1alpha1.SecretReference, fault string, cause error) {
	log := s.log.With("installation", o.Name, "property", ref.Name, "secret", o.Spec.ServiceAccountRef.Namespace+"/"+ref.SecretName, "key", ref.Key)
	if fault == "" {
		log.InfoContext(ctx, "A secret of a configuration is there")
		return
	}
	if errors.Is(cause, context.Canceled) {
		return
	}
	log.WarnContext(ctx, "A secret of a configuration can't be had", "because", fault, "error", cause)
}
