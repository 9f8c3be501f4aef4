package events

import (
	"cmp"
	"context"
	"time"
)

// Store is the part of the store that events come from.
type Store interface {
	// Events lists at most limit events behind a place, in the one order of all
	// workspaces that every reader sees. In a workspace that is the order of its
	// commits. Nothing is ever added before Page.Settled.
	Events(ctx context.Context, after Position, limit int) (Page, error)
	// EventsSince returns a place that everything since an instant is behind, give or
	// take the drift of clocks.
	EventsSince(ctx context.Context, since time.Time) (Position, error)
	// Committed has something when this process has committed since it was looked at
	// last. It has one reader. What other processes commit, it does not tell.
	Committed() <-chan struct{}
}

// Position is a place in the order of all events. The zero value is before the
// first.
type Position struct{ Major, Minor uint64 }

// Compare orders places.
func (p Position) Compare(other Position) int {
	return cmp.Or(cmp.Compare(p.Major, other.Major), cmp.Compare(p.Minor, other.Minor))
}

// Origin is what an order of events belongs to: one store, in one epoch.
type Origin struct {
	StoreID string
	Epoch   uint64
}

// Page is a part of the outbox.
type Page struct {
	Origin  Origin
	Records []Record
	// End is where the next page begins: nothing between the place that was asked
	// for and here was left out.
	End Position
	// Settled is the place that the store's order was complete up to.
	Settled Position
}

// Record is one event as stored.
type Record struct {
	Position Position
	// ID identifies the event for ever.
	ID   string
	Type string
	// WorkspaceID is "" for what a plugin published.
	WorkspaceID string
	// InstallationID is who caused it, or whose authority it is about.
	InstallationID string
	// PluginID is the plugin that published it, "" for what the Host itself tells.
	PluginID string
	AuditID  string
	// Revision is the one that authorised a command or that a fence put in force.
	Revision        uint64
	ResourceID      string
	ResourceVersion string
	// Event is JSON: {"event_schema_version", "data"}, and more that is not read.
	Event string
	At    time.Time
}
