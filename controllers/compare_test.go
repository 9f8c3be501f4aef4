package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

var roundAt = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// upToDate is a round that finds one row and its objects in agreement.
func upToDate() (*comparison, *authority.Row) {
	const id, name = "i", "plugin"
	seen := view.New(authority.BuiltInPolicy())
	bound := authority.Workspace{ID: "w", Namespace: "team", NamespaceUID: "n1"}
	seen.SetBinding(bound)
	installation := &authority.Installation{
		UID: "o1", ID: id, Name: name, Version: "1", ManifestDigest: "d", Declared: contract.SetOf(contract.WriteTasks),
		ServiceAccountNamespace: "p", ServiceAccountName: "p", ServiceAccountUID: "a1", ServiceAccountNamespaceUID: "m1",
	}
	c := &comparison{
		rounds: &rounds{view: seen}, now: roundAt, policy: authority.BuiltInPolicy(),
		installations: map[string]*authority.Installation{id: installation},
		namespaces: map[string]*metav1.PartialObjectMetadata{"team": {ObjectMeta: metav1.ObjectMeta{
			UID: types.UID(bound.NamespaceUID), Labels: map[string]string{v1alpha1.LabelWorkspaceID: "w"},
		}}},
		labelled:  map[string]int{"w": 1},
		approvals: map[view.Place]version{{Namespace: "team", Name: name}: {uid: "u", generation: 3}},
		fetched:   map[view.Place]*authority.Approval{},
	}
	row := &authority.Row{
		Key: authority.Key{InstallationID: id, WorkspaceID: "w"}, Revision: 4, Act: "4-abcdef", State: authority.StateActive,
		Granted: installation.Declared, Declared: installation.Declared, Allowed: c.policy.Allowed,
		ExpiresAt: roundAt.Add(time.Second), Vector: authority.VectorOf(installation, &bound, c.policy),
		Seen: authority.Seen{UID: "u", Generation: 3},
	}
	row.Sum = row.Vector.Sum()
	return c, row
}

var whereItStands = view.Place{Namespace: "team", Name: "plugin"}

func TestI6_ARoundSeesEveryDifference(t *testing.T) {
	for name, change := range map[string]func(*comparison, *authority.Row){
		"a newer version":     func(c *comparison, _ *authority.Row) { c.approvals[whereItStands] = version{uid: "u", generation: 4} },
		"another object":      func(c *comparison, _ *authority.Row) { c.approvals[whereItStands] = version{uid: "v", generation: 3} },
		"a deletion":          func(c *comparison, _ *authority.Row) { delete(c.approvals, whereItStands) },
		"an uninstall":        func(c *comparison, _ *authority.Row) { delete(c.installations, "i") },
		"another manifest":    func(c *comparison, _ *authority.Row) { c.installations["i"].ManifestDigest = "e" },
		"a suspension":        func(c *comparison, _ *authority.Row) { c.installations["i"].Suspended = true },
		"another account":     func(c *comparison, _ *authority.Row) { c.installations["i"].PrincipalChanged = true },
		"a shared account":    func(c *comparison, _ *authority.Row) { c.installations["i"].ServiceAccountConflict = true },
		"an older Host":       func(c *comparison, _ *authority.Row) { c.installations["i"].HostVersionUnsupported = true },
		"no label":            func(c *comparison, _ *authority.Row) { c.namespaces["team"].Labels = nil },
		"no namespace":        func(c *comparison, _ *authority.Row) { delete(c.namespaces, "team") },
		"another namespace":   func(c *comparison, _ *authority.Row) { c.namespaces["team"].UID = "n2" },
		"two namespaces":      func(c *comparison, _ *authority.Row) { c.labelled["w"] = 2 },
		"another policy":      func(c *comparison, _ *authority.Row) { c.policy.Version += "+x" },
		"expiry":              func(c *comparison, _ *authority.Row) { c.now = roundAt.Add(time.Second) },
		"a hold":              func(_ *comparison, row *authority.Row) { row.Hold = &authority.Hold{State: authority.StateActive} },
		"a row that starts":   func(_ *comparison, row *authority.Row) { row.Starting = true },
		"a gate to open":      func(_ *comparison, row *authority.Row) { row.Gates = authority.GateSuspended },
		"an object come back": func(_ *comparison, row *authority.Row) { row.Seen = authority.Seen{UID: "s", Gone: true} },
	} {
		t.Run(name, func(t *testing.T) {
			c, row := upToDate()
			change(c, row)
			if in, place := c.intent(row); c.settled(row, in, place) {
				t.Error("not seen")
			}
		})
	}
}

func TestARoundLeavesAloneWhatIsUpToDate(t *testing.T) {
	for name, change := range map[string]func(*comparison, *authority.Row){
		"a grant": func(*comparison, *authority.Row) {},
		"a grant that its manifest can't do without": func(_ *comparison, row *authority.Row) {
			row.Gates = authority.GateRequiredCapabilityUnavailable
		},
		"revoked and uninstalled": func(c *comparison, row *authority.Row) {
			row.State = authority.StateRevoked
			delete(c.installations, "i")
		},
		"revoked in a workspace that is gone": func(c *comparison, row *authority.Row) {
			row.State, row.Seen.Gone = authority.StateRevoked, true
			row.Vector.WorkspaceNamespace, row.Vector.WorkspaceNamespaceUID = "", ""
			delete(c.namespaces, "team")
		},
		"deleted": func(c *comparison, row *authority.Row) {
			row.State, row.Seen.Gone = authority.StateRevoked, true
			delete(c.approvals, whereItStands)
		},
		"an object that is known to speak of another key": func(c *comparison, row *authority.Row) {
			row.State, row.Seen.Gone = authority.StateRevoked, true
			c.approvals[whereItStands] = version{uid: "v", generation: 1}
			c.rounds.fetched = map[view.Place]*authority.Approval{whereItStands: {UID: "v", Generation: 1, WorkspaceID: "other"}}
		},
		"a grant that waits for its manifest": func(_ *comparison, row *authority.Row) {
			row.Revision, row.State, row.Vector, row.Sum = 0, authority.StateNone, authority.Vector{}, authority.VectorSum{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, row := upToDate()
			change(c, row)
			if in, place := c.intent(row); !c.settled(row, in, place) {
				t.Error("it costs a closer look in every round")
			}
		})
	}
}

func TestAPoisonousObjectIsNoFaultOfTheAPIServer(t *testing.T) {
	torn := json.Unmarshal([]byte(`"x"`), new(int))
	for name, c := range map[string]struct {
		err       error
		poisonous bool
	}{
		"nothing":           {nil, false},
		"its content":       {fmt.Errorf("read: %w", torn), true},
		"too busy":          {apierrors.NewTooManyRequests("busy", 1), false},
		"a timeout":         {fmt.Errorf("read: %w", apierrors.NewTimeoutError("slow", 1)), false},
		"no way":            {&url.Error{Op: "Get", Err: errors.New("connection refused")}, false},
		"cut off":           {fmt.Errorf("read: %w", io.ErrUnexpectedEOF), false},
		"the round is over": {context.DeadlineExceeded, false},
	} {
		t.Run(name, func(t *testing.T) {
			if poisonous(c.err) != c.poisonous {
				t.Errorf("%v", c.err)
			}
		})
	}
}

// watchedFrom is a process whose watch has shown every version from one on; 0 for
// one that has not shown the newest.
type watchedFrom int64

func (w watchedFrom) WatchedFrom(context.Context, fence.Object, int64) (int64, error) {
	return int64(w), nil
}

// rounds are those of a process that has watched the world's approval from a
// generation on.
func (w *world) rounds(from int64) *rounds {
	c := w.cluster()
	return &rounds{
		store: c.store, live: w, cluster: c, bindings: c.bindings, policies: c.policies, view: c.view, history: watchedFrom(from),
		passes: newRequests[authority.Key](), uninstalls: newRequests[string](),
		delivered: func(view.Place, version) *authority.Approval { return nil },
		life:      15 * time.Second, now: func() time.Time { return roundAt }, log: logr.Discard(),
	}
}

func TestI6_ARowThatDiffersAllowsNothingUntilItsPass(t *testing.T) {
	for name, change := range map[string]func(*world){
		"a suspension":    func(w *world) { w.installation.Spec.Suspend = true },
		"another version": func(w *world) { w.installation.Spec.Version = "2" },
		"another account": func(w *world) { w.account.UID = "a2" },
		"an older Host":   func(w *world) { w.installation.Spec.Manifest.MinHostVersion = "99.0" },
		"a second workspace": func(w *world) {
			again := *w.namespaces[1].DeepCopy()
			again.Name, again.UID = "again", "n9"
			w.namespaces = append(w.namespaces, again)
		},
		"two edits that nobody watched": func(w *world) { w.approve("u", 3) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.grant(t)
				before := w.row
				change(w)
				r := w.rounds(0)
				for range 2 {
					if err := r.compare(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				want, _ := authority.Differing(before)
				if len(w.held) != 1 || !w.row.Hold.Equal(&want) {
					t.Errorf("held %+v, want %+v once", w.held, want)
				}
				if _, asked := r.passes.early[w.row.Key]; !asked {
					t.Error("no pass is asked for")
				}
			})
		})
	}
}

func TestI6_ARoundHoldsWhatIsNarrowerAlthoughItHasNotWatched(t *testing.T) {
	w := newWorld(t)
	w.grant(t)
	w.approve("u", 3)
	w.approval.Spec.Capabilities = nil
	if err := w.rounds(0).compare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(w.held) != 1 || w.held[0].Cause != authority.CauseHuman || w.held[0].Granted != 0 || w.held[0].Generation != 3 {
		t.Errorf("held %+v", w.held)
	}
}

// A storm of revocations must not become one of reads.
func TestARoundReadsNoVersionThatTheWatchHasDelivered(t *testing.T) {
	reads := map[bool]int{}
	for _, delivered := range []bool{false, true} {
		w := newWorld(t)
		w.grant(t)
		w.approve("u", 2)
		w.approval.Spec.State = v1alpha1.StateRevoked
		rounds, watch := w.rounds(1), quietWatch()
		t.Cleanup(watch.queue.ShutDown)
		rounds.delivered = watch.delivered
		if delivered {
			watch.OnAdd(w.approval.DeepCopy(), false)
		} else {
			older := w.approval.DeepCopy()
			older.Generation = 1
			watch.OnAdd(older, false)
		}
		if err := rounds.compare(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(w.held) != 1 || w.held[0].State != authority.StateRevoked || w.held[0].Generation != 2 {
			t.Errorf("delivered %v: held %+v", delivered, w.held)
		}
		reads[delivered] = w.reads
	}
	if reads[true] != reads[false]-1 {
		t.Errorf("%d reads where it was delivered, %d where it wasn't", reads[true], reads[false])
	}
}

func TestARoundHoldsNothing(t *testing.T) {
	// pass is a leader's pass that takes in all that is there.
	pass := func(w *world) func(int) {
		return func(read int) {
			if read == 3 {
				w.row.Revision++
				w.row.Gates |= authority.GateSuspended
				w.row.Vector.Suspended = true
				w.row.Sum = w.row.Vector.Sum()
			}
		}
	}
	for name, change := range map[string]func(*world) (from int64){
		"from what is as it was":               func(*world) int64 { return 1 },
		"from an edit that takes nothing away": func(w *world) int64 { w.approve("u", 2); return 0 },
		"from edits that this process watched": func(w *world) int64 { w.approve("u", 5); return 1 },
		"from edits that a pass takes in meanwhile": func(w *world) int64 {
			w.approve("u", 5)
			w.beforeRow = func(read int) {
				if read == 3 {
					w.row.Seen.Generation = 5
				}
			}
			return 0
		},
		"from a suspension that a pass takes in meanwhile": func(w *world) int64 {
			w.installation.Spec.Suspend = true
			w.beforeRow = pass(w)
			return 1
		},
		"while a gate is closed": func(w *world) int64 {
			w.row.Gates = authority.GateSuspended
			w.row.Vector.Suspended = true
			w.row.Sum = w.row.Vector.Sum()
			return 1
		},
		"before the first act": func(w *world) int64 {
			w.row = authority.Row{Key: w.row.Key}
			w.approve("u", 4)
			return 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.grant(t)
				from := change(w)
				if err := w.rounds(from).compare(t.Context()); err != nil {
					t.Fatal(err)
				}
				if len(w.held) > 0 {
					t.Errorf("held %+v", w.held)
				}
			})
		})
	}
}
