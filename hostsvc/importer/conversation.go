package importer

import (
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
)

type sessionItem struct{ domain.Session }

func readSession(f *fields, id string, _ time.Time) item {
	s := &sessionItem{domain.Session{
		ID: id, TaskID: f.id("task_id"), Name: f.name("name"),
		State: domain.SessionState(f.word("state", string(domain.SessionCreated), texts(domain.SessionCreated, domain.SessionStarting,
			domain.SessionRunning, domain.SessionIdle, domain.SessionWaitingForInput, domain.SessionCompleted, domain.SessionFailed,
			domain.SessionCancelled)...)),
		Primary: f.flag("is_primary", false), AgentProfileID: f.ref("agent_profile_id"), ProfileSnapshot: f.object("profile_snapshot"),
		ExecutorID: f.ref("executor_id"), ExecutorProfileID: f.ref("executor_profile_id"), ResumeToken: f.ref("resume_token"),
		ExecutionID: f.ref("execution_id"), RouteGeneration: f.count("route_generation"),
		ReviewStatus: domain.ReviewStatus(f.word("review_status", "", texts(domain.ReviewNone, domain.ReviewPending,
			domain.ReviewChangesRequested, domain.ReviewApproved)...)),
		ErrorMessage: f.text("error_message", contract.MaxDescriptionBytes), Metadata: f.object("metadata"),
		StartedAt: f.instant("started_at"), CompletedAt: f.instant("ended_at"), UpdatedAt: f.instant("updated_at"),
	}}
	if !s.CompletedAt.IsZero() && s.CompletedAt.Before(s.StartedAt) {
		f.fault("ended_at", "is before started_at")
	}
	if s.UpdatedAt.IsZero() {
		s.UpdatedAt = s.StartedAt
		if s.CompletedAt.After(s.UpdatedAt) {
			s.UpdatedAt = s.CompletedAt
		}
	}
	return s
}

func (s *sessionItem) place() (Space, string) { return SpaceSession, s.ID }
func (s *sessionItem) insert(tx Tx) error     { return tx.Session(s.Session) }

func (s *sessionItem) needs(need func(Space, string)) {
	need(SpaceTask, s.TaskID)
	if s.Primary {
		need(SpacePrimary, s.TaskID)
	}
}

func (s *sessionItem) check(w *world, d *document) {
	if _, there := w.find(SpaceTask, s.TaskID); !there {
		d.fault("task_id", noTask)
	}
	if s.Primary {
		if _, taken := w.find(SpacePrimary, s.TaskID); taken {
			d.fault("is_primary", "the task has a primary session already; only one can be")
		}
		w.add(SpacePrimary, s.TaskID, Known{})
	}
	w.add(SpaceSession, s.ID, Known{In: s.TaskID, As: string(s.State)})
}

type turnItem struct{ domain.Turn }

func readTurn(f *fields, id string, _ time.Time) item {
	t := &turnItem{domain.Turn{
		ID: id, SessionID: f.id("session_id"), ExecutionProfileID: f.ref("execution_profile_id"),
		RouteGeneration: f.count("route_generation"), Metadata: f.object("metadata"),
		StartedAt: f.required("started_at"), CompletedAt: f.instant("completed_at"),
	}}
	t.CreatedAt, t.UpdatedAt = f.stamps(t.StartedAt)
	if !t.CompletedAt.IsZero() && t.CompletedAt.Before(t.StartedAt) {
		f.fault("completed_at", "is before started_at")
	}
	return t
}

func (t *turnItem) place() (Space, string)         { return SpaceTurn, t.ID }
func (t *turnItem) insert(tx Tx) error             { return tx.Turn(t.Turn) }
func (t *turnItem) needs(need func(Space, string)) { need(SpaceSession, t.SessionID) }

const noSession = "is no session of the workspace that is above or in the store; put its document first"

func (t *turnItem) check(w *world, d *document) {
	session, there := w.find(SpaceSession, t.SessionID)
	if !there {
		d.fault("session_id", noSession)
	}
	t.TaskID = session.In
	w.add(SpaceTurn, t.ID, Known{In: t.SessionID})
}

type messageItem struct{ domain.Message }

func messageTypes() []string {
	return texts(domain.MessagePlain, domain.MessageContent, domain.MessageToolCall, domain.MessageToolEdit, domain.MessageToolRead,
		domain.MessageToolExecute, domain.MessageProgress, domain.MessageLog, domain.MessageError, domain.MessageStatus,
		domain.MessagePermissionRequest, domain.MessageClarificationRequest, domain.MessageScriptExecution, domain.MessageThinking,
		domain.MessageAgentPlan, domain.MessageTodo)
}

var messageWords, authorWords = messageTypes(), texts(domain.AuthorUser, domain.AuthorAgent)

func readMessage(f *fields, id string, _ time.Time) item {
	m := &messageItem{domain.Message{
		ID: id, SessionID: f.id("session_id"), TurnID: f.ref("turn_id"),
		AuthorType: domain.AuthorType(f.word("author_type", "", authorWords...)), AuthorID: f.ref("author_id"),
		Type:          domain.MessageType(f.word("type", string(domain.MessagePlain), messageWords...)),
		RequestsInput: f.flag("requests_input", false), Metadata: f.object("metadata"), CreatedAt: f.required("created_at"),
	}}
	if m.AuthorType == "" && !f.faulty("author_type") {
		f.fault("author_type", "is required: user or agent")
	}
	// A NUL is no reason to lose what was said: the store writes another sign.
	m.Content, _ = f.string("content")
	if len(m.Content) > maxContent {
		f.fault("content", "is longer than %d bytes", maxContent)
	}
	m.UpdatedAt = f.updated(m.CreatedAt)
	if _, asks := m.RequestKind(); asks {
		if fault := contract.CheckIdentifier("metadata", m.PendingID()); fault != nil {
			f.fault("metadata", "pending_id %s; without it nobody can answer: leave the document out, or import it as another type", fault.Detail)
		}
		if m.AuthorType == domain.AuthorUser {
			f.fault("author_type", "a request is of an agent")
		}
	}
	return m
}

func (m *messageItem) place() (Space, string) { return SpaceMessage, m.ID }
func (m *messageItem) insert(tx Tx) error     { return tx.Message(m.Message) }

func (m *messageItem) needs(need func(Space, string)) {
	need(SpaceSession, m.SessionID)
	need(SpaceTurn, m.TurnID)
	if _, asks := m.RequestKind(); asks {
		need(SpacePending, m.PendingID())
	}
}

func (m *messageItem) check(w *world, d *document) {
	session, there := w.find(SpaceSession, m.SessionID)
	if !there {
		d.fault("session_id", noSession)
	}
	m.TaskID = session.In
	if turn, there := w.find(SpaceTurn, m.TurnID); m.TurnID != "" && (!there || turn.In != m.SessionID) {
		d.fault("turn_id", "is no turn of the session that is above or in the store; put its document first")
	}
	if _, asks := m.RequestKind(); asks {
		this := Known{In: m.SessionID, As: string(m.Type)}
		if other, taken := w.find(SpacePending, m.PendingID()); taken && other != this {
			d.fault("metadata", "pending_id is that of another session or kind of request; correct one of them")
		}
		w.add(SpacePending, m.PendingID(), this)
	}
	w.add(SpaceMessage, m.ID, Known{})
}

type statsItem struct{ domain.CodeStats }

func readCodeStats(f *fields, id string, _ time.Time) item {
	s := &statsItem{domain.CodeStats{
		SessionID: id, AddedCommitted: f.count("lines_added_committed"), DeletedCommitted: f.count("lines_deleted_committed"),
		AddedPeakPending: f.count("lines_added_peak_pending"), DeletedPeakPending: f.count("lines_deleted_peak_pending"),
		CommittedAvailable: f.flag("committed_lines_available", true),
	}}
	if !s.CommittedAvailable && s.AddedCommitted+s.DeletedCommitted > 0 {
		f.fault("committed_lines_available", "is false, but committed lines are counted; correct one of them")
	}
	return s
}

func (s *statsItem) place() (Space, string)         { return SpaceStats, s.SessionID }
func (s *statsItem) insert(tx Tx) error             { return tx.CodeStats(s.CodeStats) }
func (s *statsItem) needs(need func(Space, string)) { need(SpaceSession, s.SessionID) }

func (s *statsItem) check(w *world, d *document) {
	if _, there := w.find(SpaceSession, s.SessionID); !there {
		d.fault("session_id", noSession)
	}
	w.add(SpaceStats, s.SessionID, Known{})
}
