package legacy

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/kandev/plugin-host/hostsvc/domain"
)

// ConfigSource knows what operators configured. It answers at once, from memory:
// no call waits for the cluster.
type ConfigSource interface {
	// Config returns what is known of an installation's configuration.
	Config(installationID string) Config
}

// Config is an installation's configuration.
type Config struct {
	Standing ConfigStanding
	// Values are the operator's plain ones. They must not be changed.
	Values domain.Object
	// Secrets are those given by reference, by property.
	Secrets map[string]ConfigSecret
}

// ConfigStanding is whether a configuration can be served.
type ConfigStanding int

// The standings of a configuration.
const (
	// ConfigUnknown: it hasn't been read, or not been decided on.
	ConfigUnknown ConfigStanding = iota
	// ConfigRefused: the installation isn't Accepted as it stands.
	ConfigRefused
	ConfigAccepted
)

// ConfigSecret is a secret given by reference: its value, or in Fault why there
// is none, without anything that is private.
type ConfigSecret struct {
	Value string
	Fault string
}

// config returns what is configured for the caller and accepted.
func (h *Host) config(caller Caller) (Config, *Failure) {
	config := h.Config.Config(caller.InstallationID)
	switch config.Standing {
	case ConfigAccepted:
		return config, nil
	case ConfigRefused:
		return Config{}, fail(FailedPrecondition, "the configuration of this plugin isn't accepted; the installation's Accepted condition says why")
	default:
		return Config{}, fail(Unavailable, "the configuration of this plugin isn't known at the moment; try the same again")
	}
}

// errUnresolved tells why a reference has no value. It is never left out instead.
func errUnresolved(property, fault string) *Failure {
	return fail(Unknown, "plugins: the secret of config property %q can't be resolved: %s", property, fault)
}

// GetConfig returns the operator's configuration with its secrets in clear text.
// Without one it is empty. A secret that has no value is a failure of the whole.
func (h *Host) GetConfig(_ context.Context, caller Caller) (domain.Object, error) {
	config, failure := h.config(caller)
	if failure != nil {
		return nil, failure
	}
	values := make(domain.Object, len(config.Values)+len(config.Secrets))
	maps.Copy(values, config.Values)
	for _, property := range slices.Sorted(maps.Keys(config.Secrets)) {
		secret := config.Secrets[property]
		if secret.Fault != "" {
			return nil, errUnresolved(property, secret.Fault)
		}
		values[property] = secret.Value
	}
	return values, nil
}

// The two ways to name what an operator gave to a plugin: the vault's shipped one,
// and the field of the installation that has it.
const (
	vaultRefInfix = ":config:"
	fieldRef      = "secretRefs/"
)

// RevealSecret returns what the operator of the caller's installation gave to it by
// reference: "plugin:<plugin ID>:config:<property>" or "secretRefs/<property>".
// There is nothing else that it can reveal, whoever knows its name.
func (h *Host) RevealSecret(_ context.Context, caller Caller, ref string) (string, error) {
	property, ok := strings.CutPrefix(ref, caller.source()+vaultRefInfix)
	if !ok {
		property, ok = strings.CutPrefix(ref, fieldRef)
	}
	if !ok {
		return "", errNoSuchRef()
	}
	config, failure := h.config(caller)
	if failure != nil {
		return "", failure
	}
	secret, ok := config.Secrets[property]
	switch {
	case !ok:
		return "", errNoSuchRef()
	case secret.Fault != "":
		return "", errUnresolved(property, secret.Fault)
	}
	return secret.Value, nil
}

// errNoSuchRef is one for all that isn't the caller's, so that it tells nothing of
// what others have (I14).
func errNoSuchRef() *Failure { return fail(Unknown, "plugins: secret not found") }
