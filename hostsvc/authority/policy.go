package authority

import (
	"slices"
	"strings"
	"time"

	"github.com/kandev/plugin-host/contract"
)

// Policy is the human policy in force: the matrix of this build, tightened by
// at most one object of the cluster. Its version is part of every revision
// (I2).
type Policy struct {
	Version string
	// Allowed are the capabilities that a human may delegate at all.
	Allowed contract.CapabilitySet
	// FourEyes are those that two humans have to approve.
	FourEyes contract.CapabilitySet
	// AcceptClaimed lets two names that a GitOps identity claims count as two
	// humans. The cluster can't know that they are.
	AcceptClaimed bool
	// Limits cap how long a grant may last.
	Limits []Limit
}

// Limit caps the lifetime of grants that hold any of some capabilities.
type Limit struct {
	Capabilities contract.CapabilitySet
	// Max counts from the act that granted.
	Max time.Duration
}

// BuiltInPolicy is the matrix of this build, as a policy.
func BuiltInPolicy() Policy {
	p := Policy{Version: MatrixVersion}
	for _, row := range Matrix() {
		p.Allowed |= row.Capabilities
	}
	return p
}

// Rule tightens one class.
type Rule struct {
	Class    Class
	Deny     bool
	FourEyes bool
	// MaxLifetime is zero for no cap.
	MaxLifetime time.Duration
}

// Tighten returns p under further rules. version identifies their content. A
// rule can only take away: a class that this build doesn't know, or that is
// reserved, has nothing to take.
func (p Policy) Tighten(version string, rules []Rule, acceptClaimed bool) Policy {
	p.Version += "+" + version
	p.AcceptClaimed = acceptClaimed
	p.Limits = slices.Clone(p.Limits)
	for _, rule := range rules {
		set := rule.Class.capabilities()
		if rule.Deny {
			p.Allowed &^= set
		}
		if rule.FourEyes {
			p.FourEyes |= set
		}
		if rule.MaxLifetime > 0 && set != 0 {
			p.Limits = append(p.Limits, Limit{Capabilities: set, Max: rule.MaxLifetime})
		}
	}
	return p
}

// Equal compares the version and the content.
func (p Policy) Equal(other Policy) bool {
	return p.Version == other.Version && p.Allowed == other.Allowed && p.FourEyes == other.FourEyes &&
		p.AcceptClaimed == other.AcceptClaimed && slices.Equal(p.Limits, other.Limits)
}

// ceiling is what the policy leaves to a grant: what needs two humans only
// where two have approved.
func (p Policy) ceiling(confirmed bool) contract.CapabilitySet {
	if confirmed {
		return p.Allowed
	}
	return p.Allowed &^ p.FourEyes
}

// latest is the latest expiry that the policy leaves to a grant of a set that
// was issued at an instant; zero for no limit.
func (p Policy) latest(granted contract.CapabilitySet, issued time.Time) time.Time {
	var latest time.Time
	for _, limit := range p.Limits {
		if limit.Capabilities&granted != 0 && !issued.IsZero() {
			latest = earlier(latest, issued.Add(limit.Max))
		}
	}
	return latest
}

// confirms tells whether two humans stand behind a grant, as far as the policy
// asks for it: the second is another one, and both were verified unless claims
// are accepted. Names that differ only in their case are one human's: some
// identity providers pass on what was typed.
func (p Policy) confirms(approvedBy, approvedVia, confirmedBy string) bool {
	return confirmedBy != "" && !strings.EqualFold(confirmedBy, approvedBy) && (approvedVia == "" || p.AcceptClaimed)
}
