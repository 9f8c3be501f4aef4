package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/controllers/kinds"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

// Grants of compatibility depend on the proof of the admission policies as acts do:
// what came without one never counts (authority.LegacyHistory). They have no row in
// the store; which of them somebody has checked stands beside the proof itself.

// record is what the store keeps of the proof, in one text.
type record struct {
	// of is what proven and lapsed return.
	of string
	// grants are the checked grants of compatibility, by ID with the generation.
	grants map[string]int64
}

// recordedGrant begins the line of a grant.
const recordedGrant = "compatibility "

func (r record) text() string {
	var b strings.Builder
	b.WriteString(r.of)
	for _, id := range slices.Sorted(maps.Keys(r.grants)) {
		fmt.Fprintf(&b, "%s%s %d\n", recordedGrant, id, r.grants[id])
	}
	return b.String()
}

// parseRecord reads a text back. A line that it doesn't understand makes the proof
// another one, which the next attempt replaces.
func parseRecord(text string) record {
	r := record{grants: map[string]int64{}}
	var of strings.Builder
	for line := range strings.Lines(text) {
		if grant, ok := strings.CutPrefix(line, recordedGrant); ok {
			id, number, _ := strings.Cut(strings.TrimSuffix(grant, "\n"), " ")
			if generation, err := strconv.ParseInt(number, 10, 64); err == nil && id != "" {
				r.grants[id] = generation
				continue
			}
		}
		of.WriteString(line)
	}
	r.of = of.String()
	return r
}

// drop forgets the grants of an object that isn't among those that it has now. One that
// is written again is another one: nobody has looked who wrote it.
func (r record) drop(object string, has []authority.LegacyGrant) {
	maps.DeleteFunc(r.grants, func(id string, _ int64) bool {
		return kinds.GrantObject(id) == object && !slices.ContainsFunc(has, func(g authority.LegacyGrant) bool { return g.ID == id })
	})
}

// load reads what the store keeps of the proof, and takes over what it says of
// grants.
func (p *proof) load(ctx context.Context) (record, map[string]int64, error) {
	// What was read earlier isn't taken over later.
	p.loading.Lock()
	defer p.loading.Unlock()
	text, distrusted, err := p.store.Proof(ctx)
	if err != nil {
		return record{}, nil, fmt.Errorf("read the proof of the admission policies: %w", err)
	}
	r := parseRecord(text)
	p.mu.Lock()
	for uid, upTo := range distrusted {
		p.distrusted[uid] = max(p.distrusted[uid], upTo)
	}
	p.grants.Learn(maps.Clone(r.grants))
	p.mu.Unlock()
	p.granted()
	p.loaded.Store(true)
	return r, distrusted, nil
}

// observe records a version of an installation that the watch delivered.
func (p *proof) observe(object string, generation int64, grants []authority.LegacyGrant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grants.Observe(object, generation, grants)
}

// forget drops an installation that the watch says is gone.
func (p *proof) forget(object string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grants.Forget(object)
}

// stands tells how a grant stands in a version of its installation.
func (p *proof) stands(g authority.LegacyGrant, generation int64) authority.GrantStanding {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, distrusted := p.distrusted[g.ID]
	return p.grants.Standing(g, generation, distrusted)
}

// recordGrants adds to unchecked the grants that came while nobody had a proof, and
// drops from the record those of installations that are gone. p.recording is held.
func (p *proof) recordGrants(ctx context.Context, r *record, unchecked map[string]int64) error {
	var all v1alpha1.PluginInstallationList
	if err := p.live.List(ctx, &all); err != nil {
		return fmt.Errorf("list the installations: %w", err)
	}
	there := map[string]bool{}
	for i := range all.Items {
		o := &all.Items[i]
		there[string(o.UID)] = true
		for _, g := range kinds.GrantsOf(o) {
			if p.stands(g, o.Generation) == authority.GrantUnknown {
				unchecked[g.ID] = o.Generation
			}
		}
	}
	maps.DeleteFunc(r.grants, func(id string, _ int64) bool { return !there[kinds.GrantObject(id)] })
	return nil
}

// review is what the leader says of an installation's grants.
type review struct {
	// notVerified are the fields of those that count for nothing.
	notVerified []string
	// again: the watch hasn't delivered yet what was read live.
	again bool
}

// review settles how each grant of an installation that was read live stands.
func (p *proof) review(ctx context.Context, o *v1alpha1.PluginInstallation) (review, error) {
	var r review
	grants := kinds.GrantsOf(o)
	if len(grants) == 0 {
		return r, nil
	}
	p.mu.Lock()
	handled := p.grants.Observed(string(o.UID)) == o.Generation
	p.mu.Unlock()
	if !handled {
		// A version between may have lacked one.
		r.again = true
		return r, nil
	}
	now, err := p.await(ctx)
	if err != nil {
		return r, err
	}
	checked, unknown := map[string]int64{}, []authority.LegacyGrant{}
	for _, g := range grants {
		switch p.stands(g, o.Generation) {
		case authority.GrantNotVerified:
			r.notVerified = append(r.notVerified, g.Field)
		case authority.GrantChecked:
			p.mu.Lock()
			if p.grants.CheckedAt(g.ID) < o.Generation {
				checked[g.ID] = o.Generation
			}
			p.mu.Unlock()
		default:
			unknown = append(unknown, g)
		}
	}
	held := now.state == proofHeld
	if held && len(unknown) > 0 {
		// Between two attempts the policies may have been away, or other ones.
		pins, err := p.pinsNow(ctx)
		if err != nil {
			return r, err
		}
		if held = pins == now.pins; !held {
			p.poke()
		}
	}
	for _, g := range unknown {
		if held {
			checked[g.ID] = o.Generation
			continue
		}
		r.notVerified = append(r.notVerified, g.Field)
		if err := p.store.Distrust(ctx, g.ID, o.Generation); err != nil {
			return r, fmt.Errorf("record a grant of compatibility that nobody has checked: %w", err)
		}
		p.distrust(g.ID, o.Generation)
	}
	if len(checked) > 0 {
		if err := p.check(ctx, string(o.UID), grants, checked, held && len(unknown) > 0, now.pins); err != nil {
			return r, err
		}
	}
	p.granted()
	return r, nil
}

// check makes durable which of the grants that an object has were found checked; new
// ones only under the very proof that is recorded.
func (p *proof) check(ctx context.Context, object string, has []authority.LegacyGrant, checked map[string]int64, anew bool, pins string) error {
	term, leading := p.leads()
	if !leading {
		return errNoTerm
	}
	p.recording.Lock()
	defer p.recording.Unlock()
	r, _, err := p.load(ctx)
	if err != nil {
		return err
	}
	if anew && r.of != proven(term, pins) {
		p.poke()
		return fmt.Errorf("check a grant of compatibility: %w", errNotRecorded)
	}
	r.drop(object, has)
	maps.Copy(r.grants, checked)
	if err := p.store.Prove(ctx, term, r.text(), nil); err != nil {
		return fmt.Errorf("record the grants of compatibility that are checked: %w", err)
	}
	_, _, err = p.load(ctx)
	return err
}

// grantReview tells which grants of compatibility count for nothing since nobody has
// checked who wrote them.
func grantReview(notVerified []string) metav1.Condition {
	if len(notVerified) == 0 {
		return condition(v1alpha1.ConditionReviewRequired, false, v1alpha1.ReasonReviewed, "nothing in spec.compatibility waits for a human")
	}
	return condition(v1alpha1.ConditionReviewRequired, true, v1alpha1.ReasonNotVerified, kinds.UnverifiedMessage(notVerified))
}
