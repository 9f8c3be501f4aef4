package controllers

import (
	"strconv"
	"testing"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/kandev/plugin-host/hostsvc/authority"
)

func numbered(n int) authority.Key {
	return authority.Key{InstallationID: "i" + strconv.Itoa(n), WorkspaceID: "w"}
}

func TestRevocationsGoBeforeTenThousandRowsOfAStart(t *testing.T) {
	const rows, workers = 10_000, 4
	late := authority.Key{InstallationID: "late", WorkspaceID: "w"}
	for name, ask := range map[string]func(*requests[authority.Key], priorityqueue.PriorityQueue[authority.Key]){
		"while they are worked off": func(r *requests[authority.Key], q priorityqueue.PriorityQueue[authority.Key]) {
			start(t, r, q)
			for range workers {
				next(q)
			}
			r.hurry(late)
			r.hurry(numbered(rows - 1))
		},
		"before this process leads": func(r *requests[authority.Key], q priorityqueue.PriorityQueue[authority.Key]) {
			r.hurry(late)
			r.hurry(numbered(rows - 1))
			r.addAt(idle, late) // asked for again, it loses nothing
			start(t, r, q)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRequests[authority.Key]()
			q := priorityqueue.New[authority.Key](t.Name())
			defer q.ShutDown()
			for n := range rows {
				r.addAt(idle, numbered(n))
			}
			ask(r, q)
			found := map[authority.Key]bool{}
			for range 2 {
				found[next(q)] = true
			}
			if !found[late] || !found[numbered(rows-1)] {
				t.Errorf("the first to be worked on are %v", found)
			}
		})
	}
}

func TestARequestWaitsForTheController(t *testing.T) {
	r := newRequests[string]()
	q := priorityqueue.New[string](t.Name())
	defer q.ShutDown()
	r.add("early")
	r.add("early")
	if err := r.source().Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	r.add("late")
	first, _ := q.Get()
	second, _ := q.Get()
	if first == second || q.Len() != 0 {
		t.Errorf("got %s and %s, %d are left", first, second, q.Len())
	}
}

func TestAQueueWithoutPrioritiesIsRefused(t *testing.T) {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	defer q.ShutDown()
	if err := newRequests[string]().source().Start(t.Context(), q); err == nil {
		t.Error("it was taken")
	}
}

func start(t *testing.T, r *requests[authority.Key], q priorityqueue.PriorityQueue[authority.Key]) {
	t.Helper()
	if err := r.source().Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
}

func next(q priorityqueue.PriorityQueue[authority.Key]) authority.Key {
	key, _ := q.Get()
	q.Done(key)
	return key
}
