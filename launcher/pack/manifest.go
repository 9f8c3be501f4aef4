package pack

import (
	"bytes"
	"errors"
	"io"
	"path"
	"regexp"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// Bounds of what a manifest may declare. Bytes.
const (
	// MaxManifestBytes bounds manifest.yaml.
	MaxManifestBytes = 1 << 20
	// DefaultWebhookBytes bounds a webhook's body where nothing is declared.
	DefaultWebhookBytes = 4 << 20
	// MaxWebhookBytes bounds what a webhook can declare.
	MaxWebhookBytes = 16 << 20
	// MaxActionBytes bounds what an action can declare.
	MaxActionBytes = 1 << 20
)

// Access says who may call a webhook.
type Access string

// The accesses of webhooks.
const (
	AccessPublic        Access = "public"
	AccessAuthenticated Access = "authenticated"
)

// Scope says what an action is about.
type Scope string

// The scopes of actions.
const (
	ScopeWorkspace  Scope = "workspace"
	ScopeTask       Scope = "task"
	ScopeRepository Scope = "repository"
)

// Manifest is what the launcher needs of manifest.yaml. Everything else in it
// is for the Host and for other parts of Kandev.
type Manifest struct {
	ID         string `yaml:"id"`
	Version    string `yaml:"version"`
	APIVersion int    `yaml:"api_version"`
	BaseURL    string `yaml:"base_url"`
	Runtime    struct {
		Type        string            `yaml:"type"`
		Executables map[string]string `yaml:"executables"`
	} `yaml:"runtime"`
	Capabilities struct {
		Events []string `yaml:"events"`
		Auth   bool     `yaml:"auth"`
	} `yaml:"capabilities"`
	Webhooks []Webhook `yaml:"webhooks"`
	Actions  []Action  `yaml:"actions"`
}

// Webhook is a declared webhook, with its defaults filled in.
type Webhook struct {
	Key    string `yaml:"key"`
	Access Access `yaml:"access"`
	// MaxBodyBytes bounds the request's body.
	MaxBodyBytes int64 `yaml:"max_body_bytes"`
}

// Action is a declared action.
type Action struct {
	Key   string `yaml:"key"`
	Scope Scope  `yaml:"scope"`
	// ResourceScope is an older name of Scope; ParseManifest empties it.
	ResourceScope Scope `yaml:"resource_scope"`
	// MaxBodyBytes bounds the body field of a request, 1 to MaxActionBytes.
	MaxBodyBytes int64 `yaml:"max_body_bytes"`
}

var idPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*$`)

// ParseManifest reads and checks a manifest.yaml. Errors are ErrManifest and
// name the key. Unknown keys are ignored.
func ParseManifest(text []byte) (Manifest, error) {
	var m Manifest
	if len(text) > MaxManifestBytes {
		return m, fault(ErrManifest, "larger than %d bytes", MaxManifestBytes)
	}
	if err := yaml.NewDecoder(bytes.NewReader(text)).Decode(&m); err != nil {
		if errors.Is(err, io.EOF) {
			return m, fault(ErrManifest, "empty")
		}
		return m, fault(ErrManifest, "%v", err)
	}
	if problem := m.check(); problem != "" {
		return Manifest{}, fault(ErrManifest, "%s", problem)
	}
	return m, nil
}

// check returns what is wrong, and fills in defaults.
func (m *Manifest) check() string {
	switch {
	case !idPattern.MatchString(m.ID), strings.HasSuffix(m.ID, ".config"), len(m.ID) > 128:
		return "id: not a plugin ID"
	case m.APIVersion != 1 && m.APIVersion != 2:
		return "api_version: only 1 and 2 are known"
	case m.Version == "", len(m.Version) > 128,
		strings.ContainsAny(m.Version, `/\`+"\x00"), strings.ContainsFunc(m.Version, unicode.IsSpace):
		return "version: not a version"
	case m.Version == dataFolder:
		return "version: " + dataFolder + " is the name of the plugin's data"
	case m.Version[0] == '.':
		return "version: begins with a dot, as what the launcher keeps beside versions does"
	case m.Runtime.Type != "binary":
		return "runtime.type: only binary runs here"
	case m.BaseURL != "":
		return "base_url: must be empty for a binary"
	case len(m.Runtime.Executables) == 0:
		return "runtime.executables: at least one is required"
	}
	for platform, name := range m.Runtime.Executables {
		if !safeFile(name) {
			return "runtime.executables." + platform + ": not a clean relative path"
		}
	}
	if problem := m.checkWebhooks(); problem != "" {
		return problem
	}
	return m.checkActions()
}

func (m *Manifest) checkWebhooks() string {
	seen := map[string]bool{}
	for i := range m.Webhooks {
		w := &m.Webhooks[i]
		if w.Access == "" {
			w.Access = AccessPublic
			if m.APIVersion >= 2 {
				w.Access = AccessAuthenticated
			}
		}
		if w.MaxBodyBytes == 0 {
			w.MaxBodyBytes = DefaultWebhookBytes
		}
		switch {
		case w.Key == "", strings.Contains(w.Key, "/"):
			return "webhooks: a key is absent or holds a slash"
		case seen[w.Key]:
			return "webhooks: " + w.Key + " is declared twice"
		case w.Access != AccessPublic && w.Access != AccessAuthenticated:
			return "webhooks." + w.Key + ".access: neither public nor authenticated"
		case w.MaxBodyBytes < 0, w.MaxBodyBytes > MaxWebhookBytes:
			return "webhooks." + w.Key + ".max_body_bytes: beyond 16 MiB"
		case w.MaxBodyBytes > DefaultWebhookBytes && w.Access != AccessAuthenticated:
			return "webhooks." + w.Key + ".max_body_bytes: above 4 MiB only with authenticated access"
		}
		seen[w.Key] = true
	}
	return ""
}

func (m *Manifest) checkActions() string {
	seen := map[string]bool{}
	for i := range m.Actions {
		a := &m.Actions[i]
		if a.Scope == "" {
			a.Scope = a.ResourceScope
		}
		a.ResourceScope = ""
		switch {
		case !idPattern.MatchString(a.Key):
			return "actions: a key is no action key"
		case seen[a.Key]:
			return "actions: " + a.Key + " is declared twice"
		case a.Scope != ScopeWorkspace && a.Scope != ScopeTask && a.Scope != ScopeRepository:
			return "actions." + a.Key + ".scope: not workspace, task or repository"
		case a.MaxBodyBytes < 1, a.MaxBodyBytes > MaxActionBytes:
			return "actions." + a.Key + ".max_body_bytes: not 1 to 1048576"
		}
		seen[a.Key] = true
	}
	return ""
}

// Webhook returns the webhook of that key.
func (m *Manifest) Webhook(key string) (Webhook, bool) {
	for _, w := range m.Webhooks {
		if w.Key == key {
			return w, true
		}
	}
	return Webhook{}, false
}

// Action returns the action of that key.
func (m *Manifest) Action(key string) (Action, bool) {
	for _, a := range m.Actions {
		if a.Key == key {
			return a, true
		}
	}
	return Action{}, false
}

// safeFile says whether a name is one of a file inside a folder, in its one
// clean form.
func safeFile(name string) bool {
	return name != "" && name != "." && path.Clean(name) == name && !path.IsAbs(name) &&
		name != ".." && !strings.HasPrefix(name, "../") && !strings.ContainsAny(name, "\\\x00")
}
