package main

import (
	"context"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

// want is one right that somebody may hold in a namespace.
type want struct {
	verbs    []string
	group    string
	resource string
	// name is of the one object that matters, "" where any does.
	name string
	// does says to people what the holder can do.
	does string
}

// becoming are the rights to be a plugin whose pods run under an account.
func becoming(account string) []want {
	return []want{
		{[]string{"create"}, "", "pods", "", "create pods"},
		{[]string{"update", "patch"}, "", "pods", "", "change pods"},
		{[]string{"update", "patch"}, "", "pods/ephemeralcontainers", "", "add containers to pods"},
		{[]string{"create", "get"}, "", "pods/exec", "", "exec into pods"},
		{[]string{"create", "get"}, "", "pods/attach", "", "attach to pods"},
		{[]string{"create"}, "", "serviceaccounts/token", account, "mint tokens"},
		{[]string{"create", "update", "patch"}, "apps", "deployments", "", "create or change workloads"},
		{[]string{"create", "update", "patch"}, "apps", "statefulsets", "", "create or change workloads"},
		{[]string{"create", "update", "patch"}, "apps", "daemonsets", "", "create or change workloads"},
		{[]string{"create", "update", "patch"}, "apps", "replicasets", "", "create or change workloads"},
		{[]string{"create", "update", "patch"}, "batch", "jobs", "", "create or change workloads"},
		{[]string{"create", "update", "patch"}, "batch", "cronjobs", "", "create or change workloads"},
		{[]string{"create", "update", "patch"}, "", "replicationcontrollers", "", "create or change workloads"},
	}
}

// approving are the rights that let somebody grant in a workspace, or be taken for
// somebody who may.
func approving() []want {
	return []want{
		{[]string{v1alpha1.VerbApprove}, v1alpha1.GroupVersion.Group, v1alpha1.ResourceCapabilities, "", "approve"},
		{[]string{"impersonate"}, "", "users", "", "impersonate others"},
		{[]string{"impersonate"}, "", "groups", "", "impersonate others"},
		{[]string{"bind", "escalate"}, rbacv1.GroupName, "clusterroles", "", "give rights to themselves"},
		{[]string{"bind", "escalate"}, rbacv1.GroupName, "roles", "", "give rights to themselves"},
		{[]string{"update", "patch", "delete"}, "admissionregistration.k8s.io", "validatingadmissionpolicies", "", "change the admission policies"},
		{[]string{"update", "patch", "delete"}, "admissionregistration.k8s.io", "validatingadmissionpolicybindings", "", "change the admission policies"},
	}
}

// held is a rule with who holds it in one namespace.
type held struct {
	subject string
	rules   []rbacv1.PolicyRule
}

// rights lists who holds which rules in a namespace, by RBAC. Other authorizers,
// and the members of groups, can't be seen from inside a cluster.
func (c *cluster) rights(ctx context.Context, namespace string) ([]held, error) {
	var clusterRoles rbacv1.ClusterRoleList
	var clusterBindings rbacv1.ClusterRoleBindingList
	var roles rbacv1.RoleList
	var bindings rbacv1.RoleBindingList
	for _, list := range []client.ObjectList{&clusterRoles, &clusterBindings} {
		if err := c.api.List(ctx, list); err != nil {
			return nil, reading{doing: "list the cluster's roles and their bindings", err: err}
		}
	}
	for _, list := range []client.ObjectList{&roles, &bindings} {
		if err := c.api.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, reading{doing: "list the roles of " + namespace + " and their bindings", err: err}
		}
	}
	rules := map[string][]rbacv1.PolicyRule{}
	for _, r := range clusterRoles.Items {
		rules["ClusterRole/"+r.Name] = r.Rules
	}
	for _, r := range roles.Items {
		rules["Role/"+r.Name] = r.Rules
	}
	var all []held
	add := func(ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		for _, s := range subjects {
			all = append(all, held{subjectName(s, namespace), rules[ref.Kind+"/"+ref.Name]})
		}
	}
	for _, b := range clusterBindings.Items {
		add(b.RoleRef, b.Subjects)
	}
	for _, b := range bindings.Items {
		add(b.RoleRef, b.Subjects)
	}
	return all, nil
}

func subjectName(s rbacv1.Subject, namespace string) string {
	if s.Kind != rbacv1.ServiceAccountKind {
		return s.Kind + " " + s.Name
	}
	if s.Namespace != "" {
		namespace = s.Namespace
	}
	return "ServiceAccount " + namespace + "/" + s.Name
}

// holders says who can do what, in the order of the names. Kubernetes' own
// components are counted, not named: every cluster has them.
func holders(all []held, wants []want) (people []holder, own int) {
	does := map[string]map[string]bool{}
	for _, h := range all {
		for _, w := range wants {
			for _, rule := range h.rules {
				if w.givenBy(rule) {
					if does[h.subject] == nil {
						does[h.subject] = map[string]bool{}
					}
					does[h.subject][w.does] = true
				}
			}
		}
	}
	for _, subject := range slices.Sorted(maps.Keys(does)) {
		if isComponent(subject) {
			own++
			continue
		}
		people = append(people, holder{subject, slices.Sorted(maps.Keys(does[subject]))})
	}
	return people, own
}

// holder is somebody with what they can do.
type holder struct {
	subject string
	does    []string
}

// isComponent tells whether a subject is a part of Kubernetes itself.
func isComponent(subject string) bool {
	switch subject {
	case "Group system:masters", "Group system:authenticated", "Group system:unauthenticated", "Group system:serviceaccounts", "User system:admin":
		return false
	}
	kind, name, _ := strings.Cut(subject, " ")
	if kind == "ServiceAccount" {
		return strings.HasPrefix(name, "kube-system/")
	}
	return strings.HasPrefix(name, "system:") && !strings.HasPrefix(name, "system:serviceaccount")
}

func (w want) givenBy(rule rbacv1.PolicyRule) bool {
	verb := slices.ContainsFunc(rule.Verbs, func(v string) bool { return v == rbacv1.VerbAll || slices.Contains(w.verbs, v) })
	group := slices.ContainsFunc(rule.APIGroups, func(g string) bool { return g == rbacv1.APIGroupAll || g == w.group })
	_, sub, hasSub := strings.Cut(w.resource, "/")
	resource := slices.ContainsFunc(rule.Resources, func(r string) bool {
		return r == rbacv1.ResourceAll || r == w.resource || hasSub && r == "*/"+sub
	})
	named := len(rule.ResourceNames) == 0 || w.name == "" || slices.Contains(rule.ResourceNames, w.name)
	return verb && group && resource && named
}
