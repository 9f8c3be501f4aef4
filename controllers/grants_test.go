package controllers

import (
	"maps"
	"testing"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

func TestWhatIsRecordedOfTheProofReadsBack(t *testing.T) {
	term := fence.Term{StoreEpoch: 2, LeaderEpoch: 3}
	for name, r := range map[string]record{
		"nothing":                 {},
		"a proof":                 {of: proven(term, "ValidatingAdmissionPolicy a uid 1\n")},
		"a proof and grants":      {of: proven(term, "ValidatingAdmissionPolicy a uid 1\n"), grants: map[string]int64{"o/1": 1, "p/2": 17}},
		"a lapse and grants":      {of: lapsed(term), grants: map[string]int64{"o/1": 1}},
		"a lapse without a proof": {of: lapsed(term)},
	} {
		if got := parseRecord(r.text()); got.of != r.of || !maps.Equal(got.grants, r.grants) {
			t.Errorf("%s reads back as %+v", name, got)
		}
	}
	// What it doesn't understand is no grant, and no proof that was made.
	const odd = "store epoch 2\ncompatibility o/1\ncompatibility o/2 x\ncompatibility o/3 3\n"
	if got := parseRecord(odd); len(got.grants) != 1 || got.grants["o/3"] != 3 || got.of == proven(term, "") {
		t.Errorf("lines that nobody understands read as %+v", got)
	}
}

// Who edits an entry again and again must not make the record grow.
func TestTheRecordForgetsTheGrantsThatWereReplaced(t *testing.T) {
	r := record{grants: map[string]int64{"o/1": 1, "o/2": 2, "o/3": 3, "p/1": 1}}
	r.drop("o", []authority.LegacyGrant{{ID: "o/3"}})
	if want := map[string]int64{"o/3": 3, "p/1": 1}; !maps.Equal(r.grants, want) {
		t.Errorf("it keeps %v, want %v", r.grants, want)
	}
}
