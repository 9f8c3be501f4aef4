package admission

import (
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

// View is what this process sees in its watches.
type View interface {
	// Observe returns what is seen about key. It must not block or allocate.
	Observe(key authority.Key) *authority.Observed
}

// Authorise decides a call on a row, which is nil for "no row". It is called
// before any lock on a plainly read row, which may only refuse, and inside the
// transaction of the effect on that transaction's row. current is what that
// transaction says about the store's lease; before the lock it is not known yet
// and true.
func Authorise(row *authority.Row, current bool, view View, key authority.Key, call authority.Call, now time.Time) *Refusal {
	verdict := authority.Decide(row, view.Observe(key), current, call, now)
	if verdict.Allowed() {
		return nil
	}
	refusal := Refuse(verdict.Reason, messages[verdict.Reason])
	refusal.Revision = verdict.Revision
	if verdict.State == contract.StateUnavailable {
		refusal.RetryAfter = retryAfter
	}
	return refusal
}

var messages = map[contract.Reason]string{
	contract.ReasonHostVersionUnsupported:    "the plugin's manifest asks for a newer Host",
	contract.ReasonMissingCapabilityApproval: "no approval in force grants this capability in this workspace",
	contract.ReasonCapabilityRevoked:         "the approval has been revoked, has expired or waits for a human",
	contract.ReasonDependencyUnavailable:     "the approval is being processed; try the same again",
	contract.ReasonStaleCapabilityRevision:   "the revision or manifest digest is not the one in force; read the capability context and build a new request",
	contract.ReasonHumanReserved:             "this capability is reserved to humans",
}
