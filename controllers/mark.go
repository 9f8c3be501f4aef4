package controllers

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The mark is a ConfigMap in the Host's own namespace: what the cluster
// remembers of the store.
const (
	markName    = "plugin-host-store"
	markStoreID = "storeID"
	markBeat    = "beat"
)

// errStoreBehind: the store isn't the one that this cluster has known last, or
// is an older copy of it.
var errStoreBehind = errors.New("the store is not what it was: it was lost, replaced or restored from a backup; the leader begins a new epoch")

// marks reads and writes the mark.
type marks struct {
	live      client.Reader
	writer    client.Client
	namespace string
}

// mark is what the cluster has last known of the store; the zero mark says
// nothing, for no store has been there yet.
type mark struct {
	storeID string
	beat    uint64
	// object is the version that was read, nil for none.
	object *corev1.ConfigMap
	// torn: somebody else has written it, so it vouches for no store.
	torn bool
}

// read must come before the store's side is read: a mark is written after what
// it speaks of, so a store that is whole is never behind it.
func (m *marks) read(ctx context.Context) (mark, error) {
	var object corev1.ConfigMap
	err := m.live.Get(ctx, client.ObjectKey{Namespace: m.namespace, Name: markName}, &object)
	if apierrors.IsNotFound(err) {
		return mark{}, nil
	}
	if err != nil {
		return mark{}, fmt.Errorf("read what the cluster knows of the store: %w", err)
	}
	known := mark{storeID: object.Data[markStoreID], object: &object}
	var torn error
	known.beat, torn = strconv.ParseUint(object.Data[markBeat], 10, 64)
	known.torn = torn != nil || known.storeID == ""
	return known, nil //nolint:nilerr // it is told by torn
}

// allows tells whether the store may be what the mark speaks of, and what this
// process has seen of it, which may be more: it sees a beat before the mark is
// written.
func (k mark) allows(round Round) error {
	switch {
	case round.Older:
		return fmt.Errorf("this process has seen a later beat of store %s than %d: %w", round.StoreID, round.Beat, errStoreBehind)
	case k.object == nil:
		return nil
	case k.torn:
		return fmt.Errorf("ConfigMap %s/%s is no mark of a store: %w", k.object.Namespace, markName, errStoreBehind)
	case k.storeID != round.StoreID:
		return fmt.Errorf("the cluster knows store %s and this is store %s: %w", k.storeID, round.StoreID, errStoreBehind)
	case k.beat > round.Beat:
		return fmt.Errorf("the cluster knows beat %d of the store and this is beat %d: %w", k.beat, round.Beat, errStoreBehind)
	default:
		return nil
	}
}

// write replaces the mark that was read. Where somebody else has written
// meanwhile, theirs is newer. A crash before it leaves a mark that is lower than
// the store, which is no contradiction.
func (m *marks) write(ctx context.Context, known mark, storeID string, beat uint64) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: markName}}
	if known.object != nil {
		object = known.object.DeepCopy()
	}
	object.Data = map[string]string{markStoreID: storeID, markBeat: strconv.FormatUint(beat, 10)}
	var err error
	if known.object == nil {
		err = m.writer.Create(ctx, object, fieldOwner)
	} else {
		err = m.writer.Update(ctx, object, fieldOwner)
	}
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write what the cluster knows of the store: %w", err)
	}
	return nil
}
