package command

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// The bounds of what a plugin publishes (EmitEvent). The shipped one is that of a
// message of gRPC.
const (
	// MaxEmittedNameBytes bounds an event's name.
	MaxEmittedNameBytes = contract.MaxIdentifierBytes
	// MaxEmittedBytes bounds its payload as JSON.
	MaxEmittedBytes = 64 << 10
	// EmitRate is how many events a second an installation may publish, for each
	// process of the Host: every one is written down for whoever is away.
	EmitRate = 50
	// EmitBurst is how many it may publish at once.
	EmitBurst = 500
)

// EmitStore keeps what plugins publish, for a while.
type EmitStore interface {
	// Emit returns nil only after the event is durable. It takes what allow returns
	// for the answer, and then no event: it asks under the lock that orders events.
	Emit(ctx context.Context, event Emitted, allow func() error) error
}

// Emitted is an event that a plugin published in its own name. It belongs to no
// workspace and says nothing that the Host vouches for.
type Emitted struct {
	ID             string
	InstallationID string
	// Source is "plugin:" and the plugin's ID.
	Source string
	// Type is "plugin.", the plugin's ID, and the name it gave.
	Type string
	// Event is what journal.EncodeEvent made of the payload.
	Event string
	At    time.Time
}

// EmitError says why an event was not taken, for the plugin.
type EmitError struct {
	// TooMany: the plugin publishes more than its share. Otherwise the event itself
	// is beyond a bound.
	TooMany bool
	Text    string
}

func (e *EmitError) Error() string { return e.Text }

// Emitter publishes events of plugins. It is safe for concurrent use.
type Emitter struct {
	Store EmitStore
	Now   func() time.Time
	// NewID returns a fresh, time-ordered identifier.
	NewID func() string

	mu sync.Mutex
	// shares are by installation: there are as many as ever published anything in
	// this process.
	shares map[string]*share
}

// share is what an installation may still publish.
type share struct {
	left float64
	at   time.Time
}

// Emit publishes an event. The name is taken as it is; that nobody listens is no
// failure. still returns nil while the call is allowed, and is asked again under the
// lock that the event may have waited for (I5). An *EmitError is the plugin's to hear,
// so is what still returns; any other error is the Host's own.
func (x *Emitter) Emit(ctx context.Context, installationID, pluginID, name string, payload map[string]any, still func() error) error {
	if len(name) > MaxEmittedNameBytes {
		return &EmitError{Text: fmt.Sprintf("event name exceeds maximum size of %d bytes", MaxEmittedNameBytes)}
	}
	var data any
	if payload != nil {
		data = payload
	}
	text, err := journal.EncodeEvent(data)
	if err != nil {
		// A number that JSON has no word for.
		return &EmitError{Text: "event payload has no JSON form"}
	}
	if len(text) > MaxEmittedBytes {
		return &EmitError{Text: fmt.Sprintf("event payload exceeds maximum size of %d bytes", MaxEmittedBytes)}
	}
	now := x.Now()
	if !x.take(installationID, now) {
		return &EmitError{TooMany: true, Text: fmt.Sprintf("more than %d events a second were published; try again later", EmitRate)}
	}
	err = x.Store.Emit(ctx, Emitted{
		ID: x.NewID(), InstallationID: installationID, Source: domain.PluginSource(pluginID), Type: "plugin." + pluginID + "." + name,
		Event: text, At: now,
	}, still)
	if err != nil {
		return fmt.Errorf("publish an event: %w", err)
	}
	return nil
}

// take uses up one event of an installation's share.
func (x *Emitter) take(installationID string, now time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.shares[installationID]
	if s == nil {
		if x.shares == nil {
			x.shares = map[string]*share{}
		}
		s = &share{left: EmitBurst, at: now}
		x.shares[installationID] = s
	}
	if passed := now.Sub(s.at); passed > 0 {
		s.left, s.at = min(EmitBurst, s.left+passed.Seconds()*EmitRate), now
	}
	if s.left < 1 {
		return false
	}
	s.left--
	return true
}
