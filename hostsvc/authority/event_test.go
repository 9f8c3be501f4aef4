package authority

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// fullEvent has every field set.
func fullEvent(t *testing.T) Event {
	t.Helper()
	row := Row{Key: testKey, Revision: 4, EventHash: "previous", Hold: &Hold{
		State: StateActive, Granted: readTasks, ExpiresAt: epoch, Cause: CauseHuman,
		Actor: Actor{"bob", ActorClaimed}, Reason: "less", UID: "u", Generation: 2, Spent: true,
		ThroughUID: "u", Through: 3,
	}}
	row.Vector.ManifestDigest = digestOf(1)
	next := Row{
		Key: testKey, Revision: 5, Act: "5-abcdef", State: StateActive, Granted: readTasks | writeTasks, Declared: allOfTest,
		Required: readTasks, Allowed: allOfTest | 1, ExpiresAt: epoch.Add(time.Hour), Gates: GateSuspended,
		Vector: Vector{
			ApprovalUID: "u", InstallationUID: "i", Version: "1", ManifestDigest: digestOf(0), Suspended: true,
			ServiceAccountNamespace: "sn", ServiceAccountName: "s", ServiceAccountUID: "su", ServiceAccountNamespaceUID: "snu",
			WorkspaceNamespace: "n", WorkspaceNamespaceUID: "nu", WorkspaceID: testKey.WorkspaceID, PolicyVersion: "p",
		},
		Seen:  Seen{UID: "u", Generation: 3, Gone: true, Revoked: true, Asked: readTasks | sessions, Until: epoch.Add(2 * time.Hour)},
		Actor: Actor{"alice", ActorClaimed}, Cause: CauseHuman,
		Reason: "because", ApprovedBy: "alice", ApprovedVia: "flux", ConfirmedBy: "grace",
		IssuedAt: epoch, UpdatedAt: epoch.Add(time.Minute), Unproven: true,
	}
	next.Sum = next.Vector.Sum()
	e, err := NewEvent(row, Outcome{Changed: true, Next: next, Type: EventGrant}, "plugin")
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Every field of an event is covered by its digest, except what follows from
// other fields: changing one is found. A new field is covered or named here.
func TestEvent_DigestCoversEveryField(t *testing.T) {
	derived := map[string]bool{
		"DecisionDigest": true, "PreviousHash": true, // tested below
		"Row.Hold": true, "Row.Starting": true, // no part of the record
		"Row.ReadAt": true, "Row.Uncompared": true, // of one reading of the row
		"Row.Sum": true, "Row.EventHash": true, // recomputed by Rebuilt
		"Applied.Mixed": true, // of use only until an event has applied the hold
	}
	var walk func(path string, get func(*Event) reflect.Value)
	count := 0
	walk = func(path string, get func(*Event) reflect.Value) {
		if derived[path] {
			return
		}
		e := fullEvent(t)
		v := get(&e)
		if path != "" && path != "Effective" && v.IsZero() { // a closed gate lets nothing through
			t.Errorf("%s is not set by this test", path)
		}
		if v.Kind() == reflect.Pointer {
			v.SetZero()
			if e.Verify() == nil {
				t.Errorf("%s can be dropped", path)
			}
			walk(path, func(e *Event) reflect.Value { return get(e).Elem() })
			return
		}
		if v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]() {
			for i := range v.NumField() {
				name := v.Type().Field(i).Name
				walk(strings.TrimPrefix(path+"."+name, "."), func(e *Event) reflect.Value { return get(e).Field(i) })
			}
			return
		}
		count++
		switch v.Kind() {
		case reflect.String:
			v.SetString(v.String() + "x")
		case reflect.Bool:
			v.SetBool(!v.Bool())
		case reflect.Int64:
			v.SetInt(v.Int() + 1)
		case reflect.Uint8, reflect.Uint64:
			v.SetUint(v.Uint() ^ 2)
		case reflect.Struct:
			v.Set(reflect.ValueOf(v.Interface().(time.Time).Add(time.Microsecond)))
		default:
			t.Fatalf("%s: a %s", path, v.Kind())
		}
		if e.Verify() == nil {
			t.Errorf("%s is not covered by the digest", path)
		}
	}
	walk("", func(e *Event) reflect.Value { return reflect.ValueOf(e).Elem() })
	if count < 45 {
		t.Errorf("only %d fields were changed", count)
	}
}

// An event of before Seen.Asked has the digest that it was written with, and says
// that it doesn't know.
func TestEvent_OneOfBeforeAskedKeepsItsDigest(t *testing.T) {
	e := fullEvent(t)
	e.Row.Seen = e.Row.Seen.Unrecorded()
	e.DecisionDigest = "9c5961484a90bf5a1756bd36971991f54f11f223565529c32dd755f7146d42a6"
	if err := e.Verify(); err != nil {
		t.Error(err)
	}
	if got := e.Hash(); got != "6471690ef23e636bcdb8684f49cd53747217a0e384cbc120154f7a529d0b2fbf" {
		t.Errorf("its link is %s", got)
	}
	if e.Rebuilt().Seen.Recorded() {
		t.Error("it says what the processed version asked for")
	}
}

func TestEvent_Chain(t *testing.T) {
	e := fullEvent(t)
	if err := e.Verify(); err != nil {
		t.Fatal(err)
	}
	if e.PreviousHash != "previous" || e.Row.EventHash != e.Hash() || e.BeforeRevision != 4 || e.BeforeDigest != digestOf(1) {
		t.Errorf("not linked: %+v", e)
	}
	other := e
	other.PreviousHash = "another"
	if other.Hash() == e.Hash() {
		t.Error("the chain does not cover the event before")
	}
	other = e
	other.DecisionDigest = strings.Repeat("0", 64)
	if other.Hash() == e.Hash() || other.Verify() == nil {
		t.Error("the chain does not cover the digest")
	}
}

// The event carries all that rebuilds the row.
func TestEvent_RebuildsTheRow(t *testing.T) {
	e := fullEvent(t)
	want := e.Row
	e.Row.Sum, e.Row.EventHash, e.Row.Starting, e.Row.Hold = VectorSum{}, "", true, &Hold{}
	if got := e.Rebuilt(); got != want {
		t.Errorf("rebuilt:\n%+v\nwas\n%+v", got, want)
	}
}

func TestEvent_Remaining(t *testing.T) {
	e := fullEvent(t)
	same, spent := *e.Applied, *e.Applied
	spent.Spent = false
	if e.Remaining(&same) != nil || e.Remaining(nil) != nil || e.Remaining(&spent) != &spent {
		t.Error("an event takes another hold than the one it applied")
	}
	e.Applied = nil
	if e.Remaining(&same) != &same {
		t.Error("an event without a hold takes one")
	}
}

// A hold of the version that the event processed goes with it only where that was
// an act, and only where the hold says nothing else.
func TestI7_AnEventTakesAHoldOfItsOwnVersionOnlyAsAnAct(t *testing.T) {
	e := fullEvent(t)
	e.Applied, e.Row.Seen = nil, Seen{UID: "u", Generation: 7}
	own := Hold{State: StateActive, Granted: readTasks | writeTasks, Cause: CauseHuman, UID: "u", Generation: 7}
	machine := Hold{State: StateActive, Granted: readTasks, Cause: CauseManifestChanged, Actor: system()}
	idle, _ := Differing(Row{State: StateActive})
	merge := func(first Hold, rest ...Hold) Hold {
		for _, next := range rest {
			first = first.Merge(next)
		}
		return first
	}
	other := own
	other.Generation = 6
	act, none := ActName(e.Row.Revision, "aaaaaa"), ActName(e.Row.Revision-1, "aaaaaa")
	for name, c := range map[string]struct {
		act   string
		hold  Hold
		stays bool
	}{
		"an act":                                 {act, own, false},
		"no act":                                 {none, own, true},
		"an act with as many digits":             {"1" + act, own, true},
		"of an earlier version":                  {act, other, true},
		"two versions":                           {act, merge(other, own), true},
		"a machine's, which took nothing":        {act, merge(idle, own), false},
		"and a machine's, which took nothing":    {act, merge(own, idle), false},
		"a machine's first":                      {act, merge(machine, own), true},
		"and then a machine's":                   {act, merge(own, machine), true},
		"and then a machine's, which it covered": {act, merge(merge(own, Hold{State: StateActive, Granted: readTasks | writeTasks | sessions, Cause: CausePolicyChanged})), false},
		"a machine's before and behind":          {act, merge(machine, own, idle), true},
	} {
		t.Run(name, func(t *testing.T) {
			e.Row.Act = c.act
			switch remaining := e.Remaining(&c.hold); {
			case c.stays && remaining != &c.hold:
				t.Errorf("%+v is dropped", c.hold)
			case !c.stays && remaining != nil:
				t.Errorf("%+v stays", c.hold)
			}
		})
	}
}

func TestEvent_Names(t *testing.T) {
	e := fullEvent(t)
	if e.Name() != "inst-1.ws-1.r5" || EventName(testKey, 6) != "inst-1.ws-1.r6" {
		t.Errorf("named %s", e.Name())
	}
	ids := map[string]bool{}
	for _, key := range []Key{testKey, {"inst-1", "ws-2"}, {"inst-2", "ws-1"}, {"inst-1w", "s-1"}} {
		for revision := range uint64(3) {
			id := AuditID(key, revision)
			if ids[id] || id != AuditID(key, revision) {
				t.Errorf("audit ID %s of %+v %d", id, key, revision)
			}
			ids[id] = true
		}
	}
}

func TestTimestamp(t *testing.T) {
	zone := time.FixedZone("z", 3600)
	for want, at := range map[string]time.Time{
		"":                            {},
		"2030-01-02T03:04:05.000000Z": epoch.In(zone),
		"2030-01-02T03:04:05.000001Z": epoch.Add(time.Microsecond),
	} {
		if got := Timestamp(at); got != want {
			t.Errorf("%s reads %q, want %q", at, got, want)
		}
	}
}

func TestVector_SumCoversWhatIsCompared(t *testing.T) {
	base := fullEvent(t).Row.Vector
	for i := range reflect.TypeFor[Vector]().NumField() {
		changed := base
		field := reflect.ValueOf(&changed).Elem().Field(i)
		if field.Kind() == reflect.Bool {
			field.SetBool(!field.Bool())
		} else {
			field.SetString(field.String() + "x")
		}
		name := reflect.TypeFor[Vector]().Field(i).Name
		if same := changed.Sum() == base.Sum(); same != (name == "ApprovalUID") {
			t.Errorf("%s: same sum is %v", name, same)
		}
	}
	a, b := Vector{Version: "ab", ManifestDigest: "c"}, Vector{Version: "a", ManifestDigest: "bc"}
	if a.Sum() == b.Sum() {
		t.Error("fields run into each other")
	}
}

func TestParse_InvertsString(t *testing.T) {
	for _, s := range []State{StateNone, StateActive, StateRevoked, StateExpired} {
		if got, ok := ParseState(s.String()); !ok || got != s {
			t.Errorf("%s parses as %s", s, got)
		}
	}
	if s, ok := ParseState("active"); ok || s != StateNone {
		t.Errorf("active parses as %s", s)
	}
	for g := Gates(0); g < 1<<len(gateNames); g++ {
		if got, ok := ParseGates(g.Names()); !ok || got != g || g.Names() == nil {
			t.Errorf("%v parses as %v", g.Names(), got)
		}
	}
	if _, ok := ParseGates([]string{"Suspended", "Nothing"}); ok {
		t.Error("an unknown gate parses")
	}
}

func TestNewActSuffix(t *testing.T) {
	a, err := NewActSuffix(strings.NewReader("\x00\x01\x02\x03\x04"))
	if err != nil || len(a) != actSuffixLength || a != strings.ToLower(a) {
		t.Errorf("drew %q, %v", a, err)
	}
	if b, err := NewActSuffix(strings.NewReader("\xff\x01\x02\x03\x04")); err != nil || a == b {
		t.Errorf("drew %q after %q", b, a)
	}
	if _, err := NewActSuffix(strings.NewReader("few")); err == nil {
		t.Error("drew from nothing")
	}
	if got := ActName(12, "abcdef"); got != "12-abcdef" {
		t.Errorf("named %s", got)
	}
}

func TestSeen_Later(t *testing.T) {
	at := func(uid string, generation int64, gone bool) Seen {
		return Seen{UID: uid, Generation: generation, Gone: gone}
	}
	for _, c := range []struct {
		name             string
		row, event, want Seen
	}{
		{"nothing seen", Seen{}, at("u", 1, false), at("u", 1, false)},
		{"event saw nothing", at("u", 1, false), Seen{}, at("u", 1, false)},
		{"event is newer", at("u", 1, false), at("u", 2, false), at("u", 2, false)},
		{"event is older", at("u", 3, false), at("u", 2, false), at("u", 3, false)},
		{"event saw the deletion", at("u", 3, false), at("u", 3, true), at("u", 3, true)},
		{"event saw a successor", at("u", 3, false), at("v", 1, false), at("v", 1, false)},
	} {
		if got := c.row.Later(c.event); got != c.want {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
