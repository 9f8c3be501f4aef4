package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

const (
	defaultPage = 50
	largestPage = 200
)

// listCases are what the cases of a list need to know.
type listCases struct {
	// count is how many items the content has for the base request.
	count func(*known) int
	// strict v1 lists refuse a malformed cursor.
	strict bool
	// filtered changes the filter of an exact request; nil for a list without one.
	filtered func(proto.Message)
	// foreign name something of the foreign workspace in an exact request.
	foreign []foreignName
}

// foreignName is a field of an exact request that names something.
type foreignName struct {
	field string
	name  string
	set   func(m proto.Message, name string)
}

// field gets a message's field by its name, the message made where there is none.
func child(m proto.Message, name protoreflect.Name) proto.Message {
	r := m.ProtoReflect()
	f := r.Descriptor().Fields().ByName(name)
	if f == nil {
		return nil
	}
	return r.Mutable(f).Message().Interface()
}

// setText sets a text field, where there is such a field.
func setText(m proto.Message, name protoreflect.Name, text string) {
	r := m.ProtoReflect()
	if f := r.Descriptor().Fields().ByName(name); f != nil {
		r.Set(f, protoreflect.ValueOfString(text))
	}
}

func setRevision(m proto.Message, revision uint64) {
	r := m.ProtoReflect()
	if f := r.Descriptor().Fields().ByName("capability_revision"); f != nil {
		r.Set(f, protoreflect.ValueOfUint64(revision))
	}
}

// items are the items of a list's answer, each as bytes without what is new in each
// answer.
func items(m proto.Message) []string {
	r := m.ProtoReflect()
	fields := r.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !f.IsList() || f.Message() == nil {
			continue
		}
		list := r.Get(f).List()
		out := make([]string, list.Len())
		for i := range out {
			out[i] = string(plainBytes(list.Get(i).Message().Interface()))
		}
		return out
	}
	return nil
}

// v1Page asks for a page of a v1 list.
func (p *probe) v1Page(ctx context.Context, limit int32, cursor string) (a answer, got []string, info *pluginv1.PageInfo) {
	m := message(p)
	page := child(m, "page").(*pluginv1.Page) //nolint:forcetypeassert,errcheck // each v1 list has it
	page.Limit, page.Cursor = limit, cursor
	a = p.ask(ctx, m)
	if a.err != nil {
		return a, nil, nil
	}
	return a, items(a.message), child(a.message, "page_info").(*pluginv1.PageInfo) //nolint:forcetypeassert,errcheck // likewise
}

// v1List makes the cases of a v1 list's pages (host-v1 facts, section 2.2).
func (p *probe) v1List(ctx context.Context) {
	var all []string
	var a answer
	problem := ""
	for cursor := ""; ; {
		var got []string
		var info *pluginv1.PageInfo
		a, got, info = p.v1Page(ctx, largestPage, cursor)
		all = append(all, got...)
		if a.err != nil || !info.GetHasMore() {
			break
		}
		if cursor = info.GetNextCursor(); cursor != strconv.Itoa(len(all)) {
			problem = fmt.Sprintf("behind %d items the cursor is %q", len(all), cursor)
			break
		}
	}
	want := p.own.list.count(p.content)
	p.ok("pages of 200 show everything once", a, func() string {
		if problem == "" {
			problem = once(all)
		}
		if problem == "" && len(all) != want {
			problem = fmt.Sprintf("%d items, want %d", len(all), want)
		}
		return problem
	})
	page := func(name string, limit int32, cursor string, offset, length int) {
		a, got, info := p.v1Page(ctx, limit, cursor)
		p.ok(name, a, func() string {
			offset := min(offset, len(all))
			end := min(offset+length, len(all))
			next := ""
			if end < len(all) {
				next = strconv.Itoa(end)
			}
			if info.GetNextCursor() != next || info.GetHasMore() != (next != "") {
				return fmt.Sprintf("next_cursor %q and has_more %t, want %q", info.GetNextCursor(), info.GetHasMore(), next)
			}
			if !slices.Equal(got, all[offset:end]) {
				return fmt.Sprintf("%d items, want those from %d up to %d", len(got), offset, end)
			}
			return ""
		})
	}
	page("limit 0 is 50", 0, "", 0, defaultPage)
	page("a negative limit is 50", -1, "", 0, defaultPage)
	page("limit 201 is 200", largestPage+1, "", 0, largestPage)
	page("the largest limit is 200", 1<<31-1, "", 0, largestPage)
	page("limit 1", 1, "", 0, 1)
	page("limit 3, the second page", 3, "3", 3, 3)
	page("the last item", largestPage, strconv.Itoa(max(want-1, 0)), max(want-1, 0), 1)
	page("a cursor at the end", 0, strconv.Itoa(want), want, 0)
	page("a cursor past the end", 0, "100000", 100000, 0)
	for _, bad := range []struct{ name, cursor string }{
		{"a malformed cursor", "x"}, {"a negative cursor", "-1"}, {"a cursor beyond all numbers", "99999999999999999999"},
		{"a cursor that is a fraction", "1.5"},
	} {
		if p.own.list.strict {
			a, _, _ := p.v1Page(ctx, 0, bad.cursor)
			p.status(bad.name, a, codes.InvalidArgument, "invalid transition cursor")
			continue
		}
		page(bad.name, 0, bad.cursor, 0, defaultPage)
	}
}

// once names an item that is there twice.
func once(all []string) string {
	seen := map[string]bool{}
	for i, item := range all {
		if seen[item] {
			return fmt.Sprintf("item %d was there before", i)
		}
		seen[item] = true
	}
	return ""
}

// exactPage asks for a page of an exact list.
func exactPage(m proto.Message, limit int32, cursor, snapshot string) proto.Message {
	page := child(m, "page").(*pluginv1.ExactReadPage) //nolint:forcetypeassert,errcheck // each exact list has it
	page.Limit, page.Cursor, page.SnapshotVersion = limit, cursor, snapshot
	return m
}

func infoOf(a answer) *pluginv1.ExactReadPageInfo {
	if a.err != nil {
		return nil
	}
	return child(a.message, "page_info").(*pluginv1.ExactReadPageInfo) //nolint:forcetypeassert,errcheck // each exact list has it
}

// receiptProblem finds what isn't as it must be in a receipt.
func (s *suite) receiptProblem(receipt *pluginv1.HostReadReceipt, requestID, snapshot string) string {
	switch {
	case receipt == nil:
		return "there is no receipt"
	case receipt.GetInstallationId() != s.id:
		return "the receipt is of installation " + receipt.GetInstallationId()
	case receipt.GetWorkspaceId() != s.given.Workspace:
		return "the receipt is of workspace " + receipt.GetWorkspaceId()
	case receipt.GetCapabilityRevision() != s.revisions[s.given.Workspace]:
		return fmt.Sprintf("the receipt is of revision %d", receipt.GetCapabilityRevision())
	case receipt.GetRequestId() != requestID:
		return "the receipt is of request " + receipt.GetRequestId()
	case receipt.GetAuditId() == "" || receipt.GetSnapshotVersion() == "" || receipt.GetObservedAt() == "":
		return "the receipt lacks audit_id, snapshot_version or observed_at"
	case snapshot != "" && receipt.GetSnapshotVersion() != snapshot:
		return "the receipt is of snapshot " + receipt.GetSnapshotVersion()
	}
	return ""
}

// walk reads all pages of an exact list, and says what isn't right.
func (p *probe) walk(ctx context.Context, limit int32, most int) (a answer, all []string, problem string) {
	cursor, snapshot := "", ""
	for page := 0; page < most; page++ {
		a = p.ask(ctx, exactPage(message(p), limit, cursor, snapshot))
		if a.err != nil {
			return a, all, "want a success"
		}
		info := infoOf(a)
		got := items(a.message)
		all = append(all, got...)
		switch {
		case snapshot != "" && info.GetSnapshotVersion() != snapshot:
			return a, all, "the snapshot changed from page to page"
		case info.GetHasMore() != (info.GetNextCursor() != ""):
			return a, all, "has_more and next_cursor don't agree"
		case len(got) > int(limit) || info.GetHasMore() && len(got) == 0:
			return a, all, fmt.Sprintf("a page of %d items, want at most %d", len(got), limit)
		case info.GetObservedAt() == "":
			return a, all, "there is no observed_at"
		}
		if problem := p.receiptProblem(info.GetReceipt(), requestID, info.GetSnapshotVersion()); problem != "" {
			return a, all, problem
		}
		snapshot, cursor = info.GetSnapshotVersion(), info.GetNextCursor()
		if cursor == "" {
			break
		}
	}
	return a, all, ""
}

// exactList makes the cases of an exact list's pages.
func (p *probe) exactList(ctx context.Context) {
	a, all, problem := p.walk(ctx, largestPage, 100)
	want := p.own.list.count(p.content)
	if problem == "" {
		problem = once(all)
	}
	if problem == "" && len(all) != want {
		problem = fmt.Sprintf("%d items, want %d", len(all), want)
	}
	p.holds("pages of 200 show everything once, of one snapshot, with receipts", a, problem)

	for _, page := range []struct {
		name   string
		limit  int32
		length int
	}{{"limit 0 is 50", 0, defaultPage}, {"limit 201 is 200", largestPage + 1, largestPage}, {"limit 1", 1, 1}} {
		a := p.ask(ctx, exactPage(message(p), page.limit, "", ""))
		p.ok(page.name, a, func() string {
			if got := items(a.message); !slices.Equal(got, all[:min(page.length, len(all))]) {
				return fmt.Sprintf("%d items, want the first %d of %d", len(got), page.length, len(all))
			}
			return ""
		})
	}
	a, some, problem := p.walk(ctx, 7, 4)
	if problem == "" && !slices.Equal(some, all[:min(len(some), len(all))]) {
		problem = "small pages show another order than large ones"
	}
	p.holds("pages of 7 show the same in the same order", a, problem)
	p.typed("a negative limit", p.ask(ctx, exactPage(message(p), -1, "", "")), "INVALID/MALFORMED_PRECONDITION", "page.limit", "")
	p.exactEnvelope(ctx)
	p.exactCursors(ctx)
	p.foreignNames(ctx, p.own.list.foreign)
}

// requestID is what every exact request of the suite is called.
const requestID = "conformance"

const badIdentifiers = "request_id and workspace_id are required bounded identifiers"

// exactEnvelope makes the cases of what every exact reader of a workspace asks.
func (p *probe) exactEnvelope(ctx context.Context) {
	with := func(change func(proto.Message)) answer {
		m := message(p)
		change(m)
		return p.ask(ctx, m)
	}
	for _, field := range []protoreflect.Name{"request_id", "workspace_id"} {
		for _, bad := range []struct{ name, value, want string }{
			{"absent", "", "INVALID/MISSING_EXACT_FIELD"}, {"with white space at its edge", " x", "INVALID/MALFORMED_PRECONDITION"},
			{"with a NUL", "a\x00b", "INVALID/MALFORMED_PRECONDITION"}, {"of 1025 bytes", strings.Repeat("x", 1025), "INVALID/MALFORMED_PRECONDITION"},
		} {
			a := with(func(m proto.Message) { setText(m, field, bad.value) })
			p.typed(string(field)+" "+bad.name, a, bad.want, string(field), badIdentifiers)
		}
	}
	revision := p.revisions[p.given.Workspace]
	p.ok("the revision in force", with(func(m proto.Message) { setRevision(m, revision) }), nil)
	p.typed("another revision", with(func(m proto.Message) { setRevision(m, revision+1000) }), "DENIED/STALE_CAPABILITY_REVISION", "", "stale_capability_revision")
}

const (
	malformedCursor = "INVALID/MALFORMED_PRECONDITION"
	invalidCursor   = "exact read cursor is invalid"
)

// exactCursors makes the cases of cursors that aren't this question's.
func (p *probe) exactCursors(ctx context.Context) {
	a := p.ask(ctx, exactPage(message(p), 1, "", ""))
	cursor, snapshot := infoOf(a).GetNextCursor(), infoOf(a).GetSnapshotVersion()
	refused := func(name string, a answer) { p.typed(name, a, malformedCursor, "page.cursor", invalidCursor) }

	p.typed("a snapshot without a cursor", p.ask(ctx, exactPage(message(p), 1, "", snapshot)), malformedCursor, "page.snapshot_version",
		"exact read snapshot does not match this query")
	refused("a cursor that nobody issued", p.ask(ctx, exactPage(message(p), 1, "x", snapshot)))
	p.typed("a cursor without a snapshot", p.ask(ctx, exactPage(message(p), 1, "x", "")), "INVALID/MISSING_EXACT_FIELD", "page.snapshot_version",
		"exact read cursor requires a snapshot version")

	other := &probe{suite: p.suite, method: service.Methods().ByName("ListTasksExact")}
	if p.method.Name() == "ListTasksExact" {
		other.method = service.Methods().ByName("ListSessionsExact")
	}
	other.own = p.cases[string(other.method.Name())]
	b := p.call(as(ctx, p.first().token), other.method, exactPage(message(other), 1, "", ""))
	refused("a cursor of "+string(other.method.Name()), p.ask(ctx, exactPage(message(p), 1, infoOf(b).GetNextCursor(), infoOf(b).GetSnapshotVersion())))

	if cursor == "" {
		p.enter("cursors of its own", skipped, a, "the list has one page")
		return
	}
	// The first letter may hold no more than a part of a byte; this one is whole.
	at := len(cursor) / 2 //nolint:mnd // somewhere within
	letter := byte('A')
	if cursor[at] == letter {
		letter = 'B'
	}
	refused("a cursor that was changed", p.ask(ctx, exactPage(message(p), 1, cursor[:at]+string(letter)+cursor[at+1:], snapshot)))
	refused("a cursor cut short", p.ask(ctx, exactPage(message(p), 1, cursor[:len(cursor)-4], snapshot)))
	p.typed("a cursor with another snapshot", p.ask(ctx, exactPage(message(p), 1, cursor, snapshot+"0")), malformedCursor, "page.snapshot_version",
		"exact read snapshot does not match this query")
	refused("a cursor of another installation", p.call(as(ctx, p.second().token), p.method, exactPage(message(p), 1, cursor, snapshot)))
	if p.own.list.filtered != nil {
		m := message(p)
		p.own.list.filtered(m)
		refused("a cursor of another filter", p.ask(ctx, exactPage(m, 1, cursor, snapshot)))
	}
	if p.second().approved(p.given.ForeignWorkspace, capabilityOf(p)) {
		mine := p.call(as(ctx, p.second().token), p.method, exactPage(message(p), 1, "", ""))
		refused("a cursor of another workspace", p.call(as(ctx, p.second().token), p.method,
			exactPage(p.base(p.given.ForeignWorkspace), 1, infoOf(mine).GetNextCursor(), infoOf(mine).GetSnapshotVersion())))
	}
	again := p.ask(ctx, exactPage(message(p), 1, cursor, snapshot))
	p.ok("its own cursor, after all that", again, func() string {
		return p.receiptProblem(infoOf(again).GetReceipt(), requestID, snapshot)
	})
}

// filterNames are what exact lists call their filters.
var filterNames = map[protoreflect.Name]string{
	"ListSessionsExact": "session", "ListSanitizedMessagesExact": "message", "ListPendingInteractionsExact": "interaction",
}

// foreignNames makes the cases of names of another workspace: they aren't there.
func (p *probe) foreignNames(ctx context.Context, names []foreignName) {
	for _, f := range names {
		ask := func(name string) answer {
			m := message(p)
			f.set(m, name)
			return p.ask(ctx, m)
		}
		nothing := unknownLike(f.name)
		a := ask(f.name)
		p.same(fmt.Sprintf("%s of another workspace, and of nothing: the same bytes", f.field), a, f.name, ask(nothing), nothing)
		if a.err == nil && len(items(a.message)) > 0 {
			p.holds(f.field+" of another workspace shows nothing", a, fmt.Sprintf("%d items", len(items(a.message))))
		}
		// What a filter lists is a faulty filter; what a field names is the target.
		switch f.field {
		case "filter.task_ids", "filter.session_ids":
			what := strings.TrimSuffix(strings.TrimPrefix(f.field, "filter."), "_ids")
			p.typed(f.field+" of another workspace", a, "INVALID/MALFORMED_PRECONDITION", f.field+"[0]",
				fmt.Sprintf("%s filter contains a %s outside the workspace", filterNames[p.method.Name()], what))
		case "task_id", "session_id":
			p.typed(f.field+" of another workspace", a, "NOT_FOUND/WORKSPACE_TARGET_NOT_FOUND", f.field, strings.TrimSuffix(f.field, "_id")+" was not found")
		}
	}
}
