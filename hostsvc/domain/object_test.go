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
