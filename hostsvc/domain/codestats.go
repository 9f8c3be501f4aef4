package domain

// CodeStats counts the lines that a session changed.
type CodeStats struct {
	SessionID        string
	WorkspaceID      string
	AddedCommitted   int64
	DeletedCommitted int64
	// AddedPeakPending and DeletedPeakPending are the most lines that stood
	// uncommitted at once.
	AddedPeakPending   int64
	DeletedPeakPending int64
	// CommittedAvailable is false where nobody counted while the session ran;
	// the committed numbers are 0 then.
	CommittedAvailable bool
	Version            Version
}
