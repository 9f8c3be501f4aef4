package domain

import (
	"strings"
	"testing"
	"time"
)

func TestWireTree(t *testing.T) {
	owner := Owner{InstallationID: "i-1", PluginID: "p"}
	mine := PluginSource("p")
	task := func(id, parent, source string, n int) Task {
		return Task{ID: id, ParentID: parent, Source: source, CreatorInstallationID: "i-1", CreatedAt: created.Add(time.Duration(n))}
	}
	order := func(tasks []Task) string {
		var ids []string
		for _, task := range tasks {
			ids = append(ids, task.ID)
		}
		return strings.Join(ids, " ")
	}
	root := task("root", "", mine, 0)
	below := []Task{
		task("c", "root", mine, 3), task("b2", "b", mine, 5), task("b", "root", mine, 1), task("a", "root", mine, 3),
		task("b1", "b", mine, 4), task("far", "elsewhere", mine, 1), task("loop", "loop", mine, 1),
	}
	tree, err := OwnedTreeOf(root, below, owner)
	if err != nil || order(tree.Tasks) != "root b b1 b2 a c" || len(tree.Adopted) != 0 {
		t.Errorf("preview: %s, %v, %v", order(tree.Tasks), tree.Adopted, err)
	}
	if deletion, err := tree.Deletion(); err != nil || order(deletion) != "c a b2 b1 b root" || order(tree.Tasks) != "root b b1 b2 a c" {
		t.Errorf("deletion: %s, %v", order(deletion), err)
	}
	for name, source := range map[string]string{"a human's": "", "another plugin's": PluginSource("q"), "almost": mine + " "} {
		tree, err := OwnedTreeOf(root, append(below, task("alien", "b", source, 2), task("under", "alien", mine, 6)), owner)
		if err != nil || order(tree.Tasks) != "root b b1 b2 a c" || order(tree.Adopted) != "alien" {
			t.Errorf("%s: %s, %s, %v", name, order(tree.Tasks), order(tree.Adopted), err)
		}
		_, err = tree.Deletion()
		checkRule(t, name, err, FaultPrecondition, "plugin-owned task tree contains adopted or user-owned children; detach them before deleting")
		_, err = OwnedTreeOf(task("root", "", source, 0), nil, owner)
		checkRule(t, name, err, FaultDenied, "capability 'plugin_owned_tasks' not declared")
	}
	// A cycle that bad data holds ends the walk.
	cycle := task("root", "x", mine, 0)
	if tree, err := OwnedTreeOf(cycle, []Task{task("x", "root", mine, 1), cycle}, owner); err != nil || order(tree.Tasks) != "root x" {
		t.Errorf("cycle: %s, %v", order(tree.Tasks), err)
	}
}

// Bearing a plugin's source makes nothing its own, and neither does having made it by
// the exact contract (I12).
func TestI12_Owner(t *testing.T) {
	const id, other = "3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77", "9b1de3a0-0c39-4a8e-9d0f-6f1f6b8f1b11"
	for _, c := range []struct {
		name            string
		owner           Owner
		source, creator string
		owns            bool
	}{
		{"made by v1", Owner{id, "p"}, "plugin:p", id, true},
		{"made by another installation of the plugin, or one of before", Owner{id, "p"}, "plugin:p", other, false},
		{"made by nobody knows who", Owner{id, "p"}, "plugin:p", "", false},
		{"made by another plugin", Owner{id, "p"}, "plugin:q", id, false},
		{"a longer source", Owner{id, "p"}, "plugin:p.q", id, false},
		{"a human's", Owner{id, "p"}, "", "", false},
		{"made by the exact contract", Owner{id, "p"}, PluginSource(id), id, false},
		{"made by it, for a plugin that is called like that installation", Owner{other, id}, PluginSource(id), id, false},
		{"made by it, for a plugin that is called like its own installation", Owner{id, id}, PluginSource(id), id, false},
		{"an owner without an installation", Owner{"", "p"}, "plugin:p", "", false},
		{"an owner without a plugin", Owner{id, ""}, "plugin:", id, false},
	} {
		task := Task{ID: "t", Source: c.source, CreatorInstallationID: c.creator}
		if got := c.owner.Owns(task); got != c.owns {
			t.Errorf("%s: it owns it: %t", c.name, got)
		}
		if _, err := OwnedTreeOf(task, nil, c.owner); (err == nil) != c.owns {
			t.Errorf("%s: the tree of it: %v", c.name, err)
		}
	}
}

func TestWireCreateTask_metadata(t *testing.T) {
	stored, err := PluginMetadata("plugin:i", Object{"k": "v"})
	if err != nil || stored.Object("plugin:i").Text("k") != "v" || len(stored) != 1 {
		t.Errorf("%v, %v", stored, err)
	}
	if stored, err := PluginMetadata("plugin:i", nil); err != nil || stored != nil {
		t.Errorf("none: %v, %v", stored, err)
	}
	_, err = PluginMetadata("plugin:i", Object{"source": nil})
	checkRule(t, "reserved", err, FaultInvalid, "metadata.source is reserved")
	task := Task{Source: "plugin:i", Metadata: stored}
	if got := task.PublicMetadata(); got.Text("source") != "plugin:i" || got.Object("plugin:i").Text("k") != "v" || len(stored) != 1 {
		t.Errorf("shown: %v", got)
	}
	if got := (Task{}).PublicMetadata(); got != nil {
		t.Errorf("without a source: %v", got)
	}
}
