package authority

import (
	"fmt"

	"github.com/kandev/plugin-host/contract"
)

// Class is one row of the ADR's human-reserved and non-delegable matrix.
type Class string

// The classes whose capabilities an approval may grant.
const (
	ClassReadProjections         Class = "ReadProjections"
	ClassManagedConversations    Class = "ManagedConversations"
	ClassMessagesAndTasks        Class = "MessagesAndTasks"
	ClassTaskDirectives          Class = "TaskDirectives"
	ClassRelationsAndTransitions Class = "RelationsAndTransitions"
	ClassRunsAndSessions         Class = "RunsAndSessions"
)

// The classes that stay with humans. No capability belongs to them, so neither
// an approval nor a policy can let one through.
const (
	ClassProviderActions Class = "ProviderActions"
	ClassStateRemoval    Class = "StateRemoval"
	ClassTrustBoundary   Class = "TrustBoundary"
	ClassSecrets         Class = "Secrets"
	ClassCrossWorkspace  Class = "CrossWorkspace"
	ClassHistoryRewrite  Class = "HistoryRewrite"
	ClassMerge           Class = "Merge"
	ClassRelease         Class = "Release"
	ClassDeploy          Class = "Deploy"
)

// MatrixRow says what an approval may grant of a class.
type MatrixRow struct {
	Class Class
	// Capabilities is empty for a class that is reserved to humans.
	Capabilities contract.CapabilitySet
	// Meaning is for people.
	Meaning string
}

// Reserved tells whether the class stays with humans.
func (r MatrixRow) Reserved() bool { return r.Capabilities == 0 }

const reads = contract.CapabilitySet(1<<contract.WriteManagedAgentConversations - 1)

// Matrix returns the human-reserved matrix of this build. It is data of the
// build, under MatrixVersion; another content needs another version.
func Matrix() []MatrixRow {
	return []MatrixRow{
		{ClassReadProjections, reads, "read projections of one workspace, never secret values"},
		{ClassManagedConversations, contract.SetOf(contract.WriteManagedAgentConversations), "ensure managed conversations and dispatch to them"},
		{ClassMessagesAndTasks, contract.SetOf(contract.WriteMessages, contract.WriteTasks), "send messages, create and update tasks"},
		{ClassTaskDirectives, contract.SetOf(contract.WriteTaskDirectives), "issue and resolve task directives"},
		{ClassRelationsAndTransitions, contract.SetOf(contract.WriteTaskRelations, contract.WriteTaskTransitions), "relate tasks and cancel pending transitions"},
		{ClassRunsAndSessions, contract.SetOf(contract.WriteTaskRuns, contract.WriteSessions), "ensure task runs and recover sessions"},
		{ClassProviderActions, 0, "retry, rerun, ready or notify at a provider: deferred, no authority exists"},
		{ClassStateRemoval, 0, "remove unique or still-needed state"},
		{ClassTrustBoundary, 0, "change security or a trust boundary"},
		{ClassSecrets, 0, "disclose a secret or widen its scope"},
		{ClassCrossWorkspace, 0, "reach another workspace"},
		{ClassHistoryRewrite, 0, "force-push, rebase, squash, amend or rewrite history"},
		{ClassMerge, 0, "merge"},
		{ClassRelease, 0, "release"},
		{ClassDeploy, 0, "deploy"},
	}
}

// MatrixVersion names the content of Matrix. Its digest is fixed by a test, so
// that the content can't change under the same version.
const MatrixVersion = "builtin/v1"

// MatrixDigest is the canonical digest of the matrix.
func MatrixDigest() (string, error) {
	type row struct {
		Class        Class    `json:"class"`
		Capabilities []string `json:"capabilities"`
	}
	content := struct {
		Version string `json:"version"`
		Rows    []row  `json:"rows"`
	}{Version: MatrixVersion}
	for _, r := range Matrix() {
		content.Rows = append(content.Rows, row{r.Class, r.Capabilities.IDs()})
	}
	digest, err := contract.CanonicalDigest(content)
	if err != nil {
		return "", fmt.Errorf("digest the human-reserved matrix: %w", err)
	}
	return digest.String(), nil
}

// capabilities returns the capabilities of a class; none for a class that is
// reserved or unknown.
func (c Class) capabilities() contract.CapabilitySet {
	for _, row := range Matrix() {
		if row.Class == c {
			return row.Capabilities
		}
	}
	return 0
}
