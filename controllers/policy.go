package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/controllers/kinds"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

// unknownPolicy is in force where a human policy can't be understood: its
// version is that of no row, so nothing is answered under it.
func unknownPolicy() authority.Policy { return authority.Policy{Version: "unknown"} }

// policies reads the human policy in force: the built-in one, tightened by the
// newest object of the cluster.
type policies struct {
	live    client.Reader
	builtIn authority.Policy
}

// inForce reads it live. A policy that can't be understood is an error: nobody
// knows what it takes away, so no act is admitted meanwhile.
func (p *policies) inForce(ctx context.Context) (authority.Policy, error) {
	all, err := p.list(ctx)
	if err != nil {
		return authority.Policy{}, err
	}
	policy, _, err := kinds.PolicyOf(p.builtIn, all)
	if err != nil {
		return authority.Policy{}, fmt.Errorf("understand the human policy: %w", err)
	}
	return policy, nil
}

func (p *policies) list(ctx context.Context) ([]v1alpha1.HumanPolicy, error) {
	var all v1alpha1.HumanPolicyList
	if err := p.live.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("list the human policies: %w", err)
	}
	return all.Items, nil
}

// policyReconciler tells on each human policy whether it is in force, and has
// every row computed again when another one is. All policies are one request:
// which one is in force depends on all of them.
type policyReconciler struct {
	policies *policies
	statuses *statuses
	store    Store
	leader   *leader
	passes   *requests[authority.Key]

	mu sync.Mutex
	// known is the version that the rows were last computed again for.
	known string
}

// Reconcile implements reconcile.Reconciler.
func (r *policyReconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if _, err := r.leader.wait(ctx); err != nil {
		return reconcile.Result{}, err
	}
	all, err := r.policies.list(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	policy, active, unclear := kinds.PolicyOf(r.policies.builtIn, all)
	version := policy.Version
	if unclear != nil {
		version = unknownPolicy().Version
	}
	if err := r.recompute(ctx, version); err != nil {
		return reconcile.Result{}, err
	}
	var failed []error
	for i := range all {
		err := r.report(ctx, &all[i], active)
		if errors.Is(err, fence.ErrConflict) {
			return reconcile.Result{RequeueAfter: retryLeast}, nil
		}
		failed = append(failed, err)
	}
	return reconcile.Result{}, errors.Join(append(failed, unclear)...)
}

// recompute asks for a pass of every row when the version is another one. A
// process that has just begun to lead does so anyway.
func (r *policyReconciler) recompute(ctx context.Context, version string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == version {
		return nil
	}
	rows, err := r.store.Rows(ctx)
	if err != nil {
		return fmt.Errorf("list the rows: %w", err)
	}
	for _, row := range rows {
		r.passes.addAt(together(row.Key), row.Key)
	}
	r.known = version
	return nil
}

func (r *policyReconciler) report(ctx context.Context, o *v1alpha1.HumanPolicy, active string) error {
	if o.DeletionTimestamp != nil {
		return nil
	}
	status := v1alpha1.HumanPolicyStatus{ObservedGeneration: o.Generation}
	mine, _, err := kinds.PolicyOf(r.policies.builtIn, []v1alpha1.HumanPolicy{*o})
	var c metav1.Condition
	switch {
	case err != nil:
		c = condition(v1alpha1.ConditionActive, false, v1alpha1.ReasonNotUnderstood,
			"nothing works and nothing is granted while this policy can't be understood: "+shorten(err.Error())+"; delete it, or update the Host")
	case o.Name == active:
		status.Version = mine.Version
		c = condition(v1alpha1.ConditionActive, true, v1alpha1.ReasonNewest, "this policy is in force in every workspace")
	default:
		status.Version = mine.Version
		c = condition(v1alpha1.ConditionActive, false, v1alpha1.ReasonSuperseded,
			fmt.Sprintf("%q is newer and in force; this one is again once that is deleted", active))
	}
	status.Conditions = stamp([]metav1.Condition{c}, o.Status.Conditions, o.Generation, r.statuses.now())
	return r.statuses.apply(ctx, o, "HumanPolicy", &o.Status, &status)
}

func policyStatus(o client.Object) any {
	if policy, ok := o.(*v1alpha1.HumanPolicy); ok {
		return &policy.Status
	}
	return nil
}

func addPolicies(mgr manager.Manager, r *policyReconciler) error {
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	err := builder.ControllerManagedBy(mgr).Named("policy").
		Watches(&v1alpha1.HumanPolicy{}, one, builder.WithPredicates(predicate.Or(
			r.statuses.tampered(policyStatus), identityMatters(), predicate.GenerationChangedPredicate{}))).
		WithOptions(controller.Options{EnableWarmup: new(true)}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("add the controller of human policies: %w", err)
	}
	return nil
}
