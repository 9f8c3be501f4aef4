package rpc_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/journal"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// receiptsOf are the durable receipts of a method, the oldest first.
func (w *world) receiptsOf(method string) (receipts []journal.Receipt) {
	w.Helper()
	for _, receipt := range w.recorded() {
		if receipt.Method == method {
			receipts = append(receipts, receipt)
		}
	}
	return receipts
}

// ownReceipt is the receipt of a write of an installation's own.
func ownReceipt(installationID string) journal.Receipt {
	return journal.Receipt{AuditID: uuid.NewString(), InstallationID: installationID, Result: contract.StateApplied}
}

// TestV1WritersAreRecorded: what a v1 writer is refused leaves a receipt, whichever
// writer it is. What only reads leaves none.
func TestV1WritersAreRecorded(t *testing.T) {
	w := newV1World(t)
	nothing := w.everything()
	nothing.LegacyTerms = authority.LegacyTerms{}
	w.declared.set(alpha, nothing)
	own := []string{"SetState", "DeleteState", "SetSecret", "DeleteSecret"}
	writers := 0
	for _, method := range v1Methods(t) {
		name, needs := string(method.Name()), shipped[method.Name()]
		writer := slices.Contains(own, name) || slices.ContainsFunc(needs, func(need string) bool { return strings.HasPrefix(need, "api_write:") })
		_, err := w.send(w.as(alpha), method, nil)
		if len(needs) > 0 && status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s, undeclared: %v", name, err)
		}
		receipts := w.receiptsOf(name)
		if !writer {
			if len(receipts) > 0 {
				t.Errorf("%s reads and leaves %+v", name, receipts)
			}
			continue
		}
		writers++
		if len(receipts) != 1 {
			t.Errorf("%s leaves %+v, want one receipt", name, receipts)
			continue
		}
		if r := receipts[0]; r.AuditID == "" || r.InstallationID != alpha || r.Capability != needs[0] || r.Result != contract.StateDenied || !r.At.Equal(w.clock.Now()) {
			t.Errorf("%s leaves %+v", name, r)
		}
	}
	if writers < 10 {
		t.Errorf("only %d writers were tried", writers)
	}
}

// TestV1RecordsSayWhatCameOfACall: a commit in a workspace has its entry and nothing
// beside it, a write of the plugin's own its receipt.
func TestV1RecordsSayWhatCameOfACall(t *testing.T) {
	w := newV1World(t)
	w.seed("ws", 1)
	created, err := w.host.CreateTask(w.as(alpha), &pluginv1.CreateTaskRequest{WorkspaceId: "ws", WorkflowId: "ws-flow", Title: "New"})
	w.must(err)
	entries := w.entries("ws")
	if last := entries[len(entries)-1]; last.Method != "CreateTask" || last.AuditID == "" || last.InstallationID != alpha ||
		last.Result != contract.StateApplied || last.TargetID != created.GetTask().GetId() || len(w.receiptsOf("CreateTask")) != 0 {
		t.Errorf("the entry is %+v, the receipts %+v", last, w.receiptsOf("CreateTask"))
	}
	_, err = w.host.UpdateTask(w.as(alpha), &pluginv1.UpdateTaskRequest{Id: "nothing", Title: ptr("x")})
	if status.Code(err) != codes.NotFound {
		t.Errorf("an unknown task: %v", err)
	}
	_, err = w.host.SetState(w.as(alpha), &pluginv1.SetStateRequest{Scope: "instance", Key: "k"})
	w.must(err)
	for method, want := range map[string]contract.State{"UpdateTask": contract.StateNotFound, "SetState": contract.StateApplied} {
		receipts := w.receiptsOf(method)
		if len(receipts) != 1 || receipts[0].Result != want || receipts[0].AuditID == "" || receipts[0].InstallationID != alpha {
			t.Errorf("%s leaves %+v, want %s", method, receipts, want)
		}
	}
	// What commits with its record asks for no other one.
	w.receipts.broken.Store(true)
	_, err = w.host.SetState(w.as(alpha), &pluginv1.SetStateRequest{Scope: "instance", Key: "k"})
	w.must(err)
	if receipts := w.receiptsOf("SetState"); len(receipts) != 2 {
		t.Errorf("two writes leave %+v", receipts)
	}
	_, err = w.host.SetState(w.as(alpha), &pluginv1.SetStateRequest{Scope: "instance", Key: strings.Repeat("k", 10_000)})
	wants(t, "a refusal that can't be recorded", err, codes.Unavailable, "the Host can't serve this call now; try the same again")
	if text := w.log.String(); !strings.Contains(text, "a v1 call could not be recorded") {
		t.Errorf("the log says %s", text)
	}
	if _, err := w.host.GetState(w.as(alpha), &pluginv1.GetStateRequest{Scope: "instance", Key: "k"}); err != nil {
		t.Errorf("a read: %v", err)
	}
}
