package authority

import (
	"testing"

	"github.com/kandev/plugin-host/contract"
)

func TestI12_AGrantCountsOnlyWhileItStandsSinceItWasChecked(t *testing.T) {
	mine, other := LegacyGrant{ID: "o/1", Object: "o"}, LegacyGrant{ID: "o/2", Object: "o"}
	with, without := []LegacyGrant{mine, other}, []LegacyGrant{other}
	type version struct {
		generation int64
		grants     []LegacyGrant
	}
	for name, c := range map[string]struct {
		checked    int64
		observed   []version
		generation int64
		distrusted bool
		want       GrantStanding
	}{
		"never looked at":                      {0, []version{{1, with}}, 1, false, GrantUnknown},
		"found unchecked":                      {0, []version{{1, with}}, 1, true, GrantNotVerified},
		"found unchecked, once checked":        {3, []version{{4, with}}, 4, true, GrantNotVerified},
		"checked":                              {1, []version{{1, with}}, 1, false, GrantChecked},
		"checked, and not observed yet":        {1, nil, 1, false, GrantChecked},
		"one write later, not observed yet":    {1, nil, 2, false, GrantChecked},
		"two writes later, not observed":       {1, nil, 3, false, GrantUnknown},
		"many writes, each observed":           {1, []version{{1, with}, {2, with}, {3, with}, {4, with}}, 4, false, GrantChecked},
		"and one more that isn't":              {1, []version{{1, with}, {2, with}, {3, with}}, 4, false, GrantChecked},
		"a version missed":                     {1, []version{{1, with}, {3, with}}, 3, false, GrantUnknown},
		"observed from the write after on":     {1, []version{{2, with}, {3, with}}, 3, false, GrantChecked},
		"observed from two writes after on":    {1, []version{{3, with}, {4, with}}, 4, false, GrantUnknown},
		"taken out and put back":               {1, []version{{1, with}, {2, without}, {3, with}}, 3, false, GrantUnknown},
		"taken out, put back and checked anew": {3, []version{{1, with}, {2, without}, {3, with}, {4, with}}, 4, false, GrantChecked},
		"an older version again":               {1, []version{{1, with}, {2, without}, {1, with}}, 3, false, GrantUnknown},
		"checked later than what is observed":  {9, []version{{7, with}}, 7, false, GrantChecked},
	} {
		t.Run(name, func(t *testing.T) {
			var h LegacyHistory
			for _, v := range c.observed {
				h.Observe("o", v.generation, v.grants)
			}
			if c.checked > 0 {
				// What was checked may be learnt late: the order tells nothing.
				h.Learn(map[string]int64{mine.ID: c.checked})
			}
			if got := h.Standing(mine, c.generation, c.distrusted); got != c.want {
				t.Errorf("it stands as %d, want %d", got, c.want)
			}
		})
	}
}

func TestI12_AForgottenObjectIsObservedAnew(t *testing.T) {
	var h LegacyHistory
	g := LegacyGrant{ID: "o/1", Object: "o"}
	h.Learn(map[string]int64{g.ID: 1})
	for generation := range int64(3) {
		h.Observe("o", generation+1, []LegacyGrant{g})
	}
	if h.Observed("o") != 3 || h.Standing(g, 3, false) != GrantChecked {
		t.Fatal("what was observed doesn't count")
	}
	h.Forget("o")
	if h.Observed("o") != 0 || h.Standing(g, 3, false) != GrantUnknown {
		t.Fatal("what was forgotten counts")
	}
}

func TestI12_TheTermsHoldOnlyWhatCounts(t *testing.T) {
	writers := contract.LegacySetOf(contract.LegacyWriteTasks, contract.LegacyWriteMessages)
	asked := LegacyTerms{
		Declared: contract.LegacySetOf(contract.LegacyReadTasks, contract.LegacyWriteTasks), Writers: writers, ImplicitExpectNone: true,
	}
	grants := []LegacyGrant{
		{ID: "tasks", Writers: contract.LegacySetOf(contract.LegacyWriteTasks)},
		{ID: "messages", Writers: contract.LegacySetOf(contract.LegacyWriteMessages)},
		{ID: "implicit", ImplicitExpectNone: true},
	}
	only := func(ids ...string) func(LegacyGrant) bool {
		return func(g LegacyGrant) bool {
			for _, id := range ids {
				if g.ID == id {
					return true
				}
			}
			return false
		}
	}
	for name, c := range map[string]struct {
		counts  func(LegacyGrant) bool
		writers contract.LegacySet
		implied bool
	}{
		"none":                {only(), 0, false},
		"one":                 {only("tasks"), contract.LegacySetOf(contract.LegacyWriteTasks), false},
		"what isn't declared": {only("messages"), 0, false},
		"all":                 {only("tasks", "messages", "implicit"), contract.LegacySetOf(contract.LegacyWriteTasks), true},
	} {
		if got := asked.Granting(grants, c.counts); got.Writers != c.writers || got.ImplicitExpectNone != c.implied || got.Declared != asked.Declared {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := asked.Granting(nil, only("tasks")); got.Writers != 0 || got.ImplicitExpectNone {
		t.Errorf("without a grant: %+v", got)
	}
}
