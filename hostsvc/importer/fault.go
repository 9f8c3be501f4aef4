package importer

import (
	"fmt"
	"strings"
)

// Fault is what is wrong with one field of one document.
type Fault struct {
	// Line is where the field stands, from 1; in JSON lines it is the document's.
	Line int64
	// Kind, ID and Field are "" as far as they aren't known.
	Kind, ID, Field string
	// Problem says what is wrong and what to do. It quotes nothing of the document.
	Problem string
}

func (f Fault) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d: ", f.Line)
	if f.Kind != "" {
		b.WriteString(f.Kind)
		if f.ID != "" {
			fmt.Fprintf(&b, " %q", f.ID)
		}
		b.WriteString(": ")
	}
	if f.Field != "" {
		b.WriteString(f.Field + ": ")
	}
	b.WriteString(f.Problem)
	return b.String()
}

// FaultsError tells what is wrong with documents of one batch, of which none was
// imported. The batches before it were.
type FaultsError struct {
	// Source is the name of what was to be imported.
	Source string
	Faults []Fault
	// More tells that there may be more than Faults holds.
	More bool
}

func (e *FaultsError) Error() string {
	var b strings.Builder
	for i, f := range e.Faults {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(e.Source + ":" + f.String())
	}
	if e.More {
		b.WriteString("\nand there may be more")
	}
	return b.String()
}
