package domain

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestI14_Redact(t *testing.T) {
	const hidden = "a <kandev-system>h</kandev-system> b"
	payload := Object{
		"content": hidden, "raw_content": "h", "indented": "  stays\n", "n": 1.5, "ok": true, "null": nil, "seq": int64(7),
		"metadata": map[string]any{
			"has_hidden_prompts": true, "prompt_dispatch_pending": true, "prompt_dispatch_clarification_message_ids": []any{"h"},
			"runtime_config_snapshot": Object{"raw_content": "h", "kept": hidden},
		},
		"list":  []any{hidden, map[string]any{"raw_content": "h", "x": []any{hidden}}},
		"texts": []string{hidden}, "when": created,
		"struct": struct {
			Raw  string `json:"raw_content"`
			Text string `json:"text"`
		}{"h", hidden},
		"no JSON":                     func() {},
		"k<kandev-system>h":           "x",
		"prompt_dispatch":             "not private",
		"raw_contents":                "not private",
		"prompt_dispatch_anything":    map[string]any{"h": 1.0},
		"nested_has_hidden_prompts_x": "not private",
	}
	before := maps.Clone(payload)
	want := Object{
		"content": "a b", "indented": "  stays\n", "n": 1.5, "ok": true, "null": nil, "seq": int64(7),
		"metadata": map[string]any{"runtime_config_snapshot": map[string]any{"kept": "a b"}},
		"list":     []any{"a b", map[string]any{"x": []any{"a b"}}}, "texts": []any{"a b"}, "when": "2030-01-02T03:04:05Z",
		"struct": map[string]any{"text": "a b"}, "no JSON": nil,
		"prompt_dispatch": "not private", "raw_contents": "not private", "nested_has_hidden_prompts_x": "not private",
	}
	got := Redact(payload)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
	delete(payload, "no JSON")
	delete(before, "no JSON")
	if !reflect.DeepEqual(payload, before) {
		t.Error("the payload itself is changed")
	}
}

func TestI14_Redact_properties(t *testing.T) {
	text := rapid.SampledFrom([]string{"x", "raw_content", "has_hidden_prompts", "prompt_dispatch_x", "a<kandev-system>§</kandev-system>", "<kandev-system>§", " y "})
	var draw func(t *rapid.T, depth int) any
	draw = func(t *rapid.T, depth int) any {
		kind := rapid.IntRange(0, 3).Draw(t, "kind")
		switch {
		case depth == 0 || kind < 2:
			return text.Draw(t, "text")
		case kind == 2:
			return []any{draw(t, depth-1), draw(t, depth-1)}
		default:
			return map[string]any{text.Draw(t, "key"): draw(t, depth-1), text.Draw(t, "key"): draw(t, depth-1)}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		got := Redact(Object{"v": draw(t, 4), text.Draw(t, "key"): draw(t, 3)})
		if again := Redact(got); !reflect.DeepEqual(again, got) {
			t.Fatalf("%v isn't stable: %v", got, again)
		}
		shown, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var plain map[string]any
		if err := json.Unmarshal(shown, &plain); err != nil {
			t.Fatal(err)
		}
		checkShown(t, plain)
	})
}

func checkShown(t *rapid.T, value any) {
	switch v := value.(type) {
	case string:
		if v != StripMarkup(v) || strings.ContainsRune(v, '§') {
			t.Fatalf("%q is shown", v)
		}
	case []any:
		for _, item := range v {
			checkShown(t, item)
		}
	case map[string]any:
		for key, item := range v {
			if key == "raw_content" || key == "has_hidden_prompts" || key == "prompt_dispatch_x" {
				t.Fatalf("member %q is shown", key)
			}
			checkShown(t, key)
			checkShown(t, item)
		}
	}
}
