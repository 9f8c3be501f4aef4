package events

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/query"
)

// Method is the RPC that events are watched by.
const Method = "WatchEvents"

// mark is what a cursor carries: a place, what order it is in, and when all before
// it had been committed.
type mark struct {
	origin   Origin
	position Position
	at       time.Time
}

// binding is what a cursor is bound to. Which patterns it was made with is no part
// of it: they may differ the next time, and what may be sent is decided for each
// event anyway.
func binding(installationID string) query.Binding {
	return query.Binding{InstallationID: installationID, Method: Method}
}

func (h *Hub) seal(installationID string, m mark) (string, error) {
	cursor, err := h.config.Cursors.Seal(binding(installationID), query.Position{
		StoreEpoch: m.origin.Epoch, Snapshot: domain.Version(m.position.Major),
		After: strconv.FormatUint(m.position.Minor, 36) + " " + strconv.FormatInt(m.at.Unix(), 36) + " " + m.origin.StoreID,
	})
	if err != nil {
		return "", fmt.Errorf("seal the cursor of a stream of events: %w", err)
	}
	return cursor, nil
}

func (h *Hub) unseal(installationID, cursor string) (mark, error) {
	sealed, err := h.config.Cursors.Open(binding(installationID), cursor)
	if err != nil {
		return mark{}, fmt.Errorf("open the cursor of a stream of events: %w", err)
	}
	minor, rest, _ := strings.Cut(sealed.After, " ")
	at, storeID, _ := strings.Cut(rest, " ")
	m := mark{
		origin:   Origin{StoreID: storeID, Epoch: sealed.StoreEpoch},
		position: Position{Major: uint64(sealed.Snapshot)},
	}
	var seconds int64
	var failure error
	m.position.Minor, err = strconv.ParseUint(minor, 36, 64)
	seconds, failure = strconv.ParseInt(at, 36, 64)
	if err := errors.Join(err, failure); err != nil {
		return mark{}, fmt.Errorf("read the cursor of a stream of events: %w", err)
	}
	m.at = time.Unix(seconds, 0)
	return m, nil
}

// resume opens the cursor of a watch. What it refuses says to start again.
func (h *Hub) resume(installationID, cursor string, now time.Time, page Page) (mark, *admission.Refusal) {
	if len(cursor) > contract.MaxCursorBytes {
		return mark{}, malformed("cursor", fmt.Sprintf("is longer than %d bytes", contract.MaxCursorBytes))
	}
	m, err := h.unseal(installationID, cursor)
	switch {
	case err != nil:
		return mark{}, malformed("cursor", "was not issued to this installation, or was altered; start without it")
	case m.origin != page.Origin, m.position.Compare(page.Settled) > 0:
		return mark{}, stale("the cursor is of another store, or of before it was restored")
	case now.Sub(m.at) > Kept:
		return mark{}, stale("the cursor is older than events are kept")
	}
	return m, nil
}

func stale(why string) *admission.Refusal {
	refusal := admission.Refuse(contract.ReasonStaleResourceVersion, why+"; read what it was about again and start without it")
	refusal.Field = "cursor"
	return refusal
}

func malformed(field, detail string) *admission.Refusal {
	return admission.RefuseField(&contract.FieldError{
		Field: field, Reason: contract.ReasonMalformedPrecondition, Detail: detail,
	})
}
