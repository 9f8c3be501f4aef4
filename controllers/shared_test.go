package controllers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// slowReader answers when it is let, each time with another resource version.
type slowReader struct {
	begun  chan client.ObjectKey
	answer chan error
	count  int
}

func (r *slowReader) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	r.count++
	version := r.count
	r.begun <- key
	err := <-r.answer
	object.SetName(key.Name)
	object.SetResourceVersion(strconv.Itoa(version))
	return err
}

func (r *slowReader) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	r.count++
	list.SetResourceVersion(strconv.Itoa(r.count))
	return nil
}

// What a pass gets is never from before it asked, however many share it.
func TestShared_AReadNeverJoinsOneThatHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &slowReader{begun: make(chan client.ObjectKey), answer: make(chan error)}
		s := newShared(inner)
		versions := make(chan string, 8)
		ask := func(name string) {
			go func() {
				var o corev1.ConfigMap
				if err := s.Get(t.Context(), client.ObjectKey{Name: name}, &o); err != nil {
					versions <- err.Error()
					return
				}
				versions <- o.Name + " " + o.ResourceVersion
			}()
			synctest.Wait()
		}
		ask("a")
		<-inner.begun
		// Asked while the first is under way: these share the second.
		ask("a")
		ask("a")
		ask("a")
		inner.answer <- nil
		if got := <-versions; got != "a 1" {
			t.Fatalf("the first got %s", got)
		}
		<-inner.begun
		inner.answer <- nil
		for range 3 {
			if got := <-versions; got != "a 2" {
				t.Errorf("one that asked meanwhile got %s", got)
			}
		}
		synctest.Wait()
		if inner.count != 2 || len(s.flights) != 0 {
			t.Errorf("%d requests, %d left", inner.count, len(s.flights))
		}
	})
}

func TestShared_KeepsWhatDiffersApart(t *testing.T) {
	ctx := context.Background()
	s := newShared(&slowReader{})
	seen := map[string]string{}
	for name, options := range map[string][]client.ListOption{
		"everything":     nil,
		"in a namespace": {client.InNamespace("a")},
		"by a label":     {client.MatchingLabels{"l": "1"}},
		"by a field":     {client.MatchingFields{"f": "1"}},
		"a page":         {client.Limit(1), client.Continue("x")},
	} {
		var list corev1.ConfigMapList
		if err := s.List(ctx, &list, options...); err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[list.ResourceVersion]; ok {
			t.Errorf("%s shares its request with %s", name, other)
		}
		seen[list.ResourceVersion] = name
	}
}

// Each caller has its own object, an error reaches all, and who goes away takes
// nothing from the others.
func TestShared_CallersAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &slowReader{begun: make(chan client.ObjectKey, 8), answer: make(chan error)}
		s := newShared(inner)
		leaving, leave := context.WithCancel(t.Context())
		results := make(chan string, 2)
		get := func(ctx context.Context) {
			o := metav1.PartialObjectMetadata{}
			if err := s.Get(ctx, client.ObjectKey{Name: "a"}, &o); err != nil {
				results <- fmt.Sprint("error ", errors.Is(err, context.Canceled))
				return
			}
			o.Name = "changed by a caller"
			results <- o.ResourceVersion
		}
		go get(leaving)
		synctest.Wait()
		go get(t.Context())
		synctest.Wait()
		leave()
		if got := <-results; got != "error true" {
			t.Errorf("who went away got %s", got)
		}
		inner.answer <- nil
		inner.answer <- nil
		if got := <-results; got != "2" {
			t.Errorf("who stayed got %s", got)
		}
		go get(t.Context())
		synctest.Wait()
		inner.answer <- errors.New("the API server is away")
		if got := <-results; got != "error false" {
			t.Errorf("a failed read gave %s", got)
		}
	})
}
