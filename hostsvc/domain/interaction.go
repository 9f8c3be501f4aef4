package domain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// InteractionKind is what a human is asked for.
type InteractionKind string

// The interaction kinds.
const (
	InteractionPermission    InteractionKind = "permission"
	InteractionClarification InteractionKind = "clarification"
)

// InteractionStatus is how an interaction stands. A text that isn't among the
// constants is kept as it is and counts as terminal.
type InteractionStatus string

// The interaction statuses; all but the first are terminal.
const (
	InteractionPending   InteractionStatus = "pending"
	InteractionApproved  InteractionStatus = "approved"
	InteractionRejected  InteractionStatus = "rejected"
	InteractionAnswered  InteractionStatus = "answered"
	InteractionCancelled InteractionStatus = "cancelled"
	InteractionExpired   InteractionStatus = "expired"
)

// Interaction is a permission request or a clarification bundle, projected from
// its message rows (domain facts, section 5). Its texts are free of system
// markup.
type Interaction struct {
	// ID is the pending ID that the rows share.
	ID          string
	WorkspaceID string
	Kind        InteractionKind
	TaskID      string
	SessionID   string
	TurnID      string
	Status      InteractionStatus
	Title       string
	// Context belongs to a clarification; ToolCallID, ActionType and Options to
	// a permission.
	Context    string
	ToolCallID string
	ActionType string
	Options    []InteractionOption
	Questions  []InteractionQuestion
	// AgentDisconnected tells that no agent waits any more: an answer starts a
	// new turn.
	AgentDisconnected bool
	CreatedAt         time.Time
	UpdatedAt         time.Time
	// Version is the newest version of the rows.
	Version Version
}

// InteractionOption is one choice. Kind is set on permissions (allow_once,
// allow_always, reject_once, reject_always), Description on clarifications.
type InteractionOption struct {
	ID          string
	Label       string
	Kind        string
	Description string
}

// InteractionQuestion is one question of a clarification bundle.
type InteractionQuestion struct {
	ID      string
	Title   string
	Prompt  string
	Options []InteractionOption
}

// ClarificationAnswer answers one question: by options, by a text, or both.
type ClarificationAnswer struct {
	QuestionID      string
	SelectedOptions []string
	CustomText      string
}

// Known tells whether it is an interaction kind at all.
func (k InteractionKind) Known() bool {
	return k == InteractionPermission || k == InteractionClarification
}

// Terminal tells whether nobody can answer any more.
func (s InteractionStatus) Terminal() bool { return s != InteractionPending }

// RequestKind is the kind of interaction that the row is part of; ok is false
// where it is none.
func (m Message) RequestKind() (kind InteractionKind, ok bool) {
	switch m.Type {
	case MessagePermissionRequest:
		return InteractionPermission, true
	case MessageClarificationRequest:
		return InteractionClarification, true
	default:
		return "", false
	}
}

// PendingID is the ID of the interaction that a request row is part of.
func (m Message) PendingID() string { return m.Metadata.Text("pending_id") }

// RequestStatus is the status of a request row.
func (m Message) RequestStatus() InteractionStatus {
	if status := shown(m.Metadata, "status"); status != "" {
		return InteractionStatus(status)
	}
	return InteractionPending
}

// InteractionOf projects the interaction of a pending ID from its request rows,
// in any order. ok is false without a row that is a request and has the ID.
func InteractionOf(pendingID string, rows []Message) (i Interaction, ok bool) {
	if pendingID == "" {
		return Interaction{}, false
	}
	if permissions := requestRows(rows, MessagePermissionRequest, pendingID); len(permissions) > 0 {
		return permissionOf(newestRequest(permissions)), true
	}
	if bundle := requestRows(rows, MessageClarificationRequest, pendingID); len(bundle) > 0 {
		return clarificationOf(bundle), true
	}
	return Interaction{}, false
}

// shown is a member of a request's metadata as it may leave the Host (I14). An agent
// writes them all, also those that are to be words or IDs.
func shown(object Object, key string) string { return StripMarkup(object.Text(key)) }

func requestRows(rows []Message, request MessageType, pendingID string) []Message {
	var found []Message
	for _, m := range rows {
		if m.Type == request && m.PendingID() == pendingID {
			found = append(found, m)
		}
	}
	return found
}

func interactionBase(m Message, kind InteractionKind) Interaction {
	return Interaction{
		ID: m.PendingID(), WorkspaceID: m.WorkspaceID, Kind: kind, TaskID: m.TaskID, SessionID: m.SessionID,
		TurnID: m.TurnID, Status: m.RequestStatus(), CreatedAt: m.CreatedAt, UpdatedAt: m.UpdatedAt, Version: m.Version,
	}
}

func permissionOf(m Message) Interaction {
	i := interactionBase(m, InteractionPermission)
	i.Title = m.Visible()
	i.ToolCallID = shown(m.Metadata, "tool_call_id")
	i.ActionType = shown(m.Metadata, "action_type")
	for _, o := range m.Metadata.Objects("options") {
		if id := shown(o, "option_id"); id != "" {
			i.Options = append(i.Options, InteractionOption{ID: id, Label: shown(o, "name"), Kind: shown(o, "kind")})
		}
	}
	return i
}

// clarificationOf projects the rows of a bundle, which it sorts.
func clarificationOf(bundle []Message) Interaction {
	slices.SortFunc(bundle, func(a, b Message) int {
		return cmp.Or(
			cmp.Compare(a.Metadata.Number("question_index"), b.Metadata.Number("question_index")),
			cmp.Compare(a.Sequence, b.Sequence), strings.Compare(a.ID, b.ID))
	})
	first := bundle[0]
	i := interactionBase(first, InteractionClarification)
	i.Context = shown(first.Metadata, "context")
	for _, m := range bundle {
		i.Questions = append(i.Questions, questionOf(m))
		if m.RequestStatus() == InteractionPending {
			i.Status = InteractionPending
		}
		i.AgentDisconnected = i.AgentDisconnected || m.Metadata.Flag("agent_disconnected")
		if m.CreatedAt.Before(i.CreatedAt) {
			i.CreatedAt = m.CreatedAt
		}
		if m.UpdatedAt.After(i.UpdatedAt) {
			i.UpdatedAt = m.UpdatedAt
		}
		i.Version = max(i.Version, m.Version)
	}
	i.Title = i.Questions[0].Prompt
	return i
}

func questionOf(m Message) InteractionQuestion {
	question := m.Metadata.Object("question")
	q := InteractionQuestion{
		ID: shown(m.Metadata, "question_id"), Title: shown(question, "title"), Prompt: shown(question, "prompt"),
	}
	if q.ID == "" {
		q.ID = shown(question, "id")
	}
	if q.Prompt == "" {
		q.Prompt = m.Visible()
	}
	for _, o := range question.Objects("options") {
		q.Options = append(q.Options, InteractionOption{
			ID: shown(o, "option_id"), Label: shown(o, "label"), Description: shown(o, "description"),
		})
	}
	return q
}

// newestRequest is the newest row by creation, then by insertion.
func newestRequest(rows []Message) Message {
	return slices.MaxFunc(rows, func(a, b Message) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Sequence, b.Sequence))
	})
}

// PendingInteractions is the pending predicate: what the session owes an answer
// to, oldest first (domain facts, section 5). Lists, pending actions and the
// inbox all ask it, so they can't disagree. turns must hold the session's newest
// authoritative turn and rows all request rows of that turn with their bundles;
// both may hold more.
//
//   - Only the current turn counts.
//   - Of its permission rows only the newest counts.
//   - Of its clarification bundles each counts with all its rows while one of
//     them is pending.
//
// A row without a pending ID can't be answered and is no request.
func PendingInteractions(s Session, turns []Turn, rows []Message) []Interaction {
	turn, ok := CurrentTurn(s, turns)
	if !ok {
		return nil
	}
	rows = slices.DeleteFunc(slices.Clone(rows), func(m Message) bool { return m.SessionID != s.ID })
	var permissions []Message
	var pending []Interaction
	bundles := map[string]bool{}
	for _, m := range rows {
		kind, is := m.RequestKind()
		if !is || m.TurnID != turn.ID {
			continue
		}
		if kind == InteractionPermission {
			permissions = append(permissions, m)
			continue
		}
		if id := m.PendingID(); id != "" && m.RequestStatus() == InteractionPending && !bundles[id] {
			bundles[id] = true
			pending = append(pending, clarificationOf(requestRows(rows, MessageClarificationRequest, id)))
		}
	}
	if len(permissions) > 0 {
		if newest := newestRequest(permissions); newest.PendingID() != "" && newest.RequestStatus() == InteractionPending {
			pending = append(pending, permissionOf(newest))
		}
	}
	slices.SortFunc(pending, func(a, b Interaction) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	return pending
}

// PendingAction is what a session or a task waits for, in one word. "" is
// nothing, which events show as an explicit null.
type PendingAction string

// The pending actions.
const (
	ActionNone          PendingAction = ""
	ActionClarification PendingAction = "clarification"
	ActionPermission    PendingAction = "permission"
)

// SessionPendingAction is the pending action of a session that owes answers to
// pending: a clarification wins.
func SessionPendingAction(pending []Interaction) PendingAction {
	return firstAction(pending, InteractionClarification, InteractionPermission)
}

// TaskPendingAction is the pending action of a task over its sessions, where
// pending is what a session owes. Only sessions that run or wait for input
// count, and a permission wins: the two levels differ upstream, on purpose.
func TaskPendingAction(sessions []Session, pending func(Session) []Interaction) PendingAction {
	var all []Interaction
	for _, s := range sessions {
		if s.State == SessionRunning || s.State == SessionWaitingForInput {
			all = append(all, pending(s)...)
		}
	}
	return firstAction(all, InteractionPermission, InteractionClarification)
}

func firstAction(pending []Interaction, order ...InteractionKind) PendingAction {
	for _, kind := range order {
		if slices.ContainsFunc(pending, func(i Interaction) bool { return i.Kind == kind }) {
			return PendingAction(kind)
		}
	}
	return ActionNone
}

// CheckOpen refuses an answer of a kind to an interaction that is of another
// kind or already has one. An error is a *RuleError. A caller that lost a race
// against the same answer is refused too (ADR 0052, point 6).
func (i Interaction) CheckOpen(kind InteractionKind) error {
	if i.Kind != kind {
		return &RuleError{FaultPrecondition, fmt.Sprintf("interaction %q is a %s request, not a %s request", i.ID, i.Kind, kind)}
	}
	if i.Status.Terminal() {
		return &RuleError{FaultPrecondition, fmt.Sprintf("interaction %q is already %s", i.ID, i.Status)}
	}
	return nil
}

// Choose returns the status that an answer to a permission request leaves: one
// of the offered options, or cancelled and no option. Which way an option goes
// is recorded with it and not up to who answers. An error is a *RuleError.
func (i Interaction) Choose(optionID string, cancelled bool) (InteractionStatus, error) {
	if cancelled {
		if optionID != "" {
			return "", &RuleError{FaultInvalid, "option_id must be empty when cancelled is set"}
		}
		return InteractionRejected, nil
	}
	if optionID == "" {
		return "", &RuleError{FaultInvalid, "option_id is required when cancelled is not set"}
	}
	for _, o := range i.Options {
		if o.ID == optionID {
			return PermissionOutcome(o.Kind), nil
		}
	}
	return "", &RuleError{FaultInvalid, fmt.Sprintf("option_id %q is not one of interaction %q's options", optionID, i.ID)}
}

// PermissionOutcome is the status that a chosen option of a kind leaves. Kinds
// that begin with "reject" reject, also those that nobody knows yet.
func PermissionOutcome(kind string) InteractionStatus {
	if strings.HasPrefix(kind, "reject") {
		return InteractionRejected
	}
	return InteractionApproved
}

// Bounds of a clarification bundle (domain facts, section 4).
const (
	maxQuestions = 4
	minOptions   = 2
	maxOptions   = 6
)

// NewQuestions checks the questions of a clarification request and gives the IDs
// that they and their options lack. An error is a *RuleError.
func NewQuestions(asked []InteractionQuestion) ([]InteractionQuestion, error) {
	refuse := func(format string, args ...any) ([]InteractionQuestion, error) {
		return nil, &RuleError{FaultInvalid, fmt.Sprintf(format, args...)}
	}
	switch {
	case len(asked) < 1:
		return refuse("questions must contain at least 1 question")
	case len(asked) > maxQuestions:
		return refuse("questions must contain at most %d questions", maxQuestions)
	}
	questions := slices.Clone(asked)
	seen := map[string]bool{}
	for n := range questions {
		q := &questions[n]
		if q.ID == "" {
			q.ID = fmt.Sprintf("q%d", n+1)
		}
		switch {
		case seen[q.ID]:
			return refuse("duplicate question id %q", q.ID)
		case strings.TrimSpace(q.Prompt) == "":
			return refuse("question %d is missing required 'prompt'", n+1)
		case len(q.Options) < minOptions:
			return refuse("question %d must have at least %d options", n+1, minOptions)
		case len(q.Options) > maxOptions:
			return refuse("question %d must have at most %d options", n+1, maxOptions)
		}
		seen[q.ID] = true
		q.Options = slices.Clone(q.Options)
		for o := range q.Options {
			if q.Options[o].ID == "" {
				q.Options[o].ID = fmt.Sprintf("q%d_opt%d", n+1, o+1)
			}
		}
	}
	return questions, nil
}

// CheckAnswers refuses answers that aren't exactly one for each question of the
// bundle. Option IDs aren't checked, as shipped. An error is a *RuleError, which
// counts the answers that lack their question from 1 and the others from 0.
func (i Interaction) CheckAnswers(answers []ClarificationAnswer) error {
	refuse := func(format string, args ...any) error {
		return &RuleError{FaultInvalid, fmt.Sprintf(format, args...)}
	}
	if len(answers) == 0 {
		return refuse("answers is required")
	}
	for n, a := range answers {
		if a.QuestionID == "" {
			return refuse("answer %d is missing question_id", n+1)
		}
	}
	if len(answers) != len(i.Questions) {
		return refuse("expected %d answers, got %d", len(i.Questions), len(answers))
	}
	answered := map[string]bool{}
	for n, a := range answers {
		switch {
		case !slices.ContainsFunc(i.Questions, func(q InteractionQuestion) bool { return q.ID == a.QuestionID }):
			return refuse("answer %d references unknown question id %q", n, a.QuestionID)
		case answered[a.QuestionID]:
			return refuse("answer %d duplicates question id %q", n, a.QuestionID)
		}
		answered[a.QuestionID] = true
	}
	return nil
}
