package controllers

import (
	"testing"

	"github.com/go-logr/logr"
)

// Policies that were installed together with us are enforced a moment later:
// until then, or until that is plainly not so, no installation gets an ID that
// an approval could name, which would be distrusted for good.
func TestI7_PoliciesThatArriveAreWaitedFor(t *testing.T) {
	fresh := func() *proof {
		p := newProof(nil, nil, nil, newLeader(nil, nil, nil, nil, nil, nil, logr.Discard()), "ns", 0, logr.Discard())
		p.observed = func(bool) {}
		return p
	}
	p := fresh()
	for i := range proofArrival {
		if !p.arriving() {
			t.Fatalf("not waited for after %d attempts", i)
		}
		p.publish(t.Context(), "policy", standing{state: proofLost, why: "it refuses nothing"})
	}
	if p.arriving() {
		t.Error("waited for without end")
	}
	p = fresh()
	p.publish(t.Context(), "policy", standing{state: proofLost})
	p.publish(t.Context(), "policy", standing{state: proofHeld})
	p.publish(t.Context(), "policy", standing{state: proofLost})
	if p.arriving() {
		t.Error("policies that were in force and are not are taken for new ones")
	}
}
