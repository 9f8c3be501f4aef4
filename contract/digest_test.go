package contract

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestCanonicalDigest(t *testing.T) {
	a, err := CanonicalDigest(map[string]any{"b": 1, "a": []string{"x", "y"}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := CanonicalDigest(struct {
		A []string `json:"a"`
		B int      `json:"b"`
	}{[]string{"x", "y"}, 1})
	if err != nil || a != b {
		t.Errorf("the order of members counts: %s, %s, %v", a, b, err)
	}
	c, err := CanonicalDigest(map[string]any{"b": 1, "a": []string{"y", "x"}})
	if err != nil || a == c {
		t.Error("the order of elements does not count")
	}
	// SHA-256 of {"a":1}, computed outside this code.
	const want = "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"
	if got, err := CanonicalDigest(map[string]int{"a": 1}); err != nil || got.String() != want {
		t.Errorf("got %s, %v", got, err)
	}
	if _, err := CanonicalDigest(func() {}); err == nil {
		t.Error("a function has a digest")
	}
}

func TestCanonicalDigestOfText(t *testing.T) {
	for _, text := range []string{
		"", "plain", "01990a4e-7b6c-7c3e-8a2f-000000000001", strings.Repeat("long", 100), "<&>", `a","b":"c`, `back\slash`, "new\nline",
		"\x7f", "ü", "\u2028", "bad \xff UTF-8", "null\x00",
	} {
		for _, name := range []string{"task_id", `odd"name`} {
			want, err := CanonicalDigest(map[string]string{name: text})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := CanonicalDigestOfText(name, text); err != nil || got != want {
				t.Errorf("CanonicalDigestOfText(%q, %q) = %s, %v, want %s", name, text, got, err, want)
			}
		}
	}
}

func TestParseManifestDigest(t *testing.T) {
	good := ManifestDigestPrefix + strings.Repeat("0f", 32)
	if got, fault := ParseManifestDigest("d", good); fault != nil || got != good {
		t.Errorf("%q, %v", got, fault)
	}
	for digest, reason := range map[string]Reason{
		"":                                     ReasonMissingExactField,
		good[:len(good)-1]:                     ReasonMalformedPrecondition,
		good + "0":                             ReasonMalformedPrecondition,
		strings.Repeat("0f", 32):               ReasonMalformedPrecondition,
		"v2:" + good[3:]:                       ReasonMalformedPrecondition,
		"V1:" + good[3:]:                       ReasonMalformedPrecondition,
		"v1:" + strings.ToUpper(good[3:]):      ReasonMalformedPrecondition,
		"v1:" + strings.Repeat("0g", 32):       ReasonMalformedPrecondition,
		" " + good[:len(good)-1]:               ReasonMalformedPrecondition,
		"v1:" + strings.Repeat("0f", 31) + "ä": ReasonMalformedPrecondition,
	} {
		if got, fault := ParseManifestDigest("d", digest); fault == nil || fault.Reason != reason || got != "" || fault.Field != "d" {
			t.Errorf("%q: %q, %+v", digest, got, fault)
		}
	}
}

func TestManifest_Digest(t *testing.T) {
	base := Manifest{PluginID: "p", MinHostVersion: "1.2", Capabilities: []DeclaredCapability{
		{ID: "host.v2.read:tasks", Required: true, Reason: "shows them"}, {ID: "host.v2.write:tasks"},
	}}
	digest := func(m Manifest) string {
		t.Helper()
		d, err := m.Digest()
		if err != nil {
			t.Fatal(err)
		}
		if _, fault := ParseManifestDigest("d", d); fault != nil {
			t.Errorf("%s: %v", d, fault)
		}
		return d
	}
	want := digest(base)
	for name, change := range map[string]func(*Manifest){
		"plugin":     func(m *Manifest) { m.PluginID = "q" },
		"host":       func(m *Manifest) { m.MinHostVersion = "1.3" },
		"no host":    func(m *Manifest) { m.MinHostVersion = "" },
		"id":         func(m *Manifest) { m.Capabilities[0].ID = "host.v2.read:sessions" },
		"required":   func(m *Manifest) { m.Capabilities[0].Required = false },
		"reason":     func(m *Manifest) { m.Capabilities[0].Reason = "" },
		"fewer":      func(m *Manifest) { m.Capabilities = m.Capabilities[:1] },
		"none":       func(m *Manifest) { m.Capabilities = nil },
		"repetition": func(m *Manifest) { m.Capabilities = append(m.Capabilities, m.Capabilities[0]) },
	} {
		changed := base
		changed.Capabilities = slices.Clone(base.Capabilities)
		change(&changed)
		if digest(changed) == want {
			t.Errorf("%s is not covered", name)
		}
	}
	none, empty := base, base
	none.Capabilities, empty.Capabilities = nil, []DeclaredCapability{}
	if digest(none) != digest(empty) {
		t.Error("nil and empty differ")
	}
	if base.Capabilities[0].ID != "host.v2.read:tasks" {
		t.Error("digesting reorders the manifest")
	}
}

func FuzzParseManifestDigest(f *testing.F) {
	f.Add("")
	f.Add(ManifestDigestPrefix + strings.Repeat("0f", 32))
	f.Add(ManifestDigestPrefix + strings.Repeat("0F", 32))
	f.Fuzz(func(t *testing.T, digest string) {
		got, fault := ParseManifestDigest("d", digest)
		if (fault == nil) != (got == digest && digest != "") {
			t.Fatalf("%q: %q, %v", digest, got, fault)
		}
		hex, prefixed := strings.CutPrefix(digest, "v1:")
		canonical := prefixed && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
		if canonical != (fault == nil) {
			t.Errorf("%q: canonical %v, fault %v", digest, canonical, fault)
		}
	})
}

// The order in which a package lists its capabilities is not part of what a
// human reviews.
func FuzzManifestDigest(f *testing.F) {
	f.Add("p", "host.v2.read:tasks\nhost.v2.write:tasks\nhost.v2.read:tasks", "1", uint64(1))
	f.Add("", "", "", uint64(0))
	f.Fuzz(func(t *testing.T, plugin, ids, host string, seed uint64) {
		m := Manifest{PluginID: plugin, MinHostVersion: host}
		random := rand.New(rand.NewPCG(seed, 0))
		for _, id := range strings.Split(ids, "\n") {
			m.Capabilities = append(m.Capabilities, DeclaredCapability{
				ID: id, Required: random.IntN(2) == 0, Reason: plugin[:random.IntN(len(plugin)+1)],
			})
		}
		want, err := m.Digest()
		if err != nil {
			t.Fatal(err)
		}
		random.Shuffle(len(m.Capabilities), func(i, j int) {
			m.Capabilities[i], m.Capabilities[j] = m.Capabilities[j], m.Capabilities[i]
		})
		if got, err := m.Digest(); err != nil || got != want {
			t.Errorf("reordered: %s, was %s, %v", got, want, err)
		}
	})
}
