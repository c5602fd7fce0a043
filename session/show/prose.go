package show

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/jedib0t/go-pretty/v6/text"

	"deepwork/catalog/jsontext"
)

// Pairs prints texts in two columns. What does not fit continues on separate lines; so does the right text if
// the left one is wider than half of the screen.
func (s *Screen) Pairs(pairs [][2]string) {
	left := 0
	for _, p := range pairs {
		left = max(left, text.StringWidth(Plain(p[0])))
	}
	if width := s.Width(); width > 0 {
		left = min(left, width/2)
	}
	for _, p := range pairs {
		first := Plain(p[0])
		if p[1] == "" {
			s.styled(first + "\n")
			continue
		}

		right := Plain(p[1])
		right = IndentRest(Wrap(right, s.Width()-left-gap), strings.Repeat(" ", left+gap))
		if text.StringWidth(first) > left {
			first += "\n"
			right = strings.Repeat(" ", left+gap) + right
		}
		s.styled(text.Pad(first, left+gap, ' ') + right + "\n")
	}
}

// Wrap breaks the lines of a text between words to fit a width. Longer words stay whole, so that paths can be
// copied. With a width of 0 the text is unchanged.
func Wrap(long string, width int) string {
	if width < leastWrap {
		return long
	}

	var lines []string
	for line := range strings.SplitSeq(long, "\n") {
		line = strings.TrimRightFunc(line, unicode.IsSpace)
		if text.StringWidth(line) <= width {
			lines = append(lines, line)
			continue
		}
		words := strings.Fields(line)
		now := line[:len(line)-len(strings.TrimLeft(line, " "))] + words[0]
		for _, word := range words[1:] {
			if text.StringWidth(now)+1+text.StringWidth(word) > width {
				lines, now = append(lines, now), word
			} else {
				now += " " + word
			}
		}
		lines = append(lines, now)
	}
	return strings.Join(lines, "\n")
}

// leastWrap is the width below which nothing is wrapped.
const leastWrap = 20

// Text prints a text after an indent. Lines longer than the screen continue with two more spaces.
func (s *Screen) Text(indent, long string) {
	var all strings.Builder
	for line := range strings.SplitSeq(Plain(long), "\n") {
		lead := indent + line[:len(line)-len(strings.TrimLeft(line, " "))]
		line = Wrap(strings.TrimLeft(line, " "), s.Width()-len(lead)-gap)
		all.WriteString(strings.TrimRight(lead+IndentRest(line, lead+strings.Repeat(" ", gap)), " ") + "\n")
	}
	s.styled(all.String())
}

// Prose prints a text, with its lines broken to fit the screen.
func (s *Screen) Prose(long string) { s.styled(Wrap(Plain(long), s.Width()) + "\n") }

// Judge prints a line that ends with a colored verdict; well says whether it is good.
func (s *Screen) Judge(line string, well bool, verdict string) {
	style := good
	if !well {
		style = bad
	}

	line = Wrap(Plain(line+verdict), s.Width())
	if before, ok := strings.CutSuffix(line, Plain(verdict)); ok { // the verdict was not wrapped
		line = before + s.paint(style, Plain(verdict))
	}
	s.styled(line + "\n")
}

// Fail prints why a command failed.
func (s *Screen) Fail(program, why string) {
	s.styled(s.paint(bad, program+":") + " " + Plain(why) + "\n")
}

// Heading prints a title and a remark, which gets lines of its own if the screen is narrow.
func (s *Screen) Heading(indent, title, about string) {
	line := strings.TrimRight(indent+Inline(title)+" "+Inline(about), " ")
	line = indent + IndentRest(Wrap(strings.TrimPrefix(line, indent), s.Width()-len(indent)-gap),
		indent+strings.Repeat(" ", gap))
	if rest, ok := strings.CutPrefix(line, indent+Inline(title)); ok {
		line = indent + s.paint(strong, Inline(title)) + rest
	}
	s.styled(line + "\n")
}

// Escapes are the sequences that color text or move it at a terminal. None contains a markup character, which
// pages would escape.
var Escapes = regexp.MustCompile("\x1b(?:" +
	`\[(?:[0-;=?]|&[lg]t;)*[ !#$%()*+./-]*[@-~]?` + `|[\]P^_X][^\x07\x1b<>"']*(?:\x07|\x1b\\)` +
	`|[ #%()*+./-][0-9@A-Za-z]` + `|[0-9=@-Z^_a-z|}~\\])?`)

// colors are the sequences that color text. None conceals it.
var colors = regexp.MustCompile("\x1b" + `\[(?:[0-79]|[1-9]\d+)?(?:;\d{2,3}|;[0-79])*m`)

// Plain makes a text safe for a terminal. Goals, notes and names come from agents, so escape sequences are
// left out, and invisible characters become escapes as in JSON. Newlines and tabs remain.
func Plain(text string) string {
	var b strings.Builder
	runes := []rune(strings.ReplaceAll(Escapes.ReplaceAllString(text, ""), "\r\n", "\n"))
	for i, r := range runes {
		switch {
		case r == '\n' || r == '\t' || i > 0 && i+1 < len(runes) && joins(runes[i-1], r, runes[i+1]):
			b.WriteRune(r)
		case unseen(r):
			for _, unit := range utf16.AppendRune(nil, r) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
		default:
			b.WriteRune(r)
		}
	}

	return b.String()
}

// Colored is like Plain, but a text keeps its colors if the screen shows colors.
func (s *Screen) Colored(text string) string {
	if !s.color {
		return Plain(text)
	}

	var b strings.Builder
	at := 0
	for _, m := range colors.FindAllStringIndex(text, -1) {
		b.WriteString(Plain(text[at:m[0]]) + text[m[0]:m[1]])
		at = m[1]
	}
	b.WriteString(Plain(text[at:]))
	if at > 0 {
		b.WriteString("\x1b[0m")
	}
	return b.String()
}

// joins reports whether a character is a joiner between two that it may join: emoji, or letters of scripts
// whose shape it changes. Between others it would be invisible.
func joins(before, r, after rune) bool {
	joined := func(r rune) bool {
		return r > unicode.MaxLatin1 && r != unicode.ReplacementChar &&
			unicode.In(r, unicode.Letter, unicode.Mark, unicode.Symbol)
	}
	return (r == '\u200c' || r == '\u200d') && joined(before) && joined(after)
}

// unseen reports whether a character is invisible, or moves the text around it: control and format
// characters, separators of lines and paragraphs, fillers, and unassigned ones. White space counts as
// visible, and so does the selector of an emoji's form.
func unseen(r rune) bool {
	switch {
	case r == '\ufe0e' || r == '\ufe0f' || unicode.Is(unicode.Zs, r):
		return false
	case r == '\u2800': // the Braille pattern without dots
		return true
	}
	return !unicode.IsPrint(r) || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Exact is Plain for a text on which somebody bases a decision, such as a diff: it shows escape sequences
// instead of leaving them out.
func Exact(text string) string { return Plain(strings.ReplaceAll(text, "\x1b", `\u001b`)) }

// Inline is Exact for a text that must stay on one line, such as a name or path.
func Inline(text string) string {
	return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(Exact(text))
}

// OneLine converts a text to one line of at most limit characters.
func OneLine(text string, limit int) string {
	return jsontext.Clip(strings.Join(strings.Fields(Plain(text)), " "), limit)
}

// Indent inserts prefix before every line that is not empty.
func Indent(text, prefix string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.TrimRight(line, "\r\n") != "" {
			b.WriteString(prefix)
		}
		b.WriteString(line)
	}
	return b.String()
}

// Columns returns how many columns of a terminal a line takes; wide characters take two.
func Columns(line string) int { return text.StringWidthWithoutEscSequences(line) }

// Count returns "1 job", "2 jobs".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
