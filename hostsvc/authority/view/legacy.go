package view

import (
	"time"

	"github.com/kandev/plugin-host/hostsvc/authority"
)

// Legacy returns what this process sees of an installation for its v1 calls. It
// neither blocks nor allocates.
//
// v1 has no row in the store, so what is seen here is all that decides, and how
// old it can be is what FreshUntil says: what the API server took of an
// installation's spec a lease's life ago or longer, a suspension included, and an
// uninstall, either shows here or nothing is fresh. Where the watches work that
// takes milliseconds. That a namespace became a workspace, which closes
// ServiceAccountConflict for the plugins in it, shows as its watch delivers; the
// fresh read is not of namespaces.
func (v *View) Legacy(installationID string) authority.Legacy {
	const needed = SourceInstallations | SourceNamespaces
	if Source(v.complete.Load())&needed != needed {
		return authority.Legacy{}
	}
	// Before what it speaks of: else a state of before would have a time of after.
	until := *v.freshUntil.Load()
	seen, ok := (*v.legacy.Load())[installationID]
	if !ok {
		return authority.Legacy{FreshUntil: until}
	}
	legacy := *seen
	legacy.FreshUntil = until
	return legacy
}

// reading is a live read of every installation: the generations by UID.
type reading struct {
	begun time.Time
	life  time.Duration
	live  map[string]int64
}

// InstallationsRead records a read of every installation, past every cache, that
// began at begun by the clock that decides calls: the generations of what is there
// and isn't being deleted, by UID. Once the watch has shown that or later, what is
// seen is fresh until life after begun.
func (v *View) InstallationsRead(begun time.Time, life time.Duration, live map[string]int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.reading != nil && begun.Before(v.reading.begun) {
		return
	}
	v.reading = &reading{begun: begun, life: life, live: live}
	v.catchUp()
}

// catchUp is called with mu held, after whatever the watch of installations shows.
func (v *View) catchUp() {
	r := v.reading
	if r == nil || Source(v.complete.Load())&SourceInstallations == 0 {
		return
	}
	for _, installation := range v.installations {
		// One that the read hasn't is gone, or newer than the read: the next one tells.
		if generation, there := r.live[installation.UID]; !there || installation.Generation < generation {
			return
		}
	}
	if len(v.installations) < len(r.live) {
		return
	}
	until := r.begun.Add(r.life)
	if until.After(*v.freshUntil.Load()) {
		v.freshUntil.Store(&until)
	}
	v.reading = nil
}

// renewLegacy is called with mu held, when principals were renewed: an installation
// whose ServiceAccount isn't its own alone is blocked.
func (v *View) renewLegacy(principals map[serviceAccount]Principal) {
	legacy := make(map[string]*authority.Legacy, len(v.installations))
	for _, installation := range v.installations {
		if installation.ID == "" {
			continue
		}
		seen := &authority.Legacy{Installed: true}
		principal := principals[serviceAccount{installation.ServiceAccountNamespace, installation.ServiceAccountName}]
		if installation.Suspended {
			seen.Gates |= authority.GateSuspended
		}
		if principal.Conflict {
			seen.Gates |= authority.GateServiceAccountConflict
		}
		if installation.HostVersionUnsupported {
			seen.Gates |= authority.GateHostVersionUnsupported
		}
		if installation.ServiceAccountUID == "" || installation.PrincipalChanged {
			seen.Gates |= authority.GatePrincipalChanged
		}
		if seen.Gates == 0 {
			seen.LegacyTerms = installation.Legacy
		}
		legacy[installation.ID] = seen
	}
	v.legacy.Store(&legacy)
}
