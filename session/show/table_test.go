package show

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"

	"deepwork/actor/testkit"
)

func printed(columns int, print func(*Screen)) string {
	var b bytes.Buffer
	print(NewScreen(&b, func(name string) string {
		if name == "COLUMNS" && columns > 0 {
			return fmt.Sprint(columns)
		}
		return ""
	}))
	return b.String()
}

// At every width a table keeps what may not be cut, and is no wider than the screen.
func TestATableFitsTheScreen(t *testing.T) {
	columns := []Column{{Title: "ID"}, {Title: "STATE", State: true}, {Title: "WHERE", Least: 8, Optional: true}, {Title: "NONE", Optional: true}, {Title: "GOAL", Least: 10}, {Title: "COMMAND", Below: true}}
	goal := "Ship 漢字漢字 it to everybody\nwho \x1b[31mwaits for it"
	rows := [][]string{{"0123abcd", "active", "somewhere/else", "", goal, "deepwork board show 0123abcd"}, {"89abcdef", "", "", "", "x", "deepwork x"}}
	for width := range 201 {
		if width > 0 && width < 35 {
			continue // what may not be cut needs this
		}
		got := printed(width, func(s *Screen) { s.Table(columns, rows) })
		for line := range strings.Lines(got) {
			n := text.StringWidth(strings.TrimSuffix(line, "\n"))
			testkit.True(t, width <= 0 || n <= width, "%d columns of %d: %q", n, width, line)
			testkit.Equal(t, strings.TrimRight(line, " \n")+"\n", line, "at %d it ends with blanks", width)
		}
		testkit.ContainsAll(t, got, []string{"0123abcd  active", "deepwork board show 0123abcd", "Ship "}, "at %d", width)
		testkit.True(t, !strings.Contains(got, "NONE") && !strings.Contains(got, "\x1b"), "at %d: %q", width, got)
	}
	testkit.Equal(t, printed(6, func(s *Screen) {
		s.Table([]Column{{Title: "AB"}, {Title: "CD", Optional: true}}, [][]string{{"1", "2"}})
	}), "AB  CD\n1   2\n", "as wide as the screen")
	testkit.Equal(t, printed(20, func(s *Screen) {
		s.Table([]Column{{Title: "AB", Least: 4}, {Title: "CD", Least: 4}, {Title: "EF", Least: 4}}, [][]string{{"one two three", "four five", "sixteen"}})
	}), "AB      CD     EF\none t…  four…  sixt…\n", "the widest are cut, the last first")
	testkit.Contains(t, printed(0, func(s *Screen) { s.Table(columns, rows) }), `everybody who waits for it`, "without a limit")
	for _, emoji := range []string{"👩\u200d💻 x", "👍🏽 x", "🏳️\u200d🌈 x"} {
		testkit.Contains(t, printed(0, func(s *Screen) { s.Table(columns[4:5], [][]string{{emoji}}) }), emoji, "is cut without a limit")
	}
}

// Prose continues below itself; what is to be copied is not broken.
func TestProseFitsTheScreen(t *testing.T) {
	const long = "one two three four five six seven eight"
	for name, c := range map[string]struct {
		print func(*Screen)
		want  string
	}{
		"a field":          {func(s *Screen) { s.Field(6, "goal", long) }, "goal:  one two three four five\n       six seven eight\n"},
		"a path":           {func(s *Screen) { s.Field(6, "path", "/a/"+strings.Repeat("x", 40)) }, "path:  /a/" + strings.Repeat("x", 40) + "\n"},
		"an indented text": {func(s *Screen) { s.Text("  ", "  "+long) }, "    one two three four five\n      six seven eight\n"},
		"pairs":            {func(s *Screen) { s.Pairs([][2]string{{"a", "-> " + long}, {"bcd", ""}}) }, "a    -> one two three four\n     five six seven eight\nbcd\n"},
		"a path in prose":  {func(s *Screen) { s.Text("", long[:13]+" /a/"+strings.Repeat("x", 40)+" "+long[14:]) }, "one two three\n  /a/" + strings.Repeat("x", 40) + "\n  four five six seven eight\n"},
		"a wide pair":      {func(s *Screen) { s.Pairs([][2]string{{"a_long_name_of_a_step", "-> a.md, b.md"}, {"bcd", "-> c"}}) }, "a_long_name_of_a_step\n                 -> a.md, b.md\nbcd              -> c\n"},
		"a heading":        {func(s *Screen) { s.Heading("", "notes", long) }, "notes one two three four\n  five six seven eight\n"},
		"a judgement":      {func(s *Screen) { s.Judge("9 sessions, 12 tasks, 1 attempt: ", true, "all is well") }, "9 sessions, 12 tasks, 1\nattempt: all is well\n"},
	} {
		testkit.Equal(t, printed(30, c.print), c.want, "%s", name)
	}
	for want, long := range map[string]string{
		"12345678 01234567890\n2": "12345678 01234567890 2", "12345678\n012345678901": "12345678 012345678901",
		"  two\n1234567890123456\n\nx": "  two 1234567890123456\n" + strings.Repeat(" ", 21) + "\nx",
	} {
		testkit.Equal(t, Wrap(long, 20), want)
		testkit.Equal(t, Wrap(long, 19), long, "too narrow to be wrapped")
	}
}
