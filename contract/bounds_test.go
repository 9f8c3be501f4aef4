package contract

import (
	"strings"
	"testing"
)

func TestCheckIdentifier(t *testing.T) {
	long := strings.Repeat("a", MaxIdentifierBytes)
	for _, good := range []string{"a", "0", "a b", "Ünïcode", "日本", "a\tb", "-", long, "\ufffd"} {
		if fault := CheckIdentifier("id", good); fault != nil {
			t.Errorf("%q: %v", good, fault)
		}
	}
	for value, reason := range map[string]Reason{
		"":             ReasonMissingExactField,
		long + "a":     ReasonMalformedPrecondition,
		" a":           ReasonMalformedPrecondition,
		"a ":           ReasonMalformedPrecondition,
		"\ta":          ReasonMalformedPrecondition,
		"a\n":          ReasonMalformedPrecondition,
		"\u00a0a":      ReasonMalformedPrecondition,
		"a\u2003":      ReasonMalformedPrecondition,
		" ":            ReasonMalformedPrecondition,
		"a\x00b":       ReasonMalformedPrecondition,
		"\x00":         ReasonMalformedPrecondition,
		"a\xffb":       ReasonMalformedPrecondition,
		"\xc3":         ReasonMalformedPrecondition,
		"\xed\xa0\x80": ReasonMalformedPrecondition,
		long[1:] + "ä": ReasonMalformedPrecondition,
	} {
		fault := CheckIdentifier("page.id", value)
		if fault == nil || fault.Reason != reason || fault.Field != "page.id" || fault.Reason.Parent() != StateInvalid {
			t.Errorf("%q: %+v, want %s", value, fault, reason)
			continue
		}
		if !strings.HasPrefix(fault.Error(), "page.id: ") {
			t.Errorf("%q: the text %q does not name the field", value, fault)
		}
	}
}

func TestCheckText(t *testing.T) {
	for _, good := range []string{"", " a ", "a\nb", "äöü", "12345678"} {
		if fault := CheckText("title", good, 8); fault != nil {
			t.Errorf("%q: %v", good, fault)
		}
	}
	for _, bad := range []string{"123456789", "äöüäö", "a\x00", "\xff"} {
		fault := CheckText("title", bad, 8)
		if fault == nil || fault.Field != "title" || fault.Reason != ReasonMalformedPrecondition {
			t.Errorf("%q: %+v", bad, fault)
		}
	}
}

func TestBounds_HoldTogether(t *testing.T) {
	if DefaultPageSize > MaxPageSize {
		t.Error("the default page is larger than the largest")
	}
	if MaxDescriptionBytes+MaxTitleBytes+4*MaxIdentifierBytes > MaxCommandBytes {
		t.Error("a command of legal fields does not fit its own bound")
	}
}
