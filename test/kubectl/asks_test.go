package kubectl_test

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/test/world"
)

// user-asks 19: a grant for longer than the human policy leaves it ends when the
// policy says, and whoever looks is told that end, not the one that was asked for.
func TestUserAsk19_TheEndThatAPolicyLeavesIsTheOneThatIsShown(t *testing.T) {
	installed(t, "capped", readTasks)
	hour := int64(3600)
	policy := &v1alpha1.HumanPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "an-hour"},
		Spec:       v1alpha1.HumanPolicySpec{Rules: []v1alpha1.PolicyRule{{Class: "ReadProjections", MaxLifetimeSeconds: &hour}}},
	}
	if err := everything.API.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := everything.API.Delete(context.WithoutCancel(t.Context()), policy); err != nil {
			t.Error(err)
		}
	})
	if err := world.Await(t.Context(), "the policy is in force", func() (bool, string, error) {
		err := everything.API.Get(t.Context(), client.ObjectKeyFromObject(policy), policy)
		active := world.Condition(policy.Status.Conditions, v1alpha1.ConditionActive, policy.Generation)
		return active.Status == metav1.ConditionTrue, world.Describe(policy.Status.Conditions), err
	}); err != nil {
		t.Fatal(err)
	}
	must(t, 0, world.Ada, "approve", "capped", "-n", "team-a", "--all-declared", "--expires-in", "30d", "--yes", "--reason", "x")
	o := settled(t, "team-a", "capped", "the grant", works(readTasks))
	end := o.Status.ExpiresAt
	if end == nil || o.Status.IssuedAt == nil || end.Sub(o.Status.IssuedAt.Time).Abs() > time.Hour+time.Second || !end.Time.Before(o.Spec.ExpiresAt.Time) {
		t.Fatalf("issued at %v, it ends at %v; asked for was %v", o.Status.IssuedAt, end, o.Spec.ExpiresAt)
	}
	review := must(t, 0, world.Ada, "review", "capped", "-n", "team-a").Stdout
	const form = "2006-01-02 15:04:05 UTC"
	if !strings.Contains(review, end.UTC().Format(form)) || strings.Contains(review, o.Spec.ExpiresAt.UTC().Format(form)) {
		t.Errorf("it ends at %v; review prints\n%s", end, review)
	}
}
