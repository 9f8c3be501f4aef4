package journal

import (
	"encoding/json"
	"strconv"
	"time"
)

// AppendJSON appends the receipt as json.Marshal encodes it. Receipts are
// written on the path of every read, where reflection costs more than the
// read's own decision.
func (r *Receipt) AppendJSON(to []byte) []byte {
	to = append(to, `{"audit_id":`...)
	to = appendString(to, r.AuditID)
	to = append(to, `,"installation_id":`...)
	to = appendString(to, r.InstallationID)
	to = append(to, `,"workspace_id":`...)
	to = appendString(to, r.WorkspaceID)
	to = append(to, `,"revision":`...)
	to = strconv.AppendUint(to, r.Revision, 10)
	to = append(to, `,"method":`...)
	to = appendString(to, r.Method)
	to = appendMember(to, `,"capability":`, r.Capability)
	to = appendMember(to, `,"request_id":`, r.RequestID)
	to = appendMember(to, `,"idempotency_key":`, r.IdempotencyKey)
	to = appendMember(to, `,"request_digest":`, r.RequestDigest)
	to = append(to, `,"result":`...)
	to = appendString(to, string(r.Result))
	to = appendMember(to, `,"reason":`, string(r.Reason))
	to = appendMember(to, `,"snapshot":`, r.Snapshot)
	if p := r.Provenance; p != nil {
		to = append(to, `,"provenance":{"conversation_id":`...)
		to = appendString(to, p.ConversationID)
		to = append(to, `,"session_id":`...)
		to = appendString(to, p.SessionID)
		to = append(to, `,"generation_token_digest":`...)
		to = appendString(to, p.GenerationTokenDigest)
		to = append(to, '}')
	}
	to = appendMember(to, `,"implicit":`, r.Implicit)
	to = append(to, `,"at":"`...)
	to = r.At.AppendFormat(to, time.RFC3339Nano)
	return append(to, '"', '}')
}

// appendMember leaves an empty member out.
func appendMember(to []byte, name, value string) []byte {
	if value == "" {
		return to
	}
	return appendString(append(to, name...), value)
}

// appendString appends a JSON string. What needs any escape is rare and left
// to the library.
func appendString(to []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			escaped, err := json.Marshal(text)
			if err != nil { // a string always encodes
				panic(err)
			}
			return append(to, escaped...)
		}
	}
	to = append(to, '"')
	to = append(to, text...)
	return append(to, '"')
}
