package docs

import (
	"regexp"
	"strings"

	"deepwork/session/show"
)

var (
	links  = regexp.MustCompile(`\[([^]]+)\]\([^)]+\)`)
	items  = regexp.MustCompile(`^ *(-|[0-9]+\.) `)
	ruler  = regexp.MustCompile(`^\|[-|]+$`)
	marks  = strings.NewReplacer("**", "", "`", "")
	column = regexp.MustCompile(` *\| *`)
)

// unlinked returns Markdown without the targets of its links.
func unlinked(text string) string { return links.ReplaceAllString(text, "$1") }

// ForTerminal returns Markdown as people read it at a terminal: paragraphs and lists are wrapped at a width, tables
// become lists, code is indented, and links have no targets.
func ForTerminal(text string, width int) string {
	var out, paragraph []string
	flush := func() {
		if paragraph == nil {
			return
		}
		line := marks.Replace(unlinked(strings.Join(paragraph, " ")))
		mark := items.FindString(line)
		hang := strings.Repeat(" ", len(mark))
		wrapped := show.Wrap(strings.TrimPrefix(line, mark), width-len(mark))
		out, paragraph = append(out, mark+show.IndentRest(wrapped, hang)), nil
	}
	code := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			flush()
			code = !code
		case code:
			out = append(out, "    "+line)
		case ruler.MatchString(line):
		case line == "":
			flush()
			out = append(out, "")
		case strings.HasPrefix(line, "#"):
			flush()
			out = append(out, strings.ToUpper(marks.Replace(unlinked(strings.TrimLeft(line, "# ")))))
		case strings.HasPrefix(line, "| "):
			flush()
			cells := column.Split(strings.ReplaceAll(strings.Trim(line, "| "), `\|`, "\x00"), -1)
			paragraph = []string{"- " + strings.ReplaceAll(strings.Join(cells, " – "), "\x00", "|")}
		default:
			if items.MatchString(line) {
				flush()
			}
			paragraph = append(paragraph, strings.TrimPrefix(line, "  "))
		}
	}
	flush()
	return strings.TrimSpace(strings.Join(out, "\n")) + "\n"
}
