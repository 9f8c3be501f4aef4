package auditlog

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

var key = authority.Key{InstallationID: "3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77", WorkspaceID: "payments"}

func drawInstant(t *rapid.T, name string) time.Time {
	if rapid.Bool().Draw(t, name+" is unset") {
		return time.Time{}
	}
	return time.UnixMicro(rapid.Int64Range(946684800_000000, 32503679999_000000).Draw(t, name)).UTC()
}

func drawSet(t *rapid.T, name string) contract.CapabilitySet {
	return contract.CapabilitySet(rapid.Uint64().Draw(t, name)) & contract.AllCapabilities
}

func drawSeen(t *rapid.T) authority.Seen {
	seen := authority.Seen{
		UID: rapid.SampledFrom([]string{"", "u-1"}).Draw(t, "seen uid"), Generation: rapid.Int64().Draw(t, "seen generation"),
		Gone: rapid.Bool().Draw(t, "gone"), Revoked: rapid.Bool().Draw(t, "revoked"),
	}
	if seen.UID == "" || rapid.Bool().Draw(t, "not recorded") {
		return seen.Unrecorded()
	}
	seen.Asked, seen.Until = drawSet(t, "asked"), drawInstant(t, "until")
	return seen
}

func drawEvent(t *rapid.T) authority.Event {
	text := func(name string) string {
		return rapid.SampledFrom([]string{"", "a", "Ünï <&>\u2028\n"}).Draw(t, name)
	}
	actor := func(name string) authority.Actor {
		return authority.Actor{Name: text(name), Assurance: rapid.SampledFrom([]authority.Assurance{
			authority.ActorVerified, authority.ActorClaimed, authority.ActorUnknown, authority.ActorSystem,
		}).Draw(t, name+" assurance")}
	}
	from := authority.Row{Key: key, Revision: rapid.Uint64Range(0, 1<<62).Draw(t, "before"), EventHash: text("previous hash")}
	from.Vector.ManifestDigest = text("digest before")
	if rapid.Bool().Draw(t, "held") {
		from.Hold = &authority.Hold{
			State: authority.StateRevoked, Granted: drawSet(t, "hold granted"), ExpiresAt: drawInstant(t, "hold expires"),
			Cause: authority.CauseHuman, Actor: actor("hold actor"), Reason: text("hold reason"), UID: text("hold uid"),
			Generation: rapid.Int64().Draw(t, "hold generation"), Spent: rapid.Bool().Draw(t, "spent"),
		}
	}
	next := authority.Row{
		Key: key, Revision: from.Revision + 1, Act: text("act"),
		State:   rapid.SampledFrom([]authority.State{authority.StateActive, authority.StateRevoked, authority.StateExpired}).Draw(t, "state"),
		Granted: drawSet(t, "granted"), Declared: drawSet(t, "declared"), Required: drawSet(t, "required"), Allowed: drawSet(t, "allowed"),
		ExpiresAt: drawInstant(t, "expires"), Gates: authority.Gates(rapid.Uint8Range(0, 63).Draw(t, "gates")),
		Vector: authority.Vector{
			ApprovalUID: text("approval uid"), InstallationUID: text("installation uid"), Version: text("version"),
			ManifestDigest: text("digest"), Suspended: rapid.Bool().Draw(t, "suspended"),
			ServiceAccountNamespace: text("sa namespace"), ServiceAccountName: text("sa name"),
			ServiceAccountUID: text("sa uid"), ServiceAccountNamespaceUID: text("sa namespace uid"),
			WorkspaceNamespace: text("namespace"), WorkspaceNamespaceUID: text("namespace uid"),
			WorkspaceID: text("workspace"), PolicyVersion: text("policy"),
		},
		Seen:  drawSeen(t),
		Actor: actor("actor"), Cause: authority.CauseHuman, Reason: rapid.String().Draw(t, "reason"),
		ApprovedBy: text("approved by"), ApprovedVia: text("approved via"), ConfirmedBy: text("confirmed by"),
		IssuedAt:  drawInstant(t, "issued"),
		UpdatedAt: time.UnixMicro(rapid.Int64Range(946684800_000000, 32503679999_000000).Draw(t, "updated")).UTC(),
		Unproven:  rapid.Bool().Draw(t, "unproven"),
	}
	next.Sum = next.Vector.Sum()
	event, err := authority.NewEvent(from, authority.Outcome{Next: next, Type: authority.EventNarrow}, text("name"))
	if err != nil {
		t.Fatal(err)
	}
	return event
}

func TestAnEventSurvivesItsLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		event := drawEvent(t)
		var file bytes.Buffer
		if err := Encode(&file, event); err != nil {
			t.Fatal(err)
		}
		if lines := bytes.Count(file.Bytes(), []byte("\n")); lines != 1 {
			t.Fatalf("it takes %d lines", lines)
		}
		back := read(t, file.String())
		if len(back) != 1 || !reflect.DeepEqual(back[0], event) {
			t.Errorf("came back as\n%+v, not\n%+v", back, event)
		}
		if err := back[0].Verify(); err != nil {
			t.Error(err)
		}
	})
}

// A field that a line doesn't carry would be lost in the archive without a word.
func TestEveryFieldOfTheRowIsInTheLine(t *testing.T) {
	fields := map[string]bool{"Hold": true, "Starting": true, "ReadAt": true, "Uncompared": true} // never part of a record
	for _, f := range reflect.VisibleFields(reflect.TypeFor[authority.Row]()) {
		if fields[f.Name] || f.Name == "Sum" || f.Name == "EventHash" { // both follow from the rest
			continue
		}
		event := rapid.Custom(drawEvent).Example(1)
		v := reflect.ValueOf(&event.Row).Elem().FieldByIndex(f.Index)
		before := v.Interface()
		v.SetZero()
		if reflect.DeepEqual(before, v.Interface()) {
			// The example has the zero value here; any other one will do.
			switch v.Kind() {
			case reflect.String:
				v.SetString("other")
			case reflect.Bool:
				v.SetBool(true)
			case reflect.Uint8:
				v.SetUint(1)
			case reflect.Uint64:
				v.SetUint(1)
			default:
				v.Set(reflect.ValueOf(time.UnixMicro(946684800_000000).UTC()).Convert(v.Type()))
			}
		}
		var a, b bytes.Buffer
		if err := errors.Join(Encode(&a, event), Encode(&b, rapid.Custom(drawEvent).Example(1))); err != nil {
			t.Fatal(err)
		}
		if a.String() == b.String() {
			t.Errorf("another %s makes the same line", f.Name)
		}
	}
}

func read(t interface{ Fatal(args ...any) }, text string) []authority.Event {
	var events []authority.Event
	for e, err := range Decode(strings.NewReader(text)) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

func TestALineThatIsNotUnderstoodIsNamedAndHidesNoOther(t *testing.T) {
	var good bytes.Buffer
	if err := Encode(&good, history(t, 1)[0]); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ old, text, want string }{
		"format":       {`audit/v1"`, `audit/v2"`, `format is "plugins.kandev.ai/audit/v2"`},
		"field":        {`"format"`, `"mood":"good","format"`, `unknown field "mood"`},
		"granted":      {`"granted":["host.v2.read:tasks"`, `"granted":["host.v2.read:*"`, `granted: capabilities[0]: capability ID "host.v2.read:*" is wildcard`},
		"state":        {`"state":"Active"`, `"state":"Dormant"`, `state: unknown state "Dormant"`},
		"gates":        {`"gates":[]`, `"gates":["Moon"]`, `gates: unknown gate`},
		"time":         {`.000000Z"`, `Z"`, `isn't in UTC with microseconds`},
		"two values":   {"\n", "{}\n", "more than one JSON value"},
		"no JSON":      {`{"format"`, `<html>"format"`, "read JSON"},
		"half a line":  {`"seen":`, "\n", "read JSON"},
		"too long":     {`"auditID":"`, `"auditID":"` + strings.Repeat("x", MaxLineBytes), "is longer than"},
		"another case": {`"type"`, `"hold":{"state":"Active","granted":["x"],"cause":"Human","actor":{"assurance":"System"}},"type"`, "hold.granted"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := strings.Replace(good.String(), c.old, c.text, 1)
			if bad == good.String() {
				t.Fatal("the case changes nothing")
			}
			var understood int
			var failed []*LineError
			for _, err := range Decode(strings.NewReader("\n" + bad + good.String())) {
				if line, ok := errors.AsType[*LineError](err); ok {
					failed = append(failed, line)
				} else if err == nil {
					understood++
				}
			}
			if len(failed) == 0 || failed[0].Line != 2 || !strings.Contains(failed[0].Error(), c.want) {
				t.Errorf("failed with %v, want line 2: ...%s", failed, c.want)
			}
			if understood != 1 && name != "too long" {
				t.Errorf("%d lines were understood, want the other one", understood)
			}
		})
	}
}

func TestAReaderThatFailsIsTold(t *testing.T) {
	broken := errors.New("the wire is cut")
	var got error
	for _, err := range Decode(readerFunc(func([]byte) (int, error) { return 0, broken })) {
		got = err
	}
	if !errors.Is(got, broken) {
		t.Errorf("got %v", got)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// history is a grant and its renewals.
func history(t *testing.T, n int) []authority.Event {
	t.Helper()
	now := time.Date(2027, 1, 5, 9, 0, 0, 0, time.UTC)
	row := authority.Row{Key: key}
	var events []authority.Event
	for i := range n {
		out := authority.Compute(row, authority.Intent{
			Approval: &authority.Approval{
				UID: "a", Generation: int64(i + 1), InstallationID: key.InstallationID, WorkspaceID: key.WorkspaceID,
				ManifestDigest: "v1:d", SupersedesAct: row.Act, Capabilities: contract.SetOf(contract.ReadTasks),
				ApprovedBy: "ada@example.com", Checked: true,
			},
			Installation: &authority.Installation{UID: "i", ID: key.InstallationID, ManifestDigest: "v1:d", Declared: contract.AllCapabilities},
			Workspace:    &authority.Workspace{ID: key.WorkspaceID, Namespace: "payments", NamespaceUID: "n"},
			Policy:       authority.BuiltInPolicy(), WatchedFrom: 1,
		}, now.Add(time.Duration(i)*time.Minute), "k3v7qa")
		event, err := authority.NewEvent(row, out, "standup")
		if err != nil {
			t.Fatal(err)
		}
		events, row = append(events, event), event.Rebuilt()
	}
	return events
}

// again writes an event anew, as somebody would who hides a change.
func again(t *testing.T, e authority.Event, change func(*authority.Row)) authority.Event {
	t.Helper()
	row := e.Row
	change(&row)
	out, err := authority.NewEvent(authority.Row{
		Key: row.Key, Revision: e.BeforeRevision, EventHash: e.PreviousHash, Hold: e.Applied,
		Vector: authority.Vector{ManifestDigest: e.BeforeDigest},
	}, authority.Outcome{Next: row, Type: e.Type}, e.InstallationName)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestVerify(t *testing.T) {
	whole := history(t, 5)
	replaced := slices.Clone(whole)
	replaced[2] = again(t, whole[2], func(r *authority.Row) { r.ApprovedBy = "mallory@example.com" })
	changed := slices.Clone(whole)
	changed[2].Row.ApprovedBy = "mallory@example.com"
	moved := slices.Clone(whole)
	moved[1].Row.AuditID = whole[0].Row.AuditID
	skipping := again(t, whole[1], func(r *authority.Row) { r.Revision = 4 })
	rooted := []authority.Event{again(t, whole[0], func(*authority.Row) {})}
	rooted[0].PreviousHash = "x"

	for name, c := range map[string]struct {
		events    []authority.Event
		archived  []authority.Event
		published uint64
		want      []Fault
		from, to  uint64
		intact    bool
	}{
		"whole":                           {events: whole, published: 5, intact: true},
		"in any order, twice":             {events: append(slices.Clone(whole), whole[4], whole[0], whole[2]), intact: true},
		"pruned":                          {events: whole[2:], want: []Fault{FaultBeginning}, from: 1, to: 2, intact: true},
		"pruned, joined":                  {events: append(slices.Clone(whole[2:]), whole[:2]...), intact: true},
		"pruned, joined with a hole":      {events: append(slices.Clone(whole[3:]), whole[:2]...), want: []Fault{FaultGap}, from: 3, to: 3},
		"the newest is missing":           {events: whole[:4], published: 5, want: []Fault{FaultCut}, from: 5, to: 5},
		"nothing is there":                {published: 3, want: []Fault{FaultCut}, from: 1, to: 3},
		"content changed":                 {events: changed, want: []Fault{FaultChanged}, from: 3, to: 3},
		"an audit ID of another":          {events: moved, want: []Fault{FaultChanged}, from: 2, to: 2},
		"written again, with its digest":  {events: replaced, want: []Fault{FaultBroken}, from: 3, to: 4},
		"written again, the archive held": {events: append(slices.Clone(whole), replaced[2]), want: []Fault{FaultForked}, from: 3, to: 3},
		"a first that is none":            {events: []authority.Event{again(t, whole[0], func(r *authority.Row) { r.Revision = 40 })}, want: []Fault{FaultChanged}, from: 40, to: 40},
		"over some that never were":       {events: []authority.Event{whole[0], skipping}, want: []Fault{FaultChanged}, from: 4, to: 4},
		"archived, and live":              {events: whole[2:], archived: whole, intact: true},
		"archived alone":                  {archived: whole, want: []Fault{FaultUnwitnessed}, from: 1, to: 5},
		"archived behind the live ones":   {events: whole[1:3], archived: whole, published: 3, want: []Fault{FaultUnwitnessed}, from: 4, to: 5},
		"a first with one before it":      {events: rooted, want: []Fault{FaultBroken}, from: 1, to: 1},
	} {
		t.Run(name, func(t *testing.T) {
			chains := Verify(c.events, c.archived, map[authority.Key]uint64{key: c.published})
			if len(chains) != 1 {
				t.Fatalf("%d chains", len(chains))
			}
			var faults []Fault
			for _, f := range chains[0].Findings {
				faults = append(faults, f.Fault)
				if f.From != c.from || f.To != c.to || f.Detail == "" {
					t.Errorf("it concerns %d to %d (%s), want %d to %d", f.From, f.To, f.Detail, c.from, c.to)
				}
			}
			if !slices.Equal(faults, c.want) {
				t.Errorf("found %v, want %v", chains[0].Findings, c.want)
			}
			if chains[0].Intact() != c.intact || chains[0].Complete() != (len(c.want) == 0) {
				t.Errorf("intact is %v, complete is %v", chains[0].Intact(), chains[0].Complete())
			}
		})
	}
}

func TestVerifyKeepsKeysApart(t *testing.T) {
	here := history(t, 2)
	other := slices.Clone(here)
	for i := range other {
		other[i] = again(t, other[i], func(r *authority.Row) { r.Key.WorkspaceID = "billing" })
		if i > 0 {
			other[i].PreviousHash = other[i-1].Hash()
		}
	}
	chains := Verify(slices.Concat(here, other), nil, nil)
	if len(chains) != 2 || chains[0].Key.WorkspaceID != "billing" || !chains[0].Complete() || !chains[1].Complete() {
		t.Errorf("got %+v", chains)
	}
	if got := Verify(nil, nil, nil); len(got) != 0 {
		t.Errorf("nothing makes %v", got)
	}
}
