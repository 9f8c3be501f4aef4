package controllers

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/controllers/kinds"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

// world is one installation in one workspace, as an API server and a store would
// show it, for what no real one can be made to do at the right moment.
type world struct {
	approval     *v1alpha1.PluginCapabilityApproval
	installation *v1alpha1.PluginInstallation
	namespaces   []metav1.PartialObjectMetadata
	account      metav1.PartialObjectMetadata
	// reads counts the requests; after is called behind each.
	reads int
	after func(read int)

	bound authority.Workspace
	row   authority.Row
	// rowReads counts, and beforeRow is called ahead of each.
	rowReads  int
	beforeRow func(read int)
	held      []authority.Hold
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		installation: &v1alpha1.PluginInstallation{
			ObjectMeta: metav1.ObjectMeta{Name: "plugin", UID: "o1"},
			Spec: v1alpha1.PluginInstallationSpec{
				PluginID: "kandev.sample", Version: "1",
				ServiceAccountRef: v1alpha1.ServiceAccountReference{Namespace: "plugins", Name: "plugin"},
				Manifest:          v1alpha1.PluginManifest{Capabilities: []v1alpha1.ManifestCapability{{ID: "host.v2.write:tasks"}}},
			},
			Status: v1alpha1.PluginInstallationStatus{InstallationID: "i", ServiceAccountUID: "a1", NamespaceUID: "m1"},
		},
		account: metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "plugins", Name: "plugin", UID: "a1"}},
		namespaces: []metav1.PartialObjectMetadata{
			{ObjectMeta: metav1.ObjectMeta{Name: "plugins", UID: "m1"}},
			{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "n1", Labels: map[string]string{v1alpha1.LabelWorkspaceID: "w"}}},
		},
		bound: authority.Workspace{ID: "w", Namespace: "team", NamespaceUID: "n1"},
	}
	w.row.Key = authority.Key{InstallationID: "i", WorkspaceID: "w"}
	w.approve("u", 1)
	return w
}

// approve puts version generation of the approval object uid at its place.
func (w *world) approve(uid string, generation int64) {
	w.approval = &v1alpha1.PluginCapabilityApproval{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "plugin", UID: types.UID(uid), Generation: generation},
		Spec: v1alpha1.PluginCapabilityApprovalSpec{
			InstallationName: "plugin", InstallationID: "i", WorkspaceID: "w",
			Capabilities: []v1alpha1.CapabilityID{"host.v2.write:tasks"}, State: v1alpha1.StateActive,
		},
	}
}

// grant is a row that has taken in everything that is there.
func (w *world) grant(t *testing.T) {
	t.Helper()
	read, err := w.cluster().read(t.Context(), w.row.Key)
	if err != nil || read.Intent.Approval == nil || read.Intent.Installation == nil || read.Intent.Workspace == nil {
		t.Fatalf("read %+v, %v", read, err)
	}
	in := read.Intent
	w.row = authority.Row{
		Key: w.row.Key, Revision: 1, Act: "1-abcdef", State: authority.StateActive, Granted: in.Approval.Capabilities,
		Declared: in.Installation.Declared, Allowed: in.Policy.Allowed,
		Vector: authority.VectorOf(in.Installation, in.Workspace, in.Policy),
		Seen:   authority.Seen{UID: in.Approval.UID, Generation: in.Approval.Generation},
	}
	w.row.Sum = w.row.Vector.Sum()
	w.reads = 0
}

func (w *world) cluster() *cluster {
	v := view.New(authority.BuiltInPolicy())
	v.SetBinding(w.bound)
	if w.installation != nil {
		known, _, err := kinds.InstallationOf(w.installation)
		if err != nil {
			panic(err)
		}
		v.SetInstallation(view.Installation{Installation: known})
	}
	s := &ledgerOf{w: w}
	return &cluster{
		live: w, store: s, view: v, bindings: &bindings{store: s, view: v},
		policies: &policies{live: w, builtIn: authority.BuiltInPolicy()},
	}
}

// Get implements client.Reader.
func (w *world) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	defer w.read()
	var all []client.Object
	if w.approval != nil {
		all = append(all, w.approval)
	}
	if w.installation != nil {
		all = append(all, w.installation)
	}
	if metadata, ok := into.(*metav1.PartialObjectMetadata); ok {
		all = nil
		if metadata.Kind == "ServiceAccount" {
			all = append(all, &w.account)
		}
		for i := range w.namespaces {
			if metadata.Kind == "Namespace" {
				all = append(all, &w.namespaces[i])
			}
		}
	}
	for _, o := range all {
		if client.ObjectKeyFromObject(o) == key && reflect.TypeOf(o) == reflect.TypeOf(into) {
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(o.DeepCopyObject()).Elem())
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.String())
}

// List implements client.Reader.
func (w *world) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	defer w.read()
	var o client.ListOptions
	o.ApplyOptions(options)
	switch list := into.(type) {
	case *v1alpha1.PluginInstallationList:
		if w.installation != nil {
			list.Items = []v1alpha1.PluginInstallation{*w.installation.DeepCopy()}
		}
	case *metav1.PartialObjectMetadataList:
		switch {
		case list.Kind == "NamespaceList":
			for _, n := range w.namespaces {
				if o.LabelSelector == nil || n.Labels[v1alpha1.LabelWorkspaceID] != "" {
					list.Items = append(list.Items, *n.DeepCopy())
				}
			}
		case list.Kind == "PluginInstallationList":
			if w.installation != nil {
				list.Items = []metav1.PartialObjectMetadata{{ObjectMeta: *w.installation.ObjectMeta.DeepCopy()}}
			}
		case w.approval != nil:
			list.Items = []metav1.PartialObjectMetadata{{ObjectMeta: *w.approval.ObjectMeta.DeepCopy()}}
		}
	default:
		return meta.SetList(into, nil)
	}
	return nil
}

func (w *world) read() {
	w.reads++
	if w.after != nil {
		w.after(w.reads)
	}
}

// unlabel takes the workspace's label away.
func (w *world) unlabel() { w.namespaces[1].Labels = nil }

// ledgerOf is the world's store.
type ledgerOf struct {
	Store
	w *world
}

func (l *ledgerOf) AdoptInstallation(context.Context, string, string, string) error { return nil }

func (l *ledgerOf) Bindings(context.Context) ([]authority.Workspace, error) {
	return []authority.Workspace{l.w.bound}, nil
}

func (l *ledgerOf) Row(_ context.Context, key authority.Key) (authority.Row, error) {
	if key != l.w.row.Key {
		return authority.Row{Key: key}, nil
	}
	l.w.rowReads++
	if l.w.beforeRow != nil {
		l.w.beforeRow(l.w.rowReads)
	}
	return l.w.row, nil
}

func (l *ledgerOf) Rows(context.Context) ([]authority.Row, error) {
	return []authority.Row{l.w.row}, nil
}

func (l *ledgerOf) Hold(_ context.Context, from authority.Row, hold authority.Hold) (authority.Row, error) {
	if l.w.row.Revision != from.Revision || l.w.row.Seen != from.Seen {
		return authority.Row{}, fence.ErrOvertaken
	}
	l.w.held = append(l.w.held, hold)
	merged := l.w.row.Hold.Merge(hold)
	l.w.row.Hold = &merged
	return l.w.row, nil
}

// An approval of a namespace that was made anew while it was read is no approval
// in the one that the workspace is bound to.
func TestI7_AnApprovalCountsInTheNamespaceThatItWasReadIn(t *testing.T) {
	whole := newWorld(t)
	whole.grant(t)
	if _, err := whole.cluster().read(t.Context(), whole.row.Key); err != nil {
		t.Fatal(err)
	}
	for at := range whole.reads + 1 {
		w := newWorld(t)
		anew := func(read int) {
			if read == at {
				w.namespaces[1].UID = "n2"
				w.approve("v", 1)
			}
		}
		c := w.cluster()
		anew(0)
		w.after = anew
		read, err := c.read(t.Context(), w.row.Key)
		if err != nil {
			t.Fatal(err)
		}
		if a := read.Intent.Approval; a != nil && a.UID == "v" {
			t.Errorf("made anew after %d reads: the approval in it counts", at)
		}
	}
}

// Where only the installation's list says what it is called, the approval is read
// before the namespace all the same.
func TestReadFindsAnInstallationThatNoWatchHasShown(t *testing.T) {
	w := newWorld(t)
	c := w.cluster()
	c.view = view.New(authority.BuiltInPolicy())
	c.bindings.view = c.view
	read, err := c.read(t.Context(), w.row.Key)
	if err != nil || read.Intent.Approval == nil || read.Intent.Installation == nil || read.Intent.Workspace == nil || read.place == nil {
		t.Errorf("read %+v, %v", read, err)
	}
}

func TestI7_WhatIsRevokedBeforeItIsProcessedIsHeld(t *testing.T) {
	revoked := func(uid string, generation int64) version {
		return version{uid: uid, generation: generation, spec: &authority.Approval{
			UID: uid, Generation: generation, InstallationID: "i", WorkspaceID: "w", Revoked: true,
			Capabilities: contract.SetOf(contract.WriteTasks),
		}}
	}
	processed := authority.Seen{UID: "a", Generation: 3, Gone: true}
	for name, c := range map[string]struct {
		seen   authority.Seen
		change func(*world)
		cur    version
		place  view.Place
		held   bool
		// unplaced: it takes away where no row is known to stand.
		unplaced bool
	}{
		"revoked before anything was processed":  {authority.Seen{}, func(*world) {}, revoked("u", 2), whereItStands, true, false},
		"of an object that is replaced":          {authority.Seen{}, func(w *world) { w.approve("v", 1) }, revoked("u", 2), whereItStands, true, false},
		"of an object that is gone":              {authority.Seen{}, func(w *world) { w.approval = nil }, revoked("u", 2), whereItStands, true, false},
		"while the label is away":                {authority.Seen{}, (*world).unlabel, revoked("u", 2), whereItStands, true, false},
		"elsewhere":                              {authority.Seen{}, func(*world) {}, revoked("u", 2), view.Place{Namespace: "other", Name: "plugin"}, false, true},
		"under another name":                     {authority.Seen{}, func(*world) {}, revoked("u", 2), view.Place{Namespace: "team", Name: "other"}, false, true},
		"of a later object, and it is there":     {processed, func(w *world) { w.approve("u", 2) }, revoked("u", 2), whereItStands, true, false},
		"of a later object, label away":          {processed, func(w *world) { w.approve("u", 2); w.unlabel() }, revoked("u", 2), whereItStands, true, false},
		"of a later object, uninstalled":         {processed, func(w *world) { w.installation = nil }, revoked("u", 2), whereItStands, false, false},
		"of another object, and nothing is left": {processed, func(w *world) { w.approval = nil }, revoked("u", 2), whereItStands, false, false},
		"of another object, and the old is back": {processed, func(w *world) { w.approve("a", 3) }, revoked("u", 2), whereItStands, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.row.Seen = c.seen
			if c.seen.UID != "" {
				w.row.Revision, w.row.Act, w.row.State = 3, "3-abcdef", authority.StateRevoked
			}
			c.change(w)
			handler := newWatch(view.New(authority.BuiltInPolicy()), &ledgerOf{w: w}, w.cluster(), nil, logr.Discard())
			defer handler.queue.ShutDown()
			_, held, err := handler.handleFor(t.Context(), w.row.Key, c.place, version{}, c.cur)
			if c.unplaced != errors.Is(err, errUnplaced) || err != nil && !c.unplaced || held != c.held || (len(w.held) > 0) != c.held {
				t.Errorf("held is %v, %v: %+v; want %v", held, err, w.held, c.held)
			}
		})
	}
}

func TestI7_GarbageHoldsNothing(t *testing.T) {
	w := newWorld(t)
	key := authority.Key{InstallationID: "nobody-installed-it", WorkspaceID: "w"}
	w.row.Key = key
	handler := newWatch(view.New(authority.BuiltInPolicy()), &ledgerOf{w: w}, w.cluster(), nil, logr.Discard())
	defer handler.queue.ShutDown()
	place := view.Place{Namespace: "team", Name: key.InstallationID}
	cur := version{uid: "u", generation: 1, spec: &authority.Approval{
		UID: "u", Generation: 1, InstallationID: key.InstallationID, WorkspaceID: "w", Revoked: true,
	}}
	if _, held, err := handler.handleFor(t.Context(), key, place, version{}, cur); !errors.Is(err, errUnplaced) || held {
		t.Errorf("held is %v, %v", held, err)
	}
}

// In a store that was lost, a revocation may be handled before the binding is there
// that says which row it is of. Whoever brings the grant back has no history then.
func TestI7_WhatIsDroppedIsAGap(t *testing.T) {
	w := newWorld(t)
	handler := newWatch(view.New(authority.BuiltInPolicy()), &ledgerOf{w: w}, w.cluster(), nil, logr.Discard())
	defer handler.queue.ShutDown()
	elsewhere := view.Place{Namespace: "other", Name: "plugin"}
	granting := func(generation int64) version {
		return version{uid: "u", generation: generation, spec: &authority.Approval{
			UID: "u", Generation: generation, InstallationID: w.row.Key.InstallationID, WorkspaceID: w.row.Key.WorkspaceID,
		}}
	}
	revoking := granting(2)
	revoking.spec.Revoked = true
	for _, c := range []struct {
		cur  version
		from int64
	}{{granting(1), 1}, {revoking, 2}, {granting(3), 2}} {
		handler.append(elsewhere, c.cur)
		object, cur, _ := handler.next(elsewhere)
		joins, err := handler.handle(t.Context(), elsewhere, object.last, cur)
		if err != nil {
			t.Fatal(err)
		}
		handler.done(elsewhere, object, cur, joins)
		from, err := handler.WatchedFrom(t.Context(), fence.Object{Namespace: "other", Name: "plugin", UID: "u"}, c.cur.generation)
		if err != nil || from != c.from {
			t.Errorf("generation %d: watched from %d (%v), want %d", c.cur.generation, from, err, c.from)
		}
	}
}

// Whoever has named another installation by mistake has revoked nothing.
func TestAnotherKeyIsNoGap(t *testing.T) {
	w := newWorld(t)
	handler := newWatch(view.New(authority.BuiltInPolicy()), &ledgerOf{w: w}, w.cluster(), nil, logr.Discard())
	defer handler.queue.ShutDown()
	for generation, id := range []string{"nobody-installed-it", w.row.Key.InstallationID} {
		handler.append(whereItStands, version{uid: "u", generation: int64(generation + 1), spec: &authority.Approval{
			UID: "u", Generation: int64(generation + 1), InstallationID: id, WorkspaceID: w.row.Key.WorkspaceID,
		}})
		object, cur, _ := handler.next(whereItStands)
		joins, err := handler.handle(t.Context(), whereItStands, object.last, cur)
		if err != nil {
			t.Fatal(err)
		}
		handler.done(whereItStands, object, cur, joins)
	}
	from, err := handler.WatchedFrom(t.Context(), fence.Object{Namespace: whereItStands.Namespace, Name: whereItStands.Name, UID: "u"}, 2)
	if err != nil || from != 1 {
		t.Errorf("watched from %d (%v), want 1", from, err)
	}
}
