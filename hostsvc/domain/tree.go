package domain

import (
	"cmp"
	"slices"
	"strings"
)

// Owner is an installation that asks by v1 for what is its own.
type Owner struct {
	InstallationID string
	// PluginID is its package's own ID.
	PluginID string
}

// Owns is the one rule of whose a task is in v1: that of the installation which
// created it by v1. Its source must be exactly the plugin's (domain facts, section
// 11), which others can bear too: another installation of the same plugin, one of
// before, and what an import names. So the creator must be this very installation;
// like all authority, ownership ends with it and is inherited by none. What it created
// by the exact contract is not its own here, as no v1 grant reaches that (I12).
func (o Owner) Owns(t Task) bool {
	return o.InstallationID != "" && o.PluginID != "" && o.PluginID != o.InstallationID &&
		t.CreatorInstallationID == o.InstallationID && t.Source == PluginSource(o.PluginID)
}

// OwnedTree is a task that an installation created with what it created below it.
type OwnedTree struct {
	// Tasks come depth first, each parent before its children and the children
	// by creation.
	Tasks []Task
	// Adopted are the children of Tasks that are somebody else's, with nothing
	// of what is below them.
	Adopted []Task
}

// OwnedTreeOf builds the tree of root for its owner. below holds all tasks below
// root, at any depth, archived ones too; more does no harm. An error is a
// *RuleError: the root isn't the owner's.
func OwnedTreeOf(root Task, below []Task, owner Owner) (OwnedTree, error) {
	if !owner.Owns(root) {
		return OwnedTree{}, &RuleError{FaultDenied, "capability 'plugin_owned_tasks' not declared"}
	}
	children := map[string][]Task{}
	for _, t := range below {
		if t.ParentID != "" {
			children[t.ParentID] = append(children[t.ParentID], t)
		}
	}
	var tree OwnedTree
	seen := map[string]bool{}
	for stack := []Task{root}; len(stack) > 0; {
		t := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[t.ID] {
			continue
		}
		seen[t.ID] = true
		if !owner.Owns(t) {
			tree.Adopted = append(tree.Adopted, t)
			continue
		}
		tree.Tasks = append(tree.Tasks, t)
		below := children[t.ID]
		slices.SortFunc(below, func(a, b Task) int {
			return -cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
		})
		stack = append(stack, below...)
	}
	return tree, nil
}

// Deletion returns the tasks in the order of their deletion, leaves first. An
// error is a *RuleError: somebody else's children would lose their parent.
func (t OwnedTree) Deletion() ([]Task, error) {
	if len(t.Adopted) > 0 {
		return nil, &RuleError{FaultPrecondition, "plugin-owned task tree contains adopted or user-owned children; detach them before deleting"}
	}
	tasks := slices.Clone(t.Tasks)
	slices.Reverse(tasks)
	return tasks, nil
}
