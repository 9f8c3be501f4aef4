package authority

import (
	"strings"
	"testing"
	"time"

	"github.com/kandev/plugin-host/contract"
)

// Each capability belongs to exactly one class, or a policy could not say what
// it denies; and a reserved class has none, or an approval could grant it.
func TestMatrix_CoversEveryCapabilityOnce(t *testing.T) {
	var covered contract.CapabilitySet
	names := map[Class]bool{}
	for _, row := range Matrix() {
		if names[row.Class] || row.Meaning == "" {
			t.Errorf("class %q is listed twice or says nothing", row.Class)
		}
		names[row.Class] = true
		if covered&row.Capabilities != 0 {
			t.Errorf("class %s shares %s with another", row.Class, covered&row.Capabilities)
		}
		covered |= row.Capabilities
	}
	if covered != contract.AllCapabilities {
		t.Errorf("no class has %s", contract.AllCapabilities&^covered)
	}
	for _, reserved := range []Class{ClassMerge, ClassRelease, ClassDeploy, ClassSecrets, ClassHistoryRewrite, ClassCrossWorkspace, ClassStateRemoval, ClassTrustBoundary, ClassProviderActions} {
		if !names[reserved] || reserved.capabilities() != 0 {
			t.Errorf("class %s is not reserved to humans", reserved)
		}
	}
	for _, c := range contract.Capabilities() {
		read := strings.HasPrefix(c.String(), contract.ReadPrefix)
		if read != ClassReadProjections.capabilities().Has(c) {
			t.Errorf("%s is in the wrong class", c)
		}
	}
}

// The matrix is part of every revision by its version: another content under
// the same version would let two builds disagree about one revision.
func TestMatrix_IsImmutableUnderItsVersion(t *testing.T) {
	digest, err := MatrixDigest()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"builtin/v1": "8baf9b5ee29736dab2450f3e7434b6c39db5184b0c9848c190b5fc1a73b14232"}
	if want[MatrixVersion] != digest {
		t.Errorf("the matrix %s has digest %s; a changed matrix needs a new version", MatrixVersion, digest)
	}
}

func TestI2_APolicyCanOnlyTakeAway(t *testing.T) {
	builtIn := BuiltInPolicy()
	if builtIn.Version != MatrixVersion || builtIn.Allowed != contract.AllCapabilities {
		t.Fatalf("built in: %+v", builtIn)
	}
	denied := builtIn.Tighten("strict@1", []Rule{
		{Class: ClassMessagesAndTasks, Deny: true}, {Class: "Unknown", Deny: true}, {Class: ClassMerge, Deny: true},
	}, false)
	if denied.Version != "builtin/v1+strict@1" || denied.Allowed != contract.AllCapabilities&^contract.SetOf(contract.WriteMessages, contract.WriteTasks) {
		t.Errorf("denied: %+v", denied)
	}
	if !builtIn.Allowed.Covers(denied.Allowed) || !builtIn.Equal(BuiltInPolicy()) || denied.Equal(builtIn) {
		t.Error("a policy widened, or changed the one it was made from")
	}
}

func strict(rules ...Rule) Policy { return BuiltInPolicy().Tighten("strict@1", rules, false) }

func TestPolicy_ATightenedPolicyIsARevisionWhereverItBites(t *testing.T) {
	for name, c := range map[string]struct {
		policy  Policy
		granted contract.CapabilitySet
		expires time.Time
	}{
		"denies a class":      {strict(Rule{Class: ClassMessagesAndTasks, Deny: true}), readTasks, time.Time{}},
		"demands two humans":  {strict(Rule{Class: ClassMessagesAndTasks, FourEyes: true}), readTasks, time.Time{}},
		"caps the lifetime":   {strict(Rule{Class: ClassReadProjections, MaxLifetime: time.Hour}), readTasks | writeTasks, epoch.Add(time.Hour)},
		"says the same again": {strict(Rule{Class: ClassTaskDirectives, Deny: true}), readTasks | writeTasks, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			w := granted(t, readTasks|writeTasks)
			before := w.row
			w.policy = c.policy
			w.settle()
			if w.row.Revision <= before.Revision || w.row.Granted != c.granted || !w.row.ExpiresAt.Equal(c.expires) || w.row.Act != before.Act {
				t.Errorf("row %+v", w.row)
			}
			// Deleting the policy brings nothing back (I7).
			w.policy = BuiltInPolicy()
			w.settle()
			if w.row.Granted != c.granted || !w.row.ExpiresAt.Equal(c.expires) {
				t.Errorf("widened by a policy that went: %+v", w.row)
			}
		})
	}
}

func TestPolicy_AGrantOlderThanTheCapEndsAtOnce(t *testing.T) {
	w := granted(t, readTasks)
	w.now = epoch.Add(2 * time.Hour)
	w.policy = strict(Rule{Class: ClassReadProjections, MaxLifetime: time.Hour})
	held := Narrowings(w.row, w.intent())
	if len(held) == 0 || !held[0].ExpiresAt.Equal(w.row.IssuedAt.Add(time.Hour)) {
		t.Fatalf("nothing is held: %+v", held)
	}
	w.settle()
	if w.row.State != StateExpired || w.row.Effective(w.now) != 0 {
		t.Errorf("row %+v", w.row)
	}
}

func TestPolicy_CapsAnActFromTheInstantItIsIssued(t *testing.T) {
	w := newWorld(t)
	w.policy = strict(Rule{Class: ClassReadProjections, MaxLifetime: time.Hour}, Rule{Class: ClassMessagesAndTasks, MaxLifetime: time.Minute})
	spec := w.spec(readTasks)
	spec.ExpiresAt = epoch.Add(30 * time.Minute)
	w.apply(spec)
	w.settle()
	if !w.row.ExpiresAt.Equal(epoch.Add(30 * time.Minute)) {
		t.Errorf("an expiry below the cap became %s", w.row.ExpiresAt)
	}
	w.apply(w.spec(readTasks | writeTasks))
	out := w.settle()
	if !w.row.ExpiresAt.Equal(w.row.IssuedAt.Add(time.Minute)) {
		t.Errorf("the shortest cap of what is granted is not in force: %s", w.row.ExpiresAt)
	}
	if out.Review != nil {
		t.Errorf("a human is asked for what the policy caps: %+v", out.Review)
	}
}

// A second human: the spec of one is no act, spends nothing and waits.
func TestI7_FourEyes(t *testing.T) {
	policy := strict(Rule{Class: ClassMessagesAndTasks, FourEyes: true})
	accepting := BuiltInPolicy().Tighten("strict@1", []Rule{{Class: ClassMessagesAndTasks, FourEyes: true}}, true)
	for name, c := range map[string]struct {
		policy Policy
		caps   contract.CapabilitySet
		change func(*Approval)
		want   contract.CapabilitySet
	}{
		"nobody confirmed":                       {policy, readTasks | writeTasks, func(*Approval) {}, 0},
		"confirmed by the same human":            {policy, readTasks | writeTasks, func(a *Approval) { a.ConfirmedBy = a.ApprovedBy }, 0},
		"confirmed by the same, typed otherwise": {policy, readTasks | writeTasks, func(a *Approval) { a.ConfirmedBy = strings.ToUpper(a.ApprovedBy) }, 0},
		"confirmed":                              {policy, readTasks | writeTasks, func(a *Approval) { a.ConfirmedBy = "grace" }, readTasks | writeTasks},
		"both claimed by one identity":           {policy, readTasks | writeTasks, func(a *Approval) { a.ConfirmedBy, a.ApprovedVia = "grace", "flux" }, 0},
		"both claimed, and claims are accepted":  {accepting, readTasks | writeTasks, func(a *Approval) { a.ConfirmedBy, a.ApprovedVia = "grace", "flux" }, readTasks | writeTasks},
		"no class that asks for it":              {policy, readTasks, func(*Approval) {}, readTasks},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.policy = c.policy
			spec := w.spec(c.caps)
			c.change(&spec)
			w.apply(spec)
			out := w.settle()
			if w.row.Granted != c.want {
				t.Fatalf("granted %s, want %s", w.row.Granted, c.want)
			}
			if c.want != 0 {
				return
			}
			if out.Review == nil || out.Review.Reason != ReviewConfirmationRequired {
				t.Errorf("review %+v", out.Review)
			}
			// The second human's edit completes the act.
			w.edit(func(a *Approval) { a.ConfirmedBy, a.ApprovedVia = "grace", "" })
			w.settle()
			if w.row.Granted != c.caps || w.row.ConfirmedBy != "grace" {
				t.Errorf("confirmed, and granted %s", w.row.Granted)
			}
		})
	}
}

// While nobody has proven the admission policies, no act is admitted, what is
// in force stands, and narrowing works.
func TestI7_NoActWithoutAProof(t *testing.T) {
	w := newWorld(t)
	spec := w.spec(readTasks | writeTasks)
	spec.Checked = false
	w.apply(spec)
	out := w.settle()
	if w.row.Granted != 0 || w.row.Act != "" || out.Review == nil || out.Review.Reason != ReviewNotVerified {
		t.Fatalf("row %+v, review %+v", w.row, out.Review)
	}
	w.edit(func(a *Approval) { a.Checked = true })
	w.settle()
	if w.row.Granted != readTasks|writeTasks || w.row.Unproven || w.row.Actor != (Actor{"alice", ActorVerified}) {
		t.Fatalf("row %+v", w.row)
	}
	w.edit(func(a *Approval) { a.Checked, a.Capabilities = false, readTasks })
	w.settle()
	if w.row.Granted != readTasks || w.row.State != StateActive {
		t.Errorf("narrowing waits for a proof: %+v", w.row)
	}
}

// The history says how far a name can be trusted.
func TestActor_OfAnAct(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Approval)
		want   Assurance
	}{
		"the human wrote":             {func(*Approval) {}, ActorVerified},
		"a GitOps identity claims it": {func(a *Approval) { a.ApprovedVia = "flux" }, ActorClaimed},
	} {
		w := newWorld(t)
		spec := w.spec(readTasks)
		c.change(&spec)
		w.apply(spec)
		w.settle()
		if w.row.Actor.Assurance != c.want || w.row.ApprovedVia != spec.ApprovedVia {
			t.Errorf("%s: %+v", name, w.row.Actor)
		}
	}
}

// Explain is Decide with every check: what it says last is the answer.
func TestExplain_EndsWithTheDecision(t *testing.T) {
	d := allowed()
	all, verdict := Explain(d.row, &d.seen, true, d.call, d.now)
	if !verdict.Allowed() {
		t.Fatalf("refused: %+v", verdict)
	}
	for _, c := range all {
		if !c.Asked || c.Reason != "" || c.Name == "" {
			t.Errorf("%+v of an allowed call", c)
		}
	}
	for _, check := range checks {
		for name, fail := range check.failures {
			d := allowed()
			fail(&d)
			all, verdict := Explain(d.row, &d.seen, !d.stale, d.call, d.now)
			if verdict != d.decide() {
				t.Errorf("%s, %s: %+v, decided %+v", check.name, name, verdict, d.decide())
			}
			var last Check
			for _, c := range all {
				if c.Asked {
					last = c
				}
			}
			if last.Reason != verdict.Reason {
				t.Errorf("%s, %s: ends with %+v, decided %+v", check.name, name, last, verdict)
			}
		}
	}
}
