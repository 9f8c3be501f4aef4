package contract

import (
	"slices"
	"strings"
	"testing"
)

// The digests were computed outside this code. That a manifest without v1 keeps
// the one it had is what approvals of before rely on.
func TestManifest_DigestWithAndWithoutLegacy(t *testing.T) {
	const (
		without = "v1:781fc39d575a8c1f3ea05c1c060643e9526af73e03da9bee4fa41cca7af06a76"
		with    = "v1:51ea7ab37e0e4591d532447b20ec58ef6351ba1353bc1540123479aabfc68688"
	)
	manifest := func(legacy *LegacyDeclaration) Manifest {
		return Manifest{PluginID: "p", MinHostVersion: "1.2", Legacy: legacy, Capabilities: []DeclaredCapability{
			{ID: "host.v2.write:tasks"}, {ID: "host.v2.read:tasks", Required: true, Reason: "shows them"},
		}}
	}
	full := LegacyDeclaration{
		APIRead: []string{"tasks", "messages"}, APIWrite: []string{"tasks"}, Events: []string{"task.created", "task.*"}, State: true,
	}
	for name, c := range map[string]struct {
		legacy *LegacyDeclaration
		want   string
	}{
		"none":              {nil, without},
		"declaring nothing": {&LegacyDeclaration{}, without},
		"empty lists":       {&LegacyDeclaration{APIRead: []string{}, APIWrite: []string{}, Events: []string{}}, without},
		"some":              {&full, with},
		"reordered, and a resource twice": {&LegacyDeclaration{
			APIRead: []string{"messages", "tasks", "messages"}, APIWrite: []string{"tasks"}, Events: []string{"task.*", "task.created"}, State: true,
		}, with},
	} {
		if got, err := manifest(c.legacy).Digest(); err != nil || got != c.want {
			t.Errorf("%s: %s, want %s (%v)", name, got, c.want, err)
		}
	}
	if !slices.Equal(full.APIRead, []string{"tasks", "messages"}) {
		t.Error("digesting reorders the declaration")
	}
	for name, change := range map[string]func(*LegacyDeclaration){
		"a read":       func(d *LegacyDeclaration) { d.APIRead = d.APIRead[:1] },
		"a write":      func(d *LegacyDeclaration) { d.APIWrite = []string{"messages"} },
		"an event":     func(d *LegacyDeclaration) { d.Events = d.Events[:1] },
		"state":        func(d *LegacyDeclaration) { d.State = false },
		"secrets":      func(d *LegacyDeclaration) { d.Secrets = true },
		"agent_invoke": func(d *LegacyDeclaration) { d.AgentInvoke = true },
		"another list": func(d *LegacyDeclaration) { d.APIRead, d.APIWrite = []string{"messages"}, []string{"tasks", "tasks"} },
	} {
		changed := full
		change(&changed)
		if got, err := manifest(&changed).Digest(); err != nil || got == with || got == without {
			t.Errorf("%s is not covered: %s (%v)", name, got, err)
		}
	}
}

func TestLegacyDeclaration_Set(t *testing.T) {
	var all LegacyDeclaration
	for c := range legacyCount {
		if resource, ok := strings.CutPrefix(c.String(), LegacyReadPrefix); ok {
			all.APIRead = append(all.APIRead, resource)
		} else if resource, ok := strings.CutPrefix(c.String(), LegacyWritePrefix); ok {
			all.APIWrite = append(all.APIWrite, resource)
		}
	}
	all.State, all.Secrets, all.AgentInvoke = true, true, true
	if set, unknown := all.Set(); set != LegacyDeclarable || len(unknown) != 0 {
		t.Errorf("everything is %v, unknown %v", set.Names(), unknown)
	}
	odd := LegacyDeclaration{APIRead: []string{"tasks", "task_inbox", "*", ""}, APIWrite: []string{"sessions", "tasks "}}
	set, unknown := odd.Set()
	if set != LegacySetOf(LegacyReadTasks) ||
		!slices.Equal(unknown, []string{"api_read:task_inbox", "api_read:*", "api_read:", "api_write:sessions", "api_write:tasks "}) {
		t.Errorf("got %v, unknown %q", set.Names(), unknown)
	}
	if set, unknown := (*LegacyDeclaration)(nil).Set(); set != 0 || unknown != nil {
		t.Errorf("no declaration is %v, %v", set.Names(), unknown)
	}
}

func TestLegacyCapability_Names(t *testing.T) {
	for c := range legacyCount {
		if got, ok := ParseLegacyCapability(c.String()); !ok || got != c {
			t.Errorf("%s is parsed as %s, %v", c, got, ok)
		}
		if LegacyWriters.Has(c) != strings.HasPrefix(c.String(), LegacyWritePrefix) {
			t.Errorf("%s: writer is %v", c, LegacyWriters.Has(c))
		}
	}
	for _, name := range []string{"", "api_read:", "api_read:*", "API_READ:tasks", "host.v2.read:tasks", "events"} {
		if c, ok := ParseLegacyCapability(name); ok {
			t.Errorf("%q is %s", name, c)
		}
	}
	if LegacySet(1<<31).Has(31) || LegacyCapability(200).String() == "" {
		t.Error("what no build knows is in a set, or has no text")
	}
	if LegacyDeclarable.Has(LegacyAgentConversation) || LegacyDeclarable.Has(LegacyExecutorProvider) {
		t.Error("what is not served can be declared")
	}
}

// No word of v1 is one of the exact world, or the other way round (I12).
func TestI12_NoNameIsOfBothWorlds(t *testing.T) {
	for c := range legacyCount {
		if _, err := ParseCapability(c.String()); err == nil {
			t.Errorf("%s is a capability", c)
		}
	}
	for _, c := range Capabilities() {
		if _, ok := ParseLegacyCapability(c.String()); ok {
			t.Errorf("%s is a v1 declaration", c)
		}
	}
}

func TestCheckEventPattern(t *testing.T) {
	for pattern, ok := range map[string]bool{
		"task.created": true, "task.*": true, "*": true, "*.*": true, "plugin.kandev.standup-notes.done_1": true,
		"session_prompt_usage.updated.*": true, strings.Repeat("a", MaxEventPatternBytes): true,
		"": false, ".": false, "task.": false, ".task": false, "task..created": false, "task.>": false, "task.*x": false,
		"task created": false, "task.created\n": false, strings.Repeat("a", MaxEventPatternBytes+1): false,
	} {
		if fault := CheckEventPattern("f", pattern); (fault == nil) != ok {
			t.Errorf("%q: %v", pattern, fault)
		}
	}
}
