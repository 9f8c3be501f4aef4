package legacy

import (
	"context"
	"fmt"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// MessageSnapshot is what v1 reads of messages, in all workspaces.
type MessageSnapshot interface {
	// AllMessages lists at most limit messages behind the first offset ones, oldest
	// first and then by ID.
	AllMessages(filter MessageRange, offset, limit int) ([]domain.Message, error)
}

// MessageTx is what v1 writes of messages.
type MessageTx interface {
	Session(id string) (session domain.Session, found bool, err error)
	SessionsOf(taskID string) ([]domain.Session, error)
	Message(id string) (message domain.Message, found bool, err error)
	// InsertMessage adds a message to the end of its session, at the transaction's
	// version.
	InsertMessage(message domain.Message) error
}

// MessageFilter narrows a list of messages: values of one field are alternatives, and
// every field that has any must match. Since is the first instant wanted, Until the
// first that isn't any more, RFC 3339 both.
type MessageFilter struct {
	SessionIDs []string
	TaskIDs    []string
	Types      []string
	Since      *string
	Until      *string
}

// MessageRange is a filter that was read.
type MessageRange struct {
	SessionIDs   []string
	TaskIDs      []string
	Types        []string
	Since, Until *time.Time
}

// eventMessageAdded is what a new message is told by.
const eventMessageAdded = "message.added"

// ListMessages lists messages of the instance. Their content is what may be seen of
// it (I14).
func (h *Host) ListMessages(ctx context.Context, _ Caller, filter MessageFilter, page Page) (messages []domain.Message, info PageInfo, err error) {
	within, failure := filter.read()
	if failure != nil {
		return nil, PageInfo{}, failure
	}
	w := page.window()
	err = h.Store.Read(ctx, func(s Snapshot) error {
		messages, info, err = paged(w, sizeOfMessage, func(offset, limit int) ([]domain.Message, error) {
			return s.AllMessages(within, offset, limit)
		})
		return err
	})
	if err != nil {
		return nil, PageInfo{}, fmt.Errorf("list messages: %w", err)
	}
	for i := range messages {
		messages[i].Content, messages[i].MarkupBefore = messages[i].Visible(), ""
	}
	return messages, info, nil
}

func sizeOfMessage(m *domain.Message) int { return contract.MaxIdentifierBytes + len(m.Content) }

func (f MessageFilter) read() (MessageRange, *Failure) {
	if n := len(f.SessionIDs) + len(f.TaskIDs) + len(f.Types); n > contract.MaxFilterValues {
		return MessageRange{}, fail(InvalidArgument, "message filter has %d session/task/type values, max %d", n, contract.MaxFilterValues)
	}
	out := MessageRange{SessionIDs: f.SessionIDs, TaskIDs: f.TaskIDs, Types: f.Types}
	for _, bound := range []struct {
		name string
		text *string
		to   **time.Time
	}{{"since", f.Since, &out.Since}, {"until", f.Until, &out.Until}} {
		if bound.text == nil {
			continue
		}
		at, err := time.Parse(time.RFC3339, *bound.text)
		if err != nil {
			return MessageRange{}, fail(InvalidArgument, "%s must be RFC3339: %s", bound.name, err)
		}
		*bound.to = &at
	}
	return out, nil
}

// SendMessage says something to a task's agent in the plugin's name, and returns the
// session that gets it and what becomes of it there. An empty sessionID is the one that
// stands for the task.
//
// What reads as system markup is taken out of the text before it is written: no plugin
// speaks as the system, and none hides what others say behind it.
func (h *Host) SendMessage(ctx context.Context, caller Caller, taskID, sessionID, text string) (toSession string, status domain.SendStatus, err error) {
	switch {
	case taskID == "":
		return "", "", fail(InvalidArgument, "task_id is required")
	case text == "":
		return "", "", fail(InvalidArgument, "text is required")
	}
	if text = domain.StripSpoken(text); text == "" {
		return "", "", fail(InvalidArgument, "text is required")
	}
	var to domain.Session
	err = h.Store.Read(ctx, func(s Snapshot) error {
		find, id := s.SessionsOfTask, taskID
		if sessionID != "" {
			find, id = s.SessionsByID, sessionID
		}
		found, err := find(id)
		if err != nil {
			return err
		}
		to, err = domain.SessionToMessage(taskID, sessionID, found)
		return err
	})
	if err != nil {
		return "", "", fmt.Errorf("find the session: %w", ruled(err))
	}
	err = h.write(ctx, caller, to.WorkspaceID, func(tx Tx) error {
		// What it was found by may have changed before the lock: also which session
		// stands for the task.
		found, err := tx.SessionsOf(taskID)
		if err != nil {
			return err
		}
		if to, err = domain.SessionToMessage(taskID, sessionID, found); err != nil {
			return err
		}
		if status, err = to.Send(); err != nil {
			return err
		}
		return h.say(tx, caller, to, text)
	})
	if err != nil {
		return "", "", fmt.Errorf("send the message: %w", ruled(err))
	}
	return to.ID, status, nil
}

// say adds a user's message that the caller wrote.
func (h *Host) say(tx Tx, caller Caller, to domain.Session, text string) error {
	now := h.Now()
	id := h.NewID()
	err := tx.InsertMessage(domain.Message{
		ID: id, WorkspaceID: to.WorkspaceID, SessionID: to.ID, TaskID: to.TaskID, AuthorType: domain.AuthorUser,
		AuthorID: caller.source(), Type: domain.MessagePlain, Content: text, Metadata: domain.Object{"source": caller.source()},
		CreatedAt: now, UpdatedAt: now, Version: tx.Version(),
	})
	if err != nil {
		return fmt.Errorf("insert the message: %w", err)
	}
	written, _, err := tx.Message(id)
	if err != nil {
		return fmt.Errorf("read the message back: %w", err)
	}
	event, err := journal.EncodeEvent(domain.NewMessagePayload(&written))
	if err != nil {
		return err
	}
	return tx.Append(journal.Entry{
		WorkspaceID: to.WorkspaceID, Kind: journal.KindCommand, AuditID: h.NewAuditID(), InstallationID: caller.InstallationID,
		Method: "SendMessage", Capability: contract.LegacyWriteMessages.String(), Result: contract.StateApplied, TargetID: id,
		After: domain.ResourceVersion(tx.StoreEpoch(), written.Version), EventType: eventMessageAdded, Event: event, At: now,
	})
}
