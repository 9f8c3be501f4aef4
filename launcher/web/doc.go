// Package web serves a plugin's webhooks and actions over HTTP, as plugins'
// authors know them, and tells the kubelet how the launcher is.
//
// Who may call what:
//
//   - POST and GET /webhooks/{key}, for a webhook with public access: anybody
//     who reaches the port. Who that is, the pod's NetworkPolicy says.
//   - The same with authenticated access, and POST /actions/{key}: the platform
//     alone. It proves itself by a bearer that it shares with this pod
//     (a Secret in a file, read again at each use) and vouches for what it says
//     about the user: an action's verified context. Without that file nobody is
//     the platform, and these answer 401.
//
// Why a bearer and not a NetworkPolicy: a policy says which pods reach the port,
// and an ingress that carries webhooks reaches it too. Why a shared one and not
// a TokenReview: a plugin's pod may speak to the Host and to nobody else. The
// plugin can read the file. It can't misuse it: the bearer opens its own door
// only, as long as each installation has another one.
//
// An action's request is the shipped body {workspaceId, taskId, sessionId,
// repositoryId, body}; what only the platform knows comes in the headers
// X-Kandev-Actor-Id (required) and X-Kandev-Head-Branch. That the task is in the
// workspace, and the user may act there, the platform has checked: the launcher
// can't. It checks the shape that the action's scope demands.
//
// A query of any bytes reaches the plugin, those that are no UTF-8 as %XX. HEAD is
// answered with 405: what is for GET isn't for it.
//
// Errors are {"error": "<text>"} with the shipped texts. What is different:
// statuses 100 to 199 are no final answers over HTTP and count as invalid;
// X-Kandev-Auth-Login is passed on to the platform alone, which makes the login.
//
// Whatever a caller or the plugin does, a request ends and its place is free
// again. Each kind, the webhooks of strangers, those of the platform and
// actions, has MaxAtOnce places; one more request is refused with 503. A body
// that takes longer than TransferTime to come is refused with 408. A plugin that
// doesn't answer in time, ActionTimeout or the server's WebhookTimeout, is
// answered for with 504. An answer with more than 1 MiB of an action's body,
// 16 MiB of a webhook's, or 64 KiB of headers is a 502; its reader has
// TransferTime, then the connection is cut.
//
// The package imports the generated protocol, launcher/pack for the manifest,
// gRPC, a rate limiter and the standard library.
package web
