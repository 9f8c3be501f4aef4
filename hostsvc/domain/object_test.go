package domain

import "testing"

func TestObject(t *testing.T) {
	o := Object{
		"text": "x", "number": 3.0, "whole": 4, "true": true, "one": "1", "yes": "yes", "plain": map[string]any{"k": "v"},
		"own": Object{"k": "w"}, "list": []any{map[string]any{"k": "a"}, "skipped", Object{"k": "b"}, nil},
	}
	if o.Text("text") != "x" || o.Text("number") != "" || o.Text("none") != "" || Object(nil).Text("x") != "" {
		t.Error("texts")
	}
	if o.Number("number") != 3 || o.Number("whole") != 4 || o.Number("text") != 0 || o.Number("none") != 0 {
		t.Error("numbers")
	}
	if !o.Flag("true") || !o.Flag("one") || o.Flag("yes") || o.Flag("number") || o.Flag("none") {
		t.Error("flags")
	}
	if o.Object("plain").Text("k") != "v" || o.Object("own").Text("k") != "w" || o.Object("text") != nil || o.Object("none") != nil {
		t.Error("objects")
	}
	if list := o.Objects("list"); len(list) != 2 || list[0].Text("k") != "a" || list[1].Text("k") != "b" || len(o.Objects("text")) != 0 {
		t.Errorf("list: %v", list)
	}
	changed := o.With("text", "y")
	if changed.Text("text") != "y" || o.Text("text") != "x" || len(changed) != len(o) || Object(nil).With("a", 1)["a"] != 1 {
		t.Error("with")
	}
}

func TestObject_depth(t *testing.T) {
	for _, c := range []struct {
		object Object
		depth  int
	}{
		{nil, 1},
		{Object{"a": 1.0, "b": "x", "c": nil}, 1},
		{Object{"a": []any{}}, 2},
		{Object{"a": map[string]any{}, "b": []any{1.0, map[string]any{"c": Object{}}}}, 4},
	} {
		if c.object.Deeper(c.depth) || !c.object.Deeper(c.depth-1) {
			t.Errorf("%v isn't %d deep", c.object, c.depth)
		}
	}
}

func TestObject_size(t *testing.T) {
	small := Object{"a": 1.0, "b": []any{true, nil}}.Size()
	for _, larger := range []Object{
		{"a": "1234567890", "b": []any{true, nil}},
		{"a": 1.0, "b": []any{true, nil, "1234567890"}},
		{"a": 1.0, "b": []any{true, map[string]any{"1234567890": nil}}},
		{"a": Object{"1234567890": 1.0}, "b": []any{true, nil}},
	} {
		if got := larger.Size(); got < small+10 || got > small+30 {
			t.Errorf("%v: %d, which is not 10 bytes of text more than %d", larger, got, small)
		}
	}
}
