package controllers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

var somewhere = view.Place{Namespace: "team", Name: "plugin"}

func quietWatch() *watch {
	return newWatch(view.New(authority.BuiltInPolicy()), nil, nil, nil, logr.Discard())
}

func seen(uid string, generation int64) version {
	return version{uid: uid, generation: generation, spec: &authority.Approval{UID: uid, Generation: generation}}
}

func gone(uid string, generation int64) version { return version{uid: uid, generation: generation} }

// deliver queues versions and handles them all.
func (w *watch) deliver(versions ...version) {
	for _, v := range versions {
		w.append(somewhere, v)
	}
	for {
		object, cur, ok := w.next(somewhere)
		if !ok {
			return
		}
		w.done(somewhere, object, cur, compared)
	}
}

func TestI7_HistoryOfWhatThisProcessHandled(t *testing.T) {
	for name, c := range map[string]struct {
		versions   []version
		uid        string
		generation int64
		from       int64
	}{
		"nothing":                        {nil, "a", 1, 0},
		"created":                        {[]version{seen("a", 1)}, "a", 1, 1},
		"found at the start":             {[]version{seen("a", 7)}, "a", 7, 7},
		"every version since":            {[]version{seen("a", 7), seen("a", 8), seen("a", 9)}, "a", 9, 7},
		"a status in between":            {[]version{seen("a", 1), seen("a", 1), seen("a", 2)}, "a", 2, 1},
		"a gap":                          {[]version{seen("a", 1), seen("a", 2), seen("a", 4), seen("a", 5)}, "a", 5, 4},
		"another object":                 {[]version{seen("a", 1), seen("a", 2), seen("b", 1), seen("b", 2)}, "b", 2, 1},
		"another object, later":          {[]version{seen("a", 1), seen("b", 3)}, "b", 3, 3},
		"deleted and created again":      {[]version{seen("a", 1), gone("a", 1), seen("b", 1)}, "b", 1, 1},
		"an older object asked for":      {[]version{seen("a", 1), seen("b", 1)}, "a", 1, 0},
		"a version that is to come":      {[]version{seen("a", 1)}, "a", 2, 0},
		"deleted":                        {[]version{seen("a", 1), gone("a", 1)}, "a", 1, 0},
		"an older version than the last": {[]version{seen("a", 1), seen("a", 2)}, "a", 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := quietWatch()
				defer w.queue.ShutDown()
				w.deliver(c.versions...)
				from, err := w.WatchedFrom(t.Context(), fence.Object{Namespace: somewhere.Namespace, Name: somewhere.Name, UID: c.uid}, c.generation)
				if err != nil || from != c.from {
					t.Errorf("watched from %d (%v), want %d", from, err, c.from)
				}
			})
		})
	}
}

// storedRow is a ledger of one row.
type storedRow struct {
	fence.Ledger
	row authority.Row
}

func (s storedRow) Row(context.Context, authority.Key) (authority.Row, error) { return s.row, nil }

// The version that a process begins with was compared with the one before where the
// row has processed that one, and else with nothing: who has processed it since
// says nothing of it.
func TestI7_TheFirstVersionIsComparedWithTheRow(t *testing.T) {
	for name, c := range map[string]struct {
		seen authority.Seen
		from int64
	}{
		"the version before is processed": {authority.Seen{UID: "a", Generation: 6}, 6},
		"an earlier one is":               {authority.Seen{UID: "a", Generation: 5}, 7},
		"it is processed itself":          {authority.Seen{UID: "a", Generation: 7}, 7},
		"another object is":               {authority.Seen{UID: "b", Generation: 6, Gone: true}, 7},
		"nothing is":                      {authority.Seen{}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := quietWatch()
				defer w.queue.ShutDown()
				w.ledger = storedRow{row: authority.Row{Seen: c.seen}}
				w.append(somewhere, seen("a", 7))
				object, cur, _ := w.next(somewhere)
				joins, err := w.handle(t.Context(), somewhere, object.last, cur)
				if err != nil {
					t.Fatal(err)
				}
				w.done(somewhere, object, cur, joins)
				w.deliver(seen("a", 8))
				from, err := w.WatchedFrom(t.Context(), fence.Object{Namespace: somewhere.Namespace, Name: somewhere.Name, UID: "a"}, 8)
				if err != nil || from != c.from {
					t.Errorf("watched from %d (%v), want %d", from, err, c.from)
				}
			})
		})
	}
}

// Only a write that this process can compare with the version that it replaced
// counts as one that the policies have checked whole. Anybody may narrow what an
// unchecked version grants, and over a gap that looks like a grant.
func TestI7_OnlyANeighbourTellsAWriteThatIsCheckedWhole(t *testing.T) {
	granting := func(generation int64, set contract.CapabilitySet, act string) version {
		return version{uid: "a", generation: generation, spec: &authority.Approval{
			UID: "a", Generation: generation, Capabilities: set, SupersedesAct: act,
		}}
	}
	one, two := contract.SetOf(contract.ReadTasks), contract.SetOf(contract.ReadTasks, contract.WriteTasks)
	for name, c := range map[string]struct {
		versions []version
		since    int64
		anew     bool
	}{
		"created":                                {[]version{granting(1, two, "")}, 0, true},
		"found":                                  {[]version{granting(4, two, "")}, 3, false},
		"granted behind what nobody has checked": {[]version{granting(1, one, ""), granting(2, two, ""), granting(3, two, "1-aaaaaa")}, 2, true},
		"narrowed behind what nobody has checked": {[]version{granting(1, one, ""), granting(2, two, ""), granting(3, one, "")}, 2, false},
		"narrowed, and what it narrowed unseen":   {[]version{granting(1, one, ""), granting(3, two, "")}, 2, false},
		"granted after that":                      {[]version{granting(1, one, ""), granting(3, two, ""), granting(4, two, "1-aaaaaa")}, 2, true},
		"granted before a gap":                    {[]version{granting(1, one, ""), granting(2, two, ""), granting(5, one, "")}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := quietWatch()
			defer w.queue.ShutDown()
			w.deliver(c.versions...)
			last := c.versions[len(c.versions)-1]
			object := fence.Object{Namespace: somewhere.Namespace, Name: somewhere.Name, UID: "a"}
			if anew, err := w.writtenAnew(t.Context(), object, c.since, last.generation); err != nil || anew != c.anew {
				t.Errorf("written anew: %t (%v), want %t", anew, err, c.anew)
			}
		})
	}
}

func TestI7_AVersionDroppedForWantOfRoomIsAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := quietWatch()
		defer w.queue.ShutDown()
		w.deliver(seen("a", 1))
		for generation := int64(2); generation <= maxPending+2; generation++ {
			w.append(somewhere, seen("a", generation))
		}
		w.deliver()
		from, err := w.WatchedFrom(t.Context(), fence.Object{Namespace: somewhere.Namespace, Name: somewhere.Name, UID: "a"}, maxPending+2)
		if err != nil || from != 3 {
			t.Errorf("watched from %d (%v), want 3: version 2 was dropped", from, err)
		}
	})
}

func TestI7_AReplacedObjectIsADeletionFirst(t *testing.T) {
	w := quietWatch()
	defer w.queue.ShutDown()
	w.append(somewhere, seen("a", 1))
	w.append(somewhere, seen("b", 1))
	pending := w.objects[somewhere].pending
	if len(pending) != 3 || pending[1] != gone("a", 1) {
		t.Errorf("pending %+v, want the deletion of a between both", pending)
	}
}

func TestHistoryWaitsForTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := quietWatch()
		defer w.queue.ShutDown()
		object := fence.Object{Namespace: somewhere.Namespace, Name: somewhere.Name, UID: "a"}
		answer := make(chan int64, 1)
		go func() {
			from, err := w.WatchedFrom(t.Context(), object, 2)
			if err != nil {
				t.Error(err)
			}
			answer <- from
		}()
		synctest.Wait()
		w.deliver(seen("a", 1))
		synctest.Wait()
		select {
		case from := <-answer:
			t.Fatalf("answered %d before version 2 was handled", from)
		default:
		}
		w.deliver(seen("a", 2))
		if from := <-answer; from != 1 {
			t.Errorf("watched from %d, want 1", from)
		}

		begun := time.Now()
		if from, err := w.WatchedFrom(t.Context(), object, 3); err != nil || from != 0 || time.Since(begun) != historyWait {
			t.Errorf("got %d, %v after %v; want 0 after %v", from, err, time.Since(begun), historyWait)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.WatchedFrom(ctx, object, 3); !errors.Is(err, context.Canceled) {
			t.Errorf("with a cancelled context: %v", err)
		}
	})
}

func TestI7_AnotherStoreOrEpochKnowsNothingOfWhatWasHandled(t *testing.T) {
	object := fence.Object{Namespace: somewhere.Namespace, Name: somewhere.Name, UID: "a"}
	first := storeEpoch{"s", 1}
	for name, c := range map[string]struct {
		in   storeEpoch
		from int64
	}{
		"the same":      {first, 1},
		"another epoch": {storeEpoch{"s", 2}, 3},
		"another store": {storeEpoch{"t", 1}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := quietWatch()
				defer w.queue.ShutDown()
				w.beginIn(first)
				w.deliver(seen("a", 1), seen("a", 2))
				w.append(somewhere, seen("a", 3))
				handled, cur, _ := w.next(somewhere)
				w.beginIn(c.in)
				w.done(somewhere, handled, cur, compared)
				if from, err := w.WatchedFrom(t.Context(), object, 3); err != nil || from != 1 && c.from == 1 || from != 0 && c.from != 1 {
					t.Errorf("a version that was being handled: watched from %d (%v)", from, err)
				}
				w.deliver()
				if from, err := w.WatchedFrom(t.Context(), object, 3); err != nil || from != c.from {
					t.Errorf("watched from %d (%v), want %d", from, err, c.from)
				}
			})
		})
	}
}
