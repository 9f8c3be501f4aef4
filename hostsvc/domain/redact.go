package domain

import (
	"encoding/json"
	"strings"
)

// Redact returns an event's payload as a plugin may see it, at any depth: without
// the members that are the Host's own (those of a prompt's dispatch) or that
// carry hidden text, and with system markup taken out of every text (I14). The
// payload itself stays as it is. Redacting twice is redacting once.
func Redact(payload Object) Object {
	redacted := make(Object, len(payload))
	for key, value := range payload {
		if !private(key) {
			redacted[key] = redactValue(value)
		}
	}
	return redacted
}

func private(key string) bool {
	return key == "raw_content" || key == "has_hidden_prompts" || strings.HasPrefix(key, "prompt_dispatch_") ||
		StripMarkup(key) != key
}

func redactValue(value any) any {
	switch v := value.(type) {
	case nil, bool, float64, int, int32, int64, uint64:
		return v
	case string:
		return StripMarkup(v)
	case Object:
		return map[string]any(Redact(v))
	case map[string]any:
		return map[string]any(Redact(v))
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = redactValue(v[i])
		}
		return list
	default:
		// What is no plain JSON yet is looked at as the JSON that it becomes.
		// What can't become any is left out.
		text, err := json.Marshal(v)
		if err != nil {
			return nil
		}
		var plain any
		if err := json.Unmarshal(text, &plain); err != nil {
			return nil
		}
		return redactValue(plain)
	}
}
