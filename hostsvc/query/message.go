package query

import (
	"context"
	"fmt"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/domain"
)

// MessageSnapshot is what message queries need of a snapshot.
type MessageSnapshot interface {
	// Messages lists at most limit messages of a workspace with a key above after,
	// in the order of MessageKey, as they were at version asOf.
	Messages(workspaceID string, filter MessageFilter, asOf domain.Version, after string, limit int) ([]domain.Message, error)
}

// MessageFilter narrows a list of messages. Every given part must match; an empty
// part matches everything.
type MessageFilter struct {
	SessionIDs []string
	TaskIDs    []string
	Types      []string
	// Since is the first instant that is wanted, Until the first that isn't any
	// more; nil is no bound.
	Since *time.Time
	Until *time.Time
}

// Check returns the first fault of the filter.
func (f MessageFilter) Check() *admission.Refusal {
	if refusal := checkValues(
		filterValues{"filter.session_ids", f.SessionIDs}, filterValues{"filter.task_ids", f.TaskIDs},
		filterValues{"filter.types", f.Types},
	); refusal != nil {
		return refusal
	}
	for i, name := range f.Types {
		if !domain.MessageType(name).Known() {
			return malformedPage(fmt.Sprintf("filter.types[%d]", i), "is no type of a message")
		}
	}
	return nil
}

// Sanitization is how much of a message a list shows.
type Sanitization string

// The levels. No level shows system markup (I14).
const (
	// SystemContextRemoved keeps the text without system markup.
	SystemContextRemoved Sanitization = "system_context_removed"
	// ContentRemoved keeps no text.
	ContentRemoved Sanitization = "content_removed"
)

// SanitizedMessage is a message as a level of sanitization shows it.
type SanitizedMessage struct {
	// Message has Content as it may be shown and nothing in MarkupBefore.
	Message domain.Message
	// Digest is over what is shown.
	Digest contract.Digest
}

// messageFilter is what the cursors of message lists are bound to.
type messageFilter struct {
	Filter       MessageFilter
	Sanitization Sanitization
}

// Messages lists the messages of a workspace without system markup,
// snapshot-bound, oldest first (ListSanitizedMessagesExact). An empty level is
// SystemContextRemoved.
func (r *Reader) Messages(ctx context.Context, installationID string, m admission.Method, env admission.Envelope, filter MessageFilter, level Sanitization, page Page) (List[SanitizedMessage], Receipt, *admission.Refusal) {
	check := filter.Check()
	switch {
	case level == "":
		level = SystemContextRemoved
	case level != SystemContextRemoved && level != ContentRemoved && check == nil:
		check = malformedPage("sanitization", "is none of system_context_removed and content_removed")
	}
	return list(ctx, r, installationID, m, env, page, messageFilter{filter, level}, check, sanitizedMessages,
		func(s Snapshot, asOf domain.Version, after string, limit int) ([]SanitizedMessage, error) {
			if err := requireWithin(s, env.WorkspaceID, after, filter.SessionIDs, filter.TaskIDs); err != nil {
				return nil, err
			}
			rows, err := s.Messages(env.WorkspaceID, filter, asOf, after, limit)
			if err != nil {
				return nil, err
			}
			shown := make([]SanitizedMessage, len(rows))
			for i := range rows {
				if shown[i], err = sanitized(rows[i], level); err != nil {
					return nil, err
				}
			}
			return shown, nil
		})
}

func sanitized(m domain.Message, level Sanitization) (SanitizedMessage, error) {
	if level == ContentRemoved {
		m.Content, m.MarkupBefore = "", ""
	}
	digest, err := m.Digest()
	if err != nil {
		return SanitizedMessage{}, fmt.Errorf("digest a message: %w", err)
	}
	m.Content, m.MarkupBefore = m.Visible(), ""
	return SanitizedMessage{Message: m, Digest: digest}, nil
}

var sanitizedMessages = kind[SanitizedMessage]{
	key: func(m SanitizedMessage) string { return MessageKey(m.Message) },
	size: func(m SanitizedMessage) int {
		return len(m.Message.ID) + len(m.Message.SessionID) + len(m.Message.TaskID) + len(m.Message.TurnID) + len(m.Message.Content)
	},
}

// MessageKey orders messages from the oldest to the newest and then by ID, as a
// text that sorts the same.
func MessageKey(m domain.Message) string { return InstantKey(m.CreatedAt) + "/" + m.ID }
