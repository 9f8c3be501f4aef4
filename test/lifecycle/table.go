package lifecycle

import (
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

// Row is one story. Each begins in a world with the plugin installed and
// nothing granted.
type Row struct {
	Name string
	// Source is the rule that the row shows.
	Source string
	Steps  []Step
}

// Step is one thing that somebody does, and what must have come of it.
type Step struct {
	Does string
	Do   func(p *Play)
	Want Want
}

// Want is what a step leaves behind. Events are those since the step before;
// there are as many new revisions.
type Want struct {
	Events    []string
	State     string
	Effective contract.CapabilitySet
	Gates     []string
	Review    string
	// Renamed: the act has another name than before the step.
	Renamed bool
	// Of the first installation, not of the present one.
	First bool
}

const (
	readTasks  = contract.ReadTasks
	writeTasks = contract.WriteTasks
	readInbox  = contract.ReadTaskInbox
)

// The package that every story begins with, and others of the plugin.
func packageV1() Package {
	return Package{Version: "1.0.0", Declared: contract.SetOf(readTasks, writeTasks)}
}

func packageWith(version string, declared ...contract.Capability) Package {
	return Package{Version: version, Declared: contract.SetOf(declared...)}
}

// Begin installs the package that every story begins with.
func Begin(w World) *Play {
	w.Install(packageV1())
	p := &Play{World: w}
	p.Seen = w.Observe("", func(o Observation) string {
		if o.InstallationID == "" || o.Digest == "" {
			return "it has no ID or no digest yet"
		}
		return ""
	})
	p.First = p.Seen.InstallationID
	return p
}

func set(cs ...contract.Capability) contract.CapabilitySet { return contract.SetOf(cs...) }

// granted is the beginning of most stories.
func granted() Step {
	return Step{
		"a human grants both", func(p *Play) { p.Grant(readTasks, writeTasks) },
		Want{Events: []string{"Grant Human"}, State: "Active", Effective: set(readTasks, writeTasks), Renamed: true},
	}
}

// unchanged is what a step leaves behind that is no act and moves nothing.
func unchanged(state, review string, effective ...contract.Capability) Want {
	return Want{State: state, Effective: set(effective...), Review: review}
}

// Table returns every row.
func Table() []Row {
	rows := acts()
	rows = append(rows, packages()...)
	rows = append(rows, gates()...)
	rows = append(rows, places()...)
	rows = append(rows, policies()...)
	return append(rows, disasters()...)
}

func acts() []Row {
	return []Row{
		{"grant", "ADR lifecycle; I2, I4", []Step{granted()}},
		{"a grant of more than is declared", "authority.md, the row: granted is clipped at the act", []Step{
			{"a human grants what the manifest doesn't declare, too", func(p *Play) { p.Grant(readTasks, readInbox) },
				Want{Events: []string{"Grant Human"}, State: "Active", Effective: set(readTasks), Renamed: true}},
			{"an upgrade declares it", func(p *Play) { p.Edit(packageWith("2.0.0", readTasks, writeTasks, readInbox)) },
				Want{Events: []string{"UpgradeReview ManifestChanged"}, State: "Active", Effective: set(readTasks), Review: "ActAlreadyUsed"}},
		}},
		{"narrow by an edit", "authority.md, acts: narrowing needs no match and no digest", []Step{
			granted(),
			{"an edit takes one away, and names an act that is used", func(p *Play) {
				p.Change(func(a *authority.Approval) { a.Capabilities = set(readTasks) })
			}, Want{Events: []string{"Narrow Human"}, State: "Active", Effective: set(readTasks), Renamed: true}},
			{"the manifest from before comes back", func(p *Play) {
				p.Change(func(a *authority.Approval) { a.Capabilities = set(readTasks, writeTasks) })
			}, unchanged("Active", "ActAlreadyUsed", readTasks)},
			{"a human grants it again", func(p *Play) { p.Grant(readTasks, writeTasks) },
				Want{Events: []string{"Grant Human"}, State: "Active", Effective: set(readTasks, writeTasks), Renamed: true}},
		}},
		{"revoke by an edit", "I7; upstream: a later grant re-activates", []Step{
			granted(),
			{"a human revokes", func(p *Play) { p.Change(func(a *authority.Approval) { a.Revoked = true }) },
				Want{Events: []string{"Revoke Human"}, State: "Revoked", Renamed: true}},
			{"self-heal applies the used manifest", func(p *Play) { p.Change(func(a *authority.Approval) { a.Revoked = false }) },
				unchanged("Revoked", "ActAlreadyUsed")},
			{"a human grants again, with the name that status shows", func(p *Play) { p.Grant(readTasks) },
				Want{Events: []string{"Grant Human"}, State: "Active", Effective: set(readTasks), Renamed: true}},
			{"that manifest once more", func(p *Play) { p.Again() }, unchanged("Active", "", readTasks)},
		}},
		{"revoke by deletion", "authority.md: deletion moves the act", []Step{
			granted(),
			{"the approval is deleted", func(p *Play) { p.Delete() },
				Want{Events: []string{"Revoke ApprovalDeleted"}, State: "Revoked", Renamed: true}},
			{"it is applied again, unchanged", func(p *Play) { p.Again() }, unchanged("Revoked", "ActAlreadyUsed")},
			{"a human grants", func(p *Play) { p.Grant(readTasks, writeTasks) },
				Want{Events: []string{"Grant Human"}, State: "Active", Effective: set(readTasks, writeTasks), Renamed: true}},
		}},
		{"an act that widens nothing", "authority.md: a spec that names the current act is that act", []Step{
			granted(),
			{"a human grants the same again", func(p *Play) { p.Grant(readTasks, writeTasks) },
				Want{Events: []string{"Grant Human"}, State: "Active", Effective: set(readTasks, writeTasks), Renamed: true}},
			{"a rollback declares less", func(p *Play) { p.Edit(packageWith("0.9.0", readTasks)) },
				Want{Events: []string{"UpgradeReview ManifestChanged"}, State: "Active", Effective: set(readTasks)}},
			{"and forward again: nothing was left armed", func(p *Play) { p.Edit(packageV1()) },
				Want{Events: []string{"UpgradeReview ManifestChanged"}, State: "Active", Effective: set(readTasks), Review: "ActAlreadyUsed"}},
		}},
		{"edits that are none", "authority.md: a new generation is not an act", []Step{
			granted(),
			{"the reason is told better", func(p *Play) { p.Change(func(a *authority.Approval) { a.Reason = "Told better." }) },
				unchanged("Active", "", readTasks, writeTasks)},
		}},
		{"an expiry", "api.md, expiresAt; authority.md: a renewal opened before the instant", []Step{
			{"a human grants for an hour", func(p *Play) {
				a := p.Draft(readTasks)
				a.ExpiresAt = p.Now().Add(time.Hour).UTC().Truncate(time.Second)
				p.Put(a)
			}, Want{Events: []string{"Grant Human"}, State: "Active", Effective: set(readTasks), Renamed: true}},
			{"the hour passes", func(p *Play) { p.Advance(time.Hour + time.Second) },
				Want{Events: []string{"Revoke Expired"}, State: "Expired", Review: "ActAlreadyUsed"}},
			{"a renewal that was opened before is merged", func(p *Play) {
				a := p.Draft(readTasks) // the act has no other name than before the instant
				a.ExpiresAt = p.Now().Add(time.Hour).UTC().Truncate(time.Second)
				p.Put(a)
			}, Want{Events: []string{"Grant Human"}, State: "Active", Effective: set(readTasks), Renamed: true}},
			{"an edit without an act removes the expiry", func(p *Play) {
				p.Change(func(a *authority.Approval) { a.ExpiresAt = time.Time{} })
			}, unchanged("Active", "ActAlreadyUsed", readTasks)},
		}},
		{"an expiry brought forward", "authority.md, narrowing: earlier, or newly set", []Step{
			granted(),
			{"an edit sets an end", func(p *Play) {
				p.Change(func(a *authority.Approval) { a.ExpiresAt = p.Now().Add(time.Hour).UTC().Truncate(time.Second) })
			}, Want{Events: []string{"Narrow Human"}, State: "Active", Effective: set(readTasks, writeTasks), Renamed: true}},
		}},
		{"an approval of another workspace", "authority.md: a workspace other than the bound one counts as absent", []Step{
			{"a human grants for a workspace that isn't this one", func(p *Play) {
				a := p.Draft(readTasks)
				a.WorkspaceID = "elsewhere"
				p.Put(a)
			}, unchanged("Pending", "WorkspaceMismatch")},
		}},
	}
}

func packages() []Row {
	return []Row{
		{"upgrade, equal", "ADR lifecycle: Upgrade; upstream: +1 even when the digest is unchanged", []Step{
			granted(),
			{"another version declares the same", func(p *Play) { p.Edit(packageWith("1.1.0", readTasks, writeTasks)) },
				Want{Events: []string{"UpgradeReview ManifestChanged"}, State: "Active", Effective: set(readTasks, writeTasks)}},
		}},
		{"upgrade, narrower, and rollback", "ADR lifecycle: Rollback restores no prior approval", []Step{
			granted(),
			{"another version declares less", func(p *Play) { p.Edit(packageWith("2.0.0", readTasks)) },
				Want{Events: []string{"UpgradeReview ManifestChanged"}, State: "Active", Effective: set(readTasks)}},
			{"it is rolled back", func(p *Play) { p.Edit(packageV1()) },
				Want{Events: []string{"UpgradeReview ManifestChanged"}, State: "Active", Effective: set(readTasks), Review: "ActAlreadyUsed"}},
			{"and forward again", func(p *Play) { p.Edit(packageWith("2.0.0", readTasks)) },
				Want{Events: []string{"UpgradeReview ManifestChanged"}, State: "Active", Effective: set(readTasks)}},
		}},
		{"upgrade, wider", "ADR lifecycle: inactive until a Human grants", []Step{
			granted(),
			{"another version declares more", func(p *Play) { p.Edit(packageWith("2.0.0", readTasks, writeTasks, readInbox)) },
				Want{Events: []string{"UpgradeReview ManifestChanged"}, State: "Active", Effective: set(readTasks, writeTasks)}},
			{"a human grants it", func(p *Play) { p.Grant(readTasks, writeTasks, readInbox) },
				Want{Events: []string{"Grant Human"}, State: "Active", Effective: set(readTasks, writeTasks, readInbox), Renamed: true}},
		}},
		{"an upgrade that an edit asks for first", "authority.md: a spec whose digest is not in force waits", []Step{
			granted(),
			{"an approval names a digest that isn't in force", func(p *Play) {
				a := p.Draft(readTasks, writeTasks, readInbox)
				a.ManifestDigest = "v1:0000000000000000000000000000000000000000000000000000000000000000"
				p.Put(a)
			}, unchanged("Active", "", readTasks, writeTasks)},
		}},
		{"uninstall and reinstall", "ADR lifecycle: Uninstall, Reinstall", []Step{
			granted(),
			{"it is uninstalled", func(p *Play) { p.Uninstall() },
				Want{Events: []string{"Revoke Uninstalled"}, State: "Revoked", First: true}},
			{"it is installed again under the name", func(p *Play) { p.Install(packageV1()) },
				unchanged("Pending", "InstallationMismatch")},
			{"a human grants to the new installation", func(p *Play) { p.Grant(readTasks) },
				Want{Events: []string{"Grant Human"}, State: "Active", Effective: set(readTasks), Renamed: true}},
		}},
	}
}

func gates() []Row {
	return []Row{
		{"suspend and resume", "authority.md: a gate is a revision and no act", []Step{
			granted(),
			{"it is suspended", func(p *Play) { p.Suspend(true) },
				Want{Events: []string{"Narrow Suspended"}, State: "Active", Gates: []string{"Suspended"}}},
			{"it is resumed", func(p *Play) { p.Suspend(false) },
				Want{Events: []string{"UpgradeReview Resumed"}, State: "Active", Effective: set(readTasks, writeTasks)}},
		}},
		{"a revocation while suspended", "authority.md: gates hide no act", []Step{
			granted(),
			{"it is suspended", func(p *Play) { p.Suspend(true) },
				Want{Events: []string{"Narrow Suspended"}, State: "Active", Gates: []string{"Suspended"}}},
			{"a human revokes", func(p *Play) { p.Change(func(a *authority.Approval) { a.Revoked = true }) },
				Want{Events: []string{"Revoke Human"}, State: "Revoked", Gates: []string{"Suspended"}, Renamed: true}},
			{"it is resumed", func(p *Play) { p.Suspend(false) },
				Want{Events: []string{"UpgradeReview Resumed"}, State: "Revoked"}},
		}},
		{"a Host that is too old", "api.md, minHostVersion", []Step{
			granted(),
			{"an upgrade needs a newer Host", func(p *Play) {
				next := packageWith("2.0.0", readTasks, writeTasks)
				next.MinHostVersion = "999.0.0"
				p.Edit(next)
			}, Want{Events: []string{"UpgradeReview ManifestChanged"}, State: "Active", Gates: []string{"HostVersionUnsupported"}}},
			{"it is rolled back", func(p *Play) { p.Edit(packageV1()) },
				Want{Events: []string{"UpgradeReview ManifestChanged"}, State: "Active", Effective: set(readTasks, writeTasks)}},
		}},
		{"a required capability", "api.md: the plugin isn't half active", []Step{
			granted(),
			{"an upgrade requires what nobody granted", func(p *Play) {
				next := packageWith("2.0.0", readTasks, writeTasks, readInbox)
				next.Required = set(readInbox)
				p.Edit(next)
			}, Want{Events: []string{"UpgradeReview ManifestChanged"}, State: "Active", Gates: []string{"RequiredCapabilityUnavailable"}}},
			{"a human grants it", func(p *Play) { p.Grant(readTasks, readInbox) },
				Want{Events: []string{"Grant Human"}, State: "Active", Effective: set(readTasks, readInbox), Renamed: true}},
		}},
		{"a ServiceAccount of another uid", "authority.md: whose pod", []Step{
			granted(),
			{"it is deleted and created again", func(p *Play) { p.RecreateServiceAccount() },
				Want{Events: []string{"Narrow PrincipalChanged"}, State: "Active", Gates: []string{"PrincipalChanged"}}},
			{"the installer acknowledges it", func(p *Play) { p.AcceptServiceAccount() },
				Want{Events: []string{"UpgradeReview PrincipalChanged"}, State: "Active", Effective: set(readTasks, writeTasks)}},
		}},
		{"a ServiceAccount of another name", "authority.md: whose pod", []Step{
			granted(),
			{"the installation names another one", func(p *Play) { p.MoveServiceAccount() },
				Want{Events: []string{"Narrow PrincipalChanged"}, State: "Active", Gates: []string{"PrincipalChanged"}}},
			{"the installer acknowledges it", func(p *Play) { p.AcceptServiceAccount() },
				Want{Events: []string{"UpgradeReview PrincipalChanged"}, State: "Active", Effective: set(readTasks, writeTasks)}},
		}},
	}
}

func places() []Row {
	return []Row{
		{"a label removed and set again", "authority.md: workspace loss moves the act", []Step{
			granted(),
			{"the namespace loses its label", func(p *Play) { p.Label(false) },
				Want{Events: []string{"Revoke WorkspaceRemoved"}, State: "Revoked", Renamed: true}},
			{"it gets it back, and the used manifest is still there", func(p *Play) { p.Label(true) },
				Want{Events: []string{"UpgradeReview GateOpened"}, State: "Revoked", Review: "ActAlreadyUsed"}},
			{"a human grants", func(p *Play) { p.Grant(readTasks) },
				Want{Events: []string{"Grant Human"}, State: "Active", Effective: set(readTasks), Renamed: true}},
		}},
		{"a label moved to another namespace", "authority.md: a binding never passes on by itself", []Step{
			granted(),
			{"another namespace gets the label", func(p *Play) { p.MoveLabel() },
				Want{Events: []string{"Revoke WorkspaceRemoved"}, State: "Revoked", Renamed: true}},
			{"it comes back", func(p *Play) { p.ReturnLabel() },
				Want{Events: []string{"UpgradeReview GateOpened"}, State: "Revoked", Review: "ActAlreadyUsed"}},
		}},
		{"a namespace deleted, and the workspace bound to another", "authority.md: re-bound by the former uid, with no authority", []Step{
			granted(),
			{"the namespace is deleted", func(p *Play) { p.DeleteNamespace() },
				Want{Events: []string{"Revoke WorkspaceRemoved"}, State: "Revoked", Renamed: true}},
			{"the workspace is bound to another", func(p *Play) { p.Rebind() },
				Want{Events: []string{"UpgradeReview GateOpened"}, State: "Revoked"}},
			{"the used manifest is applied there", func(p *Play) { p.Again() },
				Want{State: "Revoked", Review: "ActAlreadyUsed"}},
			{"a human grants", func(p *Play) { p.Grant(readTasks) },
				Want{Events: []string{"Grant Human"}, State: "Active", Effective: set(readTasks), Renamed: true}},
		}},
	}
}

func policies() []Row {
	return []Row{
		{"a policy that denies a class", "api.md, HumanPolicy: can only tighten", []Step{
			granted(),
			{"a policy denies messages and tasks", func(p *Play) {
				p.Tighten(authority.Rule{Class: authority.ClassMessagesAndTasks, Deny: true})
			}, Want{Events: []string{"Narrow PolicyChanged"}, State: "Active", Effective: set(readTasks)}},
			{"the policy is deleted", func(p *Play) { p.Loosen() },
				Want{Events: []string{"UpgradeReview PolicyChanged"}, State: "Active", Effective: set(readTasks), Review: "ActAlreadyUsed"}},
		}},
		{"a policy that demands two humans", "api.md, HumanPolicy: four-eyes per class", []Step{
			granted(),
			{"a policy demands two for messages and tasks", func(p *Play) {
				p.Tighten(authority.Rule{Class: authority.ClassMessagesAndTasks, FourEyes: true})
			}, Want{Events: []string{"Narrow PolicyChanged"}, State: "Active", Effective: set(readTasks), Review: "ActAlreadyUsed"}},
			{"one human grants", func(p *Play) { p.Grant(readTasks, writeTasks) },
				unchanged("Active", "ConfirmationRequired", readTasks)},
			{"another one confirms", func(p *Play) { p.Change(func(a *authority.Approval) { a.ConfirmedBy = "grace@example.com" }) },
				Want{Events: []string{"Grant Human"}, State: "Active", Effective: set(readTasks, writeTasks), Renamed: true}},
		}},
		{"a policy that caps a lifetime", "api.md, HumanPolicy: cap lifetimes", []Step{
			granted(),
			{"a policy caps reads at an hour", func(p *Play) {
				p.Tighten(authority.Rule{Class: authority.ClassReadProjections, MaxLifetime: time.Hour})
			}, Want{Events: []string{"Narrow PolicyChanged"}, State: "Active", Effective: set(readTasks, writeTasks)}},
			{"the hour passes", func(p *Play) { p.Advance(time.Hour + time.Second) },
				Want{Events: []string{"Revoke Expired"}, State: "Expired", Review: "ActAlreadyUsed"}},
		}},
	}
}

func disasters() []Row {
	return []Row{
		{"a store lost and rebuilt", "authority.md, restores: rebuilt from the newest events; I3", []Step{
			granted(),
			{"the store is lost", func(p *Play) { p.Stop(); p.LoseStore(); p.Start() },
				Want{Events: []string{"UpgradeReview StoreEpoch"}, State: "Active", Effective: set(readTasks, writeTasks)}},
		}},
		{"a cluster restored from a backup", "authority.md, restores: new uids and empty status", []Step{
			granted(),
			{"a backup is restored", func(p *Play) { p.Stop(); p.RestoreCluster(); p.Start() },
				Want{Events: []string{"Revoke ApprovalDeleted"}, State: "Revoked", First: true, Renamed: true}},
			{"the present installation has nothing", func(*Play) {}, unchanged("Pending", "InstallationMismatch")},
		}},
		{"changes while nobody watches", "authority.md, hold: an unwatched history counts as revoked once", []Step{
			granted(),
			{"a human revokes and self-heal undoes it while we are down", func(p *Play) {
				p.Stop()
				p.Change(func(a *authority.Approval) { a.Revoked = true })
				p.Change(func(a *authority.Approval) { a.Revoked = false })
				p.Start()
			}, Want{Events: []string{"Revoke UnseenChange"}, State: "Revoked", Review: "ActAlreadyUsed", Renamed: true}},
		}},
		{"a revocation while nobody watches", "authority.md, hold; I6", []Step{
			granted(),
			{"a human revokes while we are down", func(p *Play) {
				p.Stop()
				p.Change(func(a *authority.Approval) { a.Revoked = true })
				p.Start()
			}, Want{Events: []string{"Revoke Human"}, State: "Revoked", Renamed: true}},
		}},
		{"a grant that waits, taken back while nobody watches", "authority.md, acts: narrowing by edit moves the act; I7", []Step{
			{"a human grants one", func(p *Play) { p.Grant(readTasks) },
				Want{Events: []string{"Grant Human"}, State: "Active", Effective: set(readTasks), Renamed: true}},
			{"an upgrade is tried", func(p *Play) { p.Edit(packageWith("2.0.0", readTasks, writeTasks, readInbox)) },
				Want{Events: []string{"UpgradeReview ManifestChanged"}, State: "Active", Effective: set(readTasks)}},
			{"it is rolled back", func(p *Play) { p.Last = p.Draft(readTasks, writeTasks); p.Edit(packageV1()) },
				Want{Events: []string{"UpgradeReview ManifestChanged"}, State: "Active", Effective: set(readTasks)}},
			{"a human grants the other one to the upgrade", func(p *Play) { p.Again() },
				unchanged("Active", "DigestNotInForce", readTasks)},
			{"a human takes that back while we are down", func(p *Play) {
				p.Stop()
				p.Change(func(a *authority.Approval) { a.Capabilities = set(readTasks) })
				p.Start()
			}, Want{Events: []string{"Narrow Human"}, State: "Active", Effective: set(readTasks), Renamed: true}},
			{"the manifest from before comes back", func(p *Play) {
				p.Change(func(a *authority.Approval) { a.Capabilities = set(readTasks, writeTasks) })
			}, unchanged("Active", "ActAlreadyUsed", readTasks)},
			{"it is upgraded", func(p *Play) { p.Edit(packageWith("2.0.0", readTasks, writeTasks, readInbox)) },
				Want{Events: []string{"UpgradeReview ManifestChanged"}, State: "Active", Effective: set(readTasks), Review: "ActAlreadyUsed"}},
			{"a human grants both", func(p *Play) { p.Grant(readTasks, writeTasks) },
				Want{Events: []string{"Grant Human"}, State: "Active", Effective: set(readTasks, writeTasks), Renamed: true}},
		}},
	}
}
