package admission

import (
	"fmt"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

// LegacyView is what this process sees of installations.
type LegacyView interface {
	// Legacy returns what is seen of an installation. It must not block or allocate.
	Legacy(installationID string) authority.Legacy
}

// LegacyNeed lists what a v1 method asks of its caller's manifest, all of it and in
// this order. The empty one asks for nothing but an installation that isn't blocked.
type LegacyNeed []contract.LegacyCapability

// LegacyRefusal is the answer to a v1 call that isn't allowed. Message is the whole
// text of the status, as shipped where v1 has one.
type LegacyRefusal struct {
	// Unavailable: it isn't known whether the call is allowed; the code is
	// Unavailable, and the same call can be tried again. Otherwise the code is
	// PermissionDenied.
	Unavailable bool
	Message     string
}

func (r *LegacyRefusal) Error() string { return r.Message }

// LegacyNotDeclared is the shipped refusal of what a plugin's manifest doesn't
// declare. AuthoriseLegacy refuses so what methods need; the few that look at
// more, such as who made a task, name it themselves.
func LegacyNotDeclared(name string) *LegacyRefusal {
	return &LegacyRefusal{Message: fmt.Sprintf("capability '%s' not declared", name)}
}

const legacyUninstalled = "the plugin is not installed"

// LegacyUninstalled is the refusal of an installation that isn't there, for a
// write that learns it in its transaction.
func LegacyUninstalled() *LegacyRefusal { return &LegacyRefusal{Message: legacyUninstalled} }

// AuthoriseLegacy decides a v1 call (I12), before anything else of it is looked at:
// nil allows it. The manifest alone says what is declared, and a writer needs the
// installation's grant as well. It reads neither a row nor a revision, so that
// nothing of the exact world can come of it.
func AuthoriseLegacy(legacy authority.Legacy, need LegacyNeed, now time.Time) *LegacyRefusal {
	if !legacy.Fresh(now) {
		return &LegacyRefusal{Unavailable: true, Message: "what this plugin may do isn't known at the moment; try the same again"}
	}
	if blocked := legacyBlocked(legacy); blocked != "" {
		return &LegacyRefusal{Message: blocked}
	}
	for _, c := range need {
		if !legacy.Declared.Has(c) {
			return LegacyNotDeclared(c.String())
		}
	}
	for _, c := range need {
		if contract.LegacyWriters.Has(c) && !legacy.Writers.Has(c) {
			return &LegacyRefusal{Message: fmt.Sprintf(
				"capability '%s' not granted: a platform admin has to grant it to this installation in spec.compatibility.legacyWriters", c)}
		}
	}
	return nil
}

// legacyBlocked says what keeps an installation from everything, "" for nothing.
func legacyBlocked(legacy authority.Legacy) string {
	switch {
	case !legacy.Installed:
		return legacyUninstalled
	case legacy.Gates&authority.GateSuspended != 0:
		return "the plugin is suspended by a platform admin"
	case legacy.Gates&authority.GateHostVersionUnsupported != 0:
		return "the plugin's manifest asks for a newer Host"
	case legacy.Gates != 0:
		return "the plugin's ServiceAccount is not accepted; the installation's Accepted condition says why"
	default:
		return ""
	}
}

// ImplicitExpectNone tells whether a plugin may leave a guard and a request ID out
// of its exact writes. What isn't known is no.
func ImplicitExpectNone(legacy authority.Legacy, now time.Time) bool {
	return legacy.Fresh(now) && legacy.ImplicitExpectNone
}
