package domain

import (
	"strings"
	"testing"
	"time"
)

func TestWireTree(t *testing.T) {
	mine := PluginSource("i")
	task := func(id, parent, source string, n int) Task {
		return Task{ID: id, ParentID: parent, Source: source, CreatedAt: created.Add(time.Duration(n))}
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
	tree, err := OwnedTreeOf(root, below, mine)
	if err != nil || order(tree.Tasks) != "root b b1 b2 a c" || len(tree.Adopted) != 0 {
		t.Errorf("preview: %s, %v, %v", order(tree.Tasks), tree.Adopted, err)
	}
	if deletion, err := tree.Deletion(); err != nil || order(deletion) != "c a b2 b1 b root" || order(tree.Tasks) != "root b b1 b2 a c" {
		t.Errorf("deletion: %s, %v", order(deletion), err)
	}
	for name, source := range map[string]string{"a human's": "", "another plugin's": PluginSource("j"), "almost": mine + " "} {
		tree, err := OwnedTreeOf(root, append(below, task("alien", "b", source, 2), task("under", "alien", mine, 6)), mine)
		if err != nil || order(tree.Tasks) != "root b b1 b2 a c" || order(tree.Adopted) != "alien" {
			t.Errorf("%s: %s, %s, %v", name, order(tree.Tasks), order(tree.Adopted), err)
		}
		_, err = tree.Deletion()
		checkRule(t, name, err, FaultPrecondition, "plugin-owned task tree contains adopted or user-owned children; detach them before deleting")
		_, err = OwnedTreeOf(task("root", "", source, 0), nil, mine)
		checkRule(t, name, err, FaultDenied, "capability 'plugin_owned_tasks' not declared")
	}
	_, err = OwnedTreeOf(Task{ID: "root"}, nil, "")
	checkRule(t, "nobody's", err, FaultDenied, "capability 'plugin_owned_tasks' not declared")
	// A cycle that bad data holds ends the walk.
	cycle := task("root", "x", mine, 0)
	if tree, err := OwnedTreeOf(cycle, []Task{task("x", "root", mine, 1), cycle}, mine); err != nil || order(tree.Tasks) != "root x" {
		t.Errorf("cycle: %s, %v", order(tree.Tasks), err)
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
