package events_test

import (
	"context"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/events"
	"github.com/kandev/plugin-host/hostsvc/query"
	"github.com/kandev/plugin-host/hostsvc/store/storetest"
)

// mutants are hubs with one rule taken away, by one of their ports. A test that
// passes on a mutant does not test that rule. What the databases do for the order of
// events has mutants of its own, in the tests of the store.
var mutants = []struct {
	name   string
	mutate func(*events.Config)
	trust  func(proof) proof
	test   func(database)
}{
	// A token loses nothing (I15).
	{"TokenIsTheEndOfThePage", paged(func(_ events.Position, p events.Page) events.Page {
		for i := range p.Records {
			p.Records[i].Position = p.End
		}
		return p
	}), nil, resumeAfterRestart},
	{"PageEndsAtTheSettledPlace", paged(func(_ events.Position, p events.Page) events.Page {
		p.End = p.Settled
		return p
	}), nil, resumeAfterRestart},
	{"ResumedStreamBeginsNow", beginsNow, nil, resumeAfterRestart},

	// Nothing private is in an event (I14): to a hub that does not know them, private
	// keys and hidden text are as any other.
	{"PrivateKeysAreNotKnown", worded(`raw_content|has_hidden_prompts|prompt_dispatch`), nil, nothingPrivateIsDelivered},
	{"HiddenTextIsNotKnown", worded(`(?i)kandev-system`), nil, nothingPrivateIsDelivered},

	// Authority is asked at each delivery (I6).
	{"ApprovalIsAskedOnce", approvals(func() approval { return (&firstRows{rows: map[authority.Key]*authority.Row{}}).row }), nil, exactEventsNeedAnApproval},
	{"ApprovalIsAskedOnce_Unread", approvals(func() approval { return (&firstRows{rows: map[authority.Key]*authority.Row{}}).row }), nil, unreadMessageIsUnderAuthority},
	{"ApprovalIsNotAsked", approvals(func() approval { return granted }), nil, exactEventsNeedAnApproval},
	{"LeaseIsNotAsked", func(c *events.Config) { c.Rows = vouched{c.Rows} }, nil, exactEventsNeedAnApproval},
	{"DeclarationIsAskedOnce", legacyOnce, nil, declarationChanges},
	{"StandingIsAskedOnce", legacyOnce, nil, revocationEndsTheStream},
	{"StandingIsAskedOnce_Unread", legacyOnce, nil, unreadMessageIsUnderAuthority},
	{"IdentityIsAskedOnce", nil, once, lostIdentityEndsTheStream},
}

func TestMutants_AreNoticed(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			storetest.Noticed(t, func(tb testing.TB) {
				tb.Helper()
				d := onSQLite(tb)
				d.mutate, d.trust, d.timeout = m.mutate, m.trust, 2*time.Second
				m.test(d)
			})
		})
	}
}

// pages is a store whose pages are changed.
type pages struct {
	events.Store
	change func(after events.Position, p events.Page) events.Page
}

func paged(change func(events.Position, events.Page) events.Page) func(*events.Config) {
	return func(c *events.Config) { c.Store = pages{c.Store, change} }
}

func (s pages) Events(ctx context.Context, after events.Position, limit int) (events.Page, error) {
	page, err := s.Store.Events(ctx, after, limit)
	return s.change(after, page), err
}

// beginsNow shows nothing of before the hub was made.
func beginsNow(c *events.Config) {
	var mu sync.Mutex
	var begin *events.Position
	paged(func(after events.Position, p events.Page) events.Page {
		mu.Lock()
		defer mu.Unlock()
		if begin == nil {
			begin = &p.Settled
		}
		if after.Compare(*begin) < 0 {
			p.Records, p.End = nil, p.Settled
		}
		return p
	})(c)
}

// worded spells words another way.
func worded(words string) func(*events.Config) {
	known := regexp.MustCompile(words)
	return paged(func(_ events.Position, p events.Page) events.Page {
		for i := range p.Records {
			p.Records[i].Event = known.ReplaceAllStringFunc(p.Records[i].Event, func(word string) string {
				return "other" + strings.ReplaceAll(word[1:], "-", "")
			})
		}
		return p
	})
}

// approval answers for a row of authority.
type approval func(key authority.Key, read func() (*authority.Row, error)) (*authority.Row, error)

// rows are snapshots with other rows of authority.
type rows struct {
	query.Store
	approval approval
}

func approvals(answer func() approval) func(*events.Config) {
	return func(c *events.Config) { c.Rows = rows{c.Rows, answer()} }
}

func (s rows) Read(ctx context.Context, fn func(query.Snapshot) error) error {
	return s.Store.Read(ctx, func(snapshot query.Snapshot) error { return fn(rowsSnapshot{snapshot, s.approval}) })
}

type rowsSnapshot struct {
	query.Snapshot
	approval approval
}

func (s rowsSnapshot) AuthorityRow(key authority.Key) (*authority.Row, error) {
	return s.approval(key, func() (*authority.Row, error) { return s.Snapshot.AuthorityRow(key) })
}

// firstRows answers with what was read first.
type firstRows struct {
	mu   sync.Mutex
	rows map[authority.Key]*authority.Row
}

func (f *firstRows) row(key authority.Key, read func() (*authority.Row, error)) (*authority.Row, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rows[key] == nil {
		row, err := read()
		if err != nil {
			return nil, err
		}
		f.rows[key] = row
	}
	return f.rows[key], nil
}

// granted answers that everything is granted.
func granted(key authority.Key, _ func() (*authority.Row, error)) (*authority.Row, error) {
	return &authority.Row{
		Key: key, Revision: 1, Act: authority.ActName(1, "abcdef"), State: authority.StateActive, Granted: contract.AllCapabilities,
		Declared: contract.AllCapabilities, Allowed: contract.AllCapabilities, Sum: authority.Vector{}.Sum(),
	}, nil
}

// vouched are snapshots of a store that always vouches for its rows.
type vouched struct{ query.Store }

func (s vouched) Read(ctx context.Context, fn func(query.Snapshot) error) error {
	return s.Store.Read(ctx, func(snapshot query.Snapshot) error { return fn(vouchedSnapshot{snapshot}) })
}

type vouchedSnapshot struct{ query.Snapshot }

func (vouchedSnapshot) Current() bool { return true }

func (s vouchedSnapshot) AuthorityRow(key authority.Key) (*authority.Row, error) {
	row, err := s.Snapshot.AuthorityRow(key)
	if row != nil {
		row.Uncompared = false
	}
	return row, err
}

// firstLegacy answers with what was seen first of each installation.
type firstLegacy struct {
	admission.LegacyView
	mu   sync.Mutex
	seen map[string]authority.Legacy
}

func legacyOnce(c *events.Config) {
	c.Legacy = &firstLegacy{LegacyView: c.Legacy, seen: map[string]authority.Legacy{}}
}

func (f *firstLegacy) Legacy(id string) authority.Legacy {
	f.mu.Lock()
	defer f.mu.Unlock()
	first, ok := f.seen[id]
	if !ok {
		first = f.LegacyView.Legacy(id)
		f.seen[id] = first
	}
	return first
}

// proof is Watch.Proven.
type proof func(context.Context) error

// once asks for a proof the first time only.
func once(p proof) proof {
	var asked sync.Once
	var first error
	return func(ctx context.Context) error {
		asked.Do(func() { first = p(ctx) })
		return first
	}
}
