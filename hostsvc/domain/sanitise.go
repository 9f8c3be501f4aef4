package domain

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MarkupState is the system markup that is open at a point of a stream: what one
// author wrote in one session, its rows in the order of their Sequence. It is a
// short text to be stored beside a row; "" is none.
//
// This file is the only place that removes system markup (I14). It removes at
// least what the shipped pattern does (domain facts, section 6) and more where
// the two differ, as privacy wins:
//   - A block ends at the closing tag of its outermost opening tag.
//   - An opening tag that nothing closes hides the rest of its row and the
//     following rows of its stream, up to the tag that closes it or to the end
//     of the session. Nothing else bounds it: a row that is hidden for nothing
//     is a fault that somebody sees and can repair, a disclosure isn't.
//   - A closing tag that closes nothing is removed by itself.
//   - Letters of any case, attributes, and white space or invisible characters
//     within a tag make no difference to it, nor does the end of a row.
//   - Pieces that removed markup leaves behind never join to a new tag.
//
// As shipped, white space after a closing tag goes with it and the rest is
// trimmed at both ends.
type MarkupState string

// Strip returns what may be seen of the stream's next row, trimmed, and the
// state behind the row. A state that isn't one hides the row and stays.
func (s MarkupState) Strip(text string) (visible string, after MarkupState) {
	if s == "" && strings.IndexByte(text, '<') < 0 {
		return strings.TrimSpace(text), ""
	}
	scan, ok := s.resume()
	if !ok {
		return "", s
	}
	scan.read(text)
	return strings.TrimSpace(string(scan.out)), scan.state()
}

// StripMarkup removes system markup from a text that is no row, such as a title
// or a value of a message's metadata. A text that holds none stays as it is,
// white space included.
func StripMarkup(text string) string {
	if strings.IndexByte(text, '<') < 0 {
		return text
	}
	var scan markupScan
	scan.read(text)
	if !scan.removed {
		return text
	}
	return strings.TrimSpace(string(scan.out))
}

// StripSpoken is StripMarkup for a text that becomes a row: it ends in no piece of a
// tag either, which the next row of its stream could complete, and be hidden by.
func StripSpoken(text string) string {
	for text = StripMarkup(text); ; {
		if _, after := MarkupState("").Strip(text); after == "" {
			return text
		}
		text = strings.TrimSpace(text[:max(0, strings.LastIndexByte(text, '<'))])
	}
}

const markupName = "kandev-system"

// A markupPhase is how much of a tag has been read. From phaseOpen on it counts
// the letters of the name after "<", from phaseClose on those after "</".
type markupPhase byte

const (
	phaseText   markupPhase = 0
	phaseOpen   markupPhase = 1
	phaseClose              = phaseOpen + markupPhase(len(markupName)) + 1
	openNamed               = phaseClose - 1
	closeNamed              = phaseClose + markupPhase(len(markupName))
	phaseInOpen             = closeNamed + 1 // behind the name of an opening tag
	// phaseInClose is behind the name of a closing tag.
	phaseInClose = phaseInOpen + 1
)

// A state's text is the phases of half-written tags, each as a letter, and then,
// within a block, its depth in decimal and the phase there.
const (
	phaseLetter = 'A' - byte(phaseOpen)
	// maxHalfTags bounds the half-written tags, one within another, that a state
	// remembers over the end of a row.
	maxHalfTags = 32
)

// halfTag is a tag that began at out[start] and isn't whole yet.
type halfTag struct {
	phase markupPhase
	start int
}

type markupScan struct {
	out []byte
	// tags are the half-written tags outside of any block. Each but the first
	// began within the one before, which goes on where it is removed.
	tags []halfTag
	// depth counts the open blocks, inner is the phase within them.
	depth   int
	inner   markupPhase
	removed bool
}

func (s MarkupState) resume() (scan markupScan, ok bool) {
	phaseOf := func(letter byte) (markupPhase, bool) {
		phase := markupPhase(letter - phaseLetter)
		return phase, letter >= 'A' && phase <= phaseInClose
	}
	text := string(s)
	for text != "" {
		phase, isPhase := phaseOf(text[0])
		if !isPhase {
			break
		}
		scan.tags = append(scan.tags, halfTag{phase: phase})
		text = text[1:]
	}
	if text == "" {
		return scan, true
	}
	digits := strings.TrimRightFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	depth, err := strconv.Atoi(digits)
	if err != nil || depth < 1 || len(text) > len(digits)+1 {
		return scan, false
	}
	scan.depth = depth
	if rest := text[len(digits):]; rest != "" {
		scan.inner, ok = phaseOf(rest[0])
		return scan, ok
	}
	return scan, true
}

func (m *markupScan) state() MarkupState {
	if len(m.tags) == 0 && m.depth == 0 {
		return ""
	}
	tags := m.tags[max(0, len(m.tags)-maxHalfTags):]
	text := make([]byte, 0, len(tags)+4)
	for _, tag := range tags {
		text = append(text, byte(tag.phase)+phaseLetter)
	}
	if m.depth > 0 {
		text = strconv.AppendInt(text, int64(m.depth), 10)
		if m.inner != phaseText {
			text = append(text, byte(m.inner)+phaseLetter)
		}
	}
	return MarkupState(text)
}

func (m *markupScan) phase() markupPhase {
	switch {
	case m.depth > 0:
		return m.inner
	case len(m.tags) > 0:
		return m.tags[len(m.tags)-1].phase
	default:
		return phaseText
	}
}

func (m *markupScan) read(text string) {
	for i := 0; i < len(text); {
		phase := m.phase()
		if phase == phaseText {
			plain := strings.IndexByte(text[i:], '<')
			if plain < 0 {
				plain = len(text) - i
			}
			m.show(text[i : i+plain])
			if i += plain; i < len(text) {
				m.begin()
				i++
			}
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		next, step := phase.next(r)
		switch step {
		case stepOpened:
			m.drop()
			m.depth++
			m.inner = phaseText
		case stepClosed:
			m.drop()
			if m.depth > 0 {
				m.depth--
			}
			m.inner = phaseText
		case stepBroken:
			m.drop()
			m.inner = phaseText
		case stepPlain:
			m.inner, m.tags = phaseText, m.tags[:m.kept()]
		case stepOn:
			m.set(next)
		}
		switch {
		case r == '<':
			m.begin()
		case step == stepOn || step == stepPlain:
			m.show(text[i : i+size])
		}
		i += size
		if step == stepClosed && m.depth == 0 {
			for i < len(text) && strings.IndexByte("\t\n\f\r ", text[i]) >= 0 {
				i++
			}
		}
	}
	m.end()
}

// kept is how many half-written tags stay when a character turns out to be plain
// text: within a block all, as it says nothing of those before the block, and
// outside none, as it stands within each of them.
func (m *markupScan) kept() int {
	if m.depth > 0 {
		return len(m.tags)
	}
	return 0
}

func (m *markupScan) show(text string) {
	if m.depth > 0 {
		m.removed = m.removed || text != ""
		return
	}
	m.out = append(m.out, text...)
}

func (m *markupScan) set(phase markupPhase) {
	if m.depth > 0 {
		m.inner = phase
	} else {
		m.tags[len(m.tags)-1].phase = phase
	}
}

// begin reads the "<" of what may be a tag.
func (m *markupScan) begin() {
	if m.depth > 0 {
		m.inner = phaseOpen
		return
	}
	m.tags = append(m.tags, halfTag{phase: phaseOpen, start: len(m.out)})
	m.out = append(m.out, '<')
}

// drop takes the newest half-written tag out of what is seen.
func (m *markupScan) drop() {
	m.removed = true
	if m.depth > 0 {
		return
	}
	tag := m.tags[len(m.tags)-1]
	m.out, m.tags = m.out[:tag.start], m.tags[:len(m.tags)-1]
}

// end takes the tag out that the row's end cuts behind its name. A closing tag
// that closes nothing is forgotten.
func (m *markupScan) end() {
	if m.depth > 0 || len(m.tags) == 0 {
		return
	}
	switch tag := m.tags[len(m.tags)-1]; tag.phase {
	case openNamed, phaseInOpen:
		m.removed = true
		m.out = m.out[:tag.start]
	case closeNamed, phaseInClose:
		m.drop()
	default:
	}
}

// A markupStep is what a character does to a half-written tag.
type markupStep int

const (
	stepOn     markupStep = iota // the tag goes on
	stepPlain                    // it is no tag
	stepOpened                   // it is an opening tag
	stepClosed                   // it is a closing tag
	stepBroken                   // it is a closing tag that another tag breaks off
)

// next tells what r does in phase p, within a tag. A "<" begins a new tag in any case, which
// is up to the caller.
func (p markupPhase) next(r rune) (markupPhase, markupStep) {
	switch {
	case p == openNamed && isNameRune(r), p == closeNamed && isNameRune(r):
		return phaseText, stepPlain
	case p == openNamed, p == phaseInOpen:
		if r == '>' || r == '<' {
			return phaseText, stepOpened
		}
		return phaseInOpen, stepOn
	case p == closeNamed, p == phaseInClose:
		switch r {
		case '>':
			return phaseText, stepClosed
		case '<':
			return phaseText, stepBroken
		default:
			return phaseInClose, stepOn
		}
	case r == '<', isInvisible(r):
		return p, stepOn
	case r == '/' && p == phaseOpen:
		return phaseClose, stepOn
	}
	read := p - phaseOpen
	if p >= phaseClose {
		read = p - phaseClose
	}
	if foldRune(r) == rune(markupName[read]) {
		return p + 1, stepOn
	}
	return phaseText, stepPlain
}

// foldRune lowers the letters that a reader who ignores case takes for those of
// the name; the last two are the only ones outside of ASCII.
func foldRune(r rune) rune {
	switch {
	case r >= 'A' && r <= 'Z':
		return r + 'a' - 'A'
	case r == '\u212a': // Kelvin sign
		return 'k'
	case r == '\u017f': // long s
		return 's'
	default:
		return r
	}
}

// isInvisible tells whether a reader may overlook r within a tag. What is no
// UTF-8 counts: somebody behind the Host may remove it.
func isInvisible(r rune) bool {
	return unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == utf8.RuneError
}

// isNameRune tells whether r behind the name makes it another name.
func isNameRune(r rune) bool {
	return r == '-' || r == '_' || r == ':' || r == '.' ||
		unicode.IsLetter(r) || unicode.IsNumber(r)
}
