package rpc_test

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

func (w *world) context(workspace string) *pluginv1.GetCapabilityContextResponse {
	w.Helper()
	response, err := w.host.GetCapabilityContext(w.as(alpha), &pluginv1.GetCapabilityContextRequest{RequestId: "r", WorkspaceId: workspace})
	w.must(err)
	return response
}

// TestCapabilityContextOfOneWorkspace: the shipped shape.
func TestCapabilityContextOfOneWorkspace(t *testing.T) {
	w := newWorld(t)
	key := authority.Key{InstallationID: alpha, WorkspaceID: "ws"}
	w.seed("ws", 1)
	row := approved(key)
	row.Granted = contract.SetOf(contract.ReadTasks, contract.ReadWorkspaces)
	w.fence(row)

	response := w.context("ws")
	got := response.GetContext()
	if got.GetInstallationId() != alpha || got.GetWorkspaceId() != "ws" || got.GetManifestDigest() != digest ||
		got.GetApprovalRevision() != 1 || got.GetApprovalState() != "active" || len(got.GetSupportedProviders()) != 0 ||
		len(got.GetLimits()) != 2 || got.GetLimits()["page_size"] != 200 || got.GetLimits()["command_payload_bytes"] != 65536 {
		t.Errorf("context %v", got)
	}
	if response.GetContractVersion() != "2" || response.GetContextRevision() == 0 || len(response.GetWorkspaces()) != 0 ||
		w.receipt(response.GetAuditId()).Method != "GetCapabilityContext" {
		t.Errorf("response %v", response)
	}
	type operation struct {
		method, capability, reason string
		authorized                 bool
	}
	want := []operation{
		{"GetCapabilityContext", "", "", true},
		{"UpdateTaskExact", "host.v2.write:tasks", "missing_capability_approval", false},
		{"CreateTaskExact", "host.v2.write:tasks", "missing_capability_approval", false},
		{"ListWorkspacesExact", "host.v2.read:workspaces", "", true},
		{"ListWorkflowsExact", "host.v2.read:workflows", "missing_capability_approval", false},
		{"ListWorkflowStepsExact", "host.v2.read:workflows", "missing_capability_approval", false},
		{"ListTasksExact", "host.v2.read:tasks", "", true},
		{"GetTaskExact", "host.v2.read:tasks", "", true},
		{"ListSessionsExact", "host.v2.read:sessions", "missing_capability_approval", false},
		{"ListPendingInteractionsExact", "host.v2.read:interactions", "missing_capability_approval", false},
		{"GetInteractionExact", "host.v2.read:interactions", "missing_capability_approval", false},
		{"ListSanitizedMessagesExact", "host.v2.read:messages", "missing_capability_approval", false},
		{"ListTaskInboxExact", "host.v2.read:task_inbox", "missing_capability_approval", false},
		{"GetTaskRelationsExact", "host.v2.read:task_relations", "missing_capability_approval", false},
		{"ListTaskRelationsExact", "host.v2.read:task_relations", "missing_capability_approval", false},
		{"ListPendingTaskTransitionsExact", "host.v2.read:task_transitions", "missing_capability_approval", false},
	}
	var have []operation
	for _, o := range got.GetOperations() {
		if !o.GetSupported() || o.GetDescription() == "" {
			t.Errorf("operation %v", o)
		}
		have = append(have, operation{o.GetMethod(), o.GetCapabilityId(), o.GetUnavailableReason(), o.GetAuthorized()})
	}
	if !slices.Equal(have, want) {
		t.Errorf("operations\n%v, want\n%v", have, want)
	}

	states := []struct {
		name, state, reason string
		change              func(*authority.Row)
	}{
		{"revoked", "revoked", "capability_revoked", func(r *authority.Row) { r.State = authority.StateRevoked }},
		{"expired", "revoked", "capability_revoked", func(r *authority.Row) { r.State = authority.StateExpired }},
		{"expired by the clock", "revoked", "capability_revoked", func(r *authority.Row) { r.ExpiresAt = w.clock.Now() }},
		{"suspended", "active", "capability_revoked", func(r *authority.Row) { r.Gates = authority.GateSuspended }},
		{"Host too old", "active", "host_version_unsupported", func(r *authority.Row) { r.Gates = authority.GateHostVersionUnsupported }},
	}
	for _, test := range states {
		row := approved(key)
		test.change(&row)
		w.fence(row)
		got := w.context("ws").GetContext()
		if got.GetApprovalState() != test.state {
			t.Errorf("%s: state %q, want %q", test.name, got.GetApprovalState(), test.state)
		}
		for _, o := range got.GetOperations()[1:] {
			if o.GetAuthorized() || o.GetUnavailableReason() != test.reason {
				t.Errorf("%s: %v, want %s", test.name, o, test.reason)
			}
		}
	}
	missing := w.context("nowhere").GetContext()
	if missing.GetApprovalState() != "missing_capability_approval" || missing.GetApprovalRevision() != 0 || missing.GetManifestDigest() != "" {
		t.Errorf("a workspace that never approved: %v", missing)
	}
}

// TestCapabilityContextOfAllWorkspaces: what works where, and a revision that
// grows with every change.
func TestCapabilityContextOfAllWorkspaces(t *testing.T) {
	w := newWorld(t)
	if empty := w.context(""); empty.GetContext() != nil || len(empty.GetWorkspaces()) != 0 || empty.GetContextRevision() != 0 {
		t.Errorf("approved nowhere: %v", empty)
	}
	w.approve(beta, "ws-b")
	row := approved(authority.Key{InstallationID: alpha, WorkspaceID: "ws-b"})
	row.Granted = contract.SetOf(contract.WriteTasks, contract.ReadTasks)
	w.fence(row)
	before := w.context("").GetContextRevision()
	row = approved(authority.Key{InstallationID: alpha, WorkspaceID: "ws-a"})
	row.State = authority.StateRevoked
	w.fence(row)
	row = approved(authority.Key{InstallationID: alpha, WorkspaceID: "ws-c"})
	row.State = authority.StateExpired
	w.fence(row)

	got := w.context("")
	want := []*pluginv1.WorkspaceCapabilityContext{
		{WorkspaceId: "ws-a", ManifestDigest: digest, State: "revoked", CapabilityRevision: 1},
		{
			WorkspaceId: "ws-b", ManifestDigest: digest, State: "active", CapabilityRevision: 1,
			CapabilityIds: []string{"host.v2.read:tasks", "host.v2.write:tasks"},
		},
		{WorkspaceId: "ws-c", ManifestDigest: digest, State: "expired", CapabilityRevision: 1},
	}
	if len(got.GetWorkspaces()) != len(want) {
		t.Fatalf("workspaces %v", got.GetWorkspaces())
	}
	for i := range want {
		sameBytes(t, got.GetWorkspaces()[i], want[i])
	}
	if got.GetContextRevision() <= before {
		t.Errorf("the context revision was %d and is %d", before, got.GetContextRevision())
	}
}

// TestI6_ContextWaitsForTheWatches: before every watch has delivered, "no row"
// means nothing, and a plugin that parks on it would not be woken.
func TestI6_ContextWaitsForTheWatches(t *testing.T) {
	w := newWorld(t)
	w.view.rest = authority.Observed{}
	for _, workspace := range []string{"", "ws"} {
		_, err := w.host.GetCapabilityContext(w.as(alpha), &pluginv1.GetCapabilityContextRequest{RequestId: "r", WorkspaceId: workspace})
		if status.Code(err) != codes.Unavailable || detail(t, err).GetReason() != "DEPENDENCY_UNAVAILABLE" {
			t.Errorf("about %q: %v", workspace, err)
		}
	}
	for _, request := range []*pluginv1.GetCapabilityContextRequest{{}, {RequestId: "r", WorkspaceId: " x"}} {
		if _, err := w.host.GetCapabilityContext(w.as(alpha), request); status.Code(err) != codes.InvalidArgument || detail(t, err).GetField() == "" {
			t.Errorf("%v: %v", request, err)
		}
	}
}
