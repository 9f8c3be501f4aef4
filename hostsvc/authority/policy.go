package authority

import "github.com/kandev/plugin-host/contract"

// Policy is the human policy: the capabilities that a human may delegate at
// all. It is compiled in and immutable; its version is part of every revision.
// Classes that are wholly reserved to humans (merge, release, deploy, history
// rewrite, cross-workspace access, secret disclosure) have no capability, so
// no policy can let one through (ADR, human-reserved matrix).
type Policy struct {
	Version string
	Allowed contract.CapabilitySet
}

// BuiltInPolicy is the policy of this build.
func BuiltInPolicy() Policy {
	return Policy{Version: "builtin/v1", Allowed: contract.AllCapabilities}
}
