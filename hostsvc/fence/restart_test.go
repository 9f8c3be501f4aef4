package fence

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kandev/plugin-host/hostsvc/authority"
)

// armed puts the model where the sessions that a human granted wait for their
// manifest, processed, and where no process runs any more.
func (m *model) armed() (spec authority.Approval) {
	m.t.Helper()
	c := m.granted(readTasks)
	spec = m.spec(readTasks | sessions)
	spec.ManifestDigest = digestOf(1)
	m.apply(spec)
	m.runs(c)
	if m.row.Seen.Generation != m.approval.Generation || m.row.Act != spec.SupersedesAct {
		m.t.Fatalf("nothing waits: %+v", m.row)
	}
	m.kill(c)
	return spec
}

// restarts narrow a grant that waits by one version while no process runs, so that
// none alive has seen both versions, and bring the one of before back. The process
// that runs at the end leads.
var restarts = map[string]func(m *model, narrow, back func()){
	"after the next process has processed it": func(m *model, narrow, back func()) {
		narrow()
		next := m.start("next")
		m.lead(next)
		m.runs(next)
		back()
	},
	"after the next process has handled it": func(m *model, narrow, back func()) {
		narrow()
		next := m.start("next")
		m.handles(next)
		back()
		m.lead(next)
	},
	"before the next process has handled it": func(m *model, narrow, back func()) {
		narrow()
		next := m.start("next")
		back()
		m.lead(next)
	},
	"before the next process begins": func(m *model, narrow, back func()) {
		narrow()
		back()
		m.lead(m.start("next"))
	},
	"after a process that could not compare it": func(m *model, narrow, back func()) {
		// The one that leads has marked the version that waits only when the other
		// one has handled the narrowing, and is killed before it handles that itself.
		seen := m.row.Seen
		m.row.Seen = authority.Seen{UID: seen.UID, Generation: seen.Generation - 1, Asked: readTasks}
		narrow()
		next := m.start("next")
		m.handles(next)
		m.row.Seen = seen
		back()
		m.lead(next)
	},
}

func (m *model) handles(c *controller) {
	m.t.Helper()
	if err := c.handle(); err != nil {
		m.t.Fatalf("%v", err)
	}
}

// narrowedWhileDown plays a restart, and then puts the manifest in force that the
// grant waited for.
func narrowedWhileDown(m *model, restart func(m *model, narrow, back func())) {
	m.t.Helper()
	spec := m.armed()
	restart(m, func() { m.edit(func(a *authority.Approval) { a.Capabilities = readTasks }) }, func() { m.apply(spec) })
	next := m.controllers[0]
	for _, manifest := range []string{digestOf(0), digestOf(1)} {
		m.manifest(manifest)
		m.runs(next)
		if m.row.Effective(m.now)&sessions != 0 || m.row.Act == spec.SupersedesAct {
			m.t.Fatalf("the act that waited is armed: %+v", m.row)
		}
	}
	m.converges()
	m.apply(m.spec(readTasks | sessions))
	m.converges()
	if m.row.Effective(m.now) != readTasks|sessions {
		m.t.Fatalf("a new act grants nothing: %+v", m.row)
	}
}

// The act that waited is used when a human has taken away from what it asked for,
// whoever saw that.
func TestI7_ANarrowingThatNobodyWatchedUsesTheActThatWaited(t *testing.T) {
	for name, restart := range restarts {
		t.Run(name, func(t *testing.T) { narrowedWhileDown(newModel(t), restart) })
	}
}

// A store that doesn't say what the processed version asked for, but that it asked
// for nothing, lets the act fire where only the row can be compared with; one that
// says that it doesn't know lets none.
func TestI7_WhatTheProcessedVersionAskedForIsWhatStopsTheAct(t *testing.T) {
	for _, name := range []string{"after the next process has processed it", "after the next process has handled it"} {
		if said := failure(func(t fataler) {
			m := newModel(t)
			m.asked = forgotten
			narrowedWhileDown(m, restarts[name])
		}); said == "" {
			t.Errorf("%s: nothing fails without it", name)
		}
	}
	for name, restart := range restarts {
		t.Run(name, func(t *testing.T) {
			narrowedWhileDown(newModel(t), func(m *model, narrow, back func()) {
				m.asked = authority.Seen.Unrecorded
				restart(m, narrow, back)
			})
		})
	}
}

// forgotten says that a version asked for nothing.
func forgotten(s authority.Seen) authority.Seen {
	s.Asked = 0
	return s
}

// What takes nothing away while no process runs leaves the act that waits alone,
// also where another edit comes before the first is processed.
func TestI7_AnEditThatNobodyWatchedLeavesTheActThatWaits(t *testing.T) {
	for edits := range 2 {
		m := newModel(t)
		m.armed()
		m.edit(func(a *authority.Approval) { a.Reason = "spelled better" })
		next := m.start("next")
		m.lead(next)
		m.handles(next)
		for range edits {
			m.edit(func(a *authority.Approval) { a.Reason += "!" })
		}
		m.manifest(digestOf(1))
		m.runs(next)
		if m.row.Effective(m.now) != readTasks|sessions {
			t.Errorf("%d more edits: %+v", edits, m.row)
		}
		m.converges()
	}
}

// Grants that wait, narrowings, manifests from before and restarts in any order:
// the checks are those of model, and they notice it when the row doesn't say what
// the processed version asked for.
func TestI7_AnyRestart(t *testing.T) {
	const seeds = 2000
	for seed := range uint64(seeds) {
		if said := failure(func(t fataler) { anyRestart(newModel(t), seed) }); said != "" {
			t.Fatalf("seed %d: %s", seed, said)
		}
	}
	noticed := 0
	for seed := range uint64(seeds) {
		if failure(func(t fataler) {
			m := newModel(t)
			m.asked = forgotten
			anyRestart(m, seed)
		}) != "" {
			noticed++
		}
	}
	if noticed == 0 {
		t.Error("no seed needs what the processed version asked for")
	}
	t.Logf("%d of %d seeds need what the processed version asked for", noticed, seeds)
}

func anyRestart(m *model, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 7))
	edit := func() {
		switch random.IntN(4) {
		case 0: // waits for the other manifest
			spec := m.spec(readTasks | sessions)
			spec.ManifestDigest = digestOf(1)
			if m.installation.ManifestDigest == digestOf(1) {
				spec.ManifestDigest = digestOf(0)
			}
			m.apply(spec)
		case 1:
			m.edit(func(a *authority.Approval) { a.Capabilities &= readTasks })
		case 2: // from before
			m.apply(m.applied[max(0, len(m.applied)-1-random.IntN(3))])
		case 3:
			m.edit(func(a *authority.Approval) { a.Reason += "." })
		}
	}
	running := m.granted(readTasks)
	for range 1 + random.IntN(3) {
		for range random.IntN(3) {
			edit()
			if random.IntN(2) == 0 {
				m.runs(running)
			}
		}
		m.kill(running)
		for range random.IntN(3) {
			edit()
		}
		running = m.start("next")
		m.lead(running)
		for range random.IntN(4) {
			switch random.IntN(3) {
			case 0:
				edit()
			case 1:
				m.handles(running)
			case 2:
				m.runs(running)
			}
		}
		m.manifest(digestOf(random.IntN(2)))
		m.runs(running)
	}
	m.converges()
}

// failure runs a test and returns what it said when it failed, "" when it didn't.
func failure(test func(t fataler)) (said string) {
	defer func() {
		if r := recover(); r != nil {
			failed, ok := r.(failed)
			if !ok {
				panic(r)
			}
			said = string(failed)
		}
	}()
	test(recorder{})
	return ""
}

type failed string

// recorder is a fataler that failure hears.
type recorder struct{}

func (recorder) Helper() {}

func (recorder) Fatalf(format string, args ...any) { panic(failed(fmt.Sprintf(format, args...))) }
