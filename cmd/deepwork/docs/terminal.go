package docs

import (
	"path"
	"regexp"
	"strings"

	"deepwork/session/show"
)

var (
	links     = regexp.MustCompile(`\[([^]]+)\]\(([^)]+)\)`)
	items     = regexp.MustCompile(`^ *(-|>|[0-9]+\.) `)
	tableRule = regexp.MustCompile(`^\|[-|]+$`)
	cells     = regexp.MustCompile(` *\| *`)
	marks     = strings.NewReplacer("**", "", "`", "", `\|`, "|")
)

// plain returns a paragraph of a topic without markup. Links become the names of their topics.
func (t Topic) plain(text string) string {
	text = links.ReplaceAllStringFunc(text, func(link string) string {
		parts := links.FindStringSubmatch(link)
		to, _, _ := strings.Cut(parts[2], "#")
		if name, ok := strings.CutSuffix(to, ".md"); ok {
			to = path.Join(path.Dir(t.Name), name)
		}
		if to == "" {
			return parts[1]
		}
		return parts[1] + " (" + to + ")"
	})
	return marks.Replace(text)
}

// ForTerminal lays a topic out for a terminal of a width: paragraphs and lists are wrapped, tables become lists, code
// is indented.
func (t Topic) ForTerminal(width int) string {
	var out []string
	paragraph := ""
	flush := func() {
		if paragraph == "" {
			return
		}
		paragraph = t.plain(paragraph) // a link may begin on one line and end on the next
		mark := items.FindString(paragraph)
		wrapped := show.Wrap(strings.TrimPrefix(paragraph, mark), width-len(mark))
		out, paragraph = append(out, mark+show.IndentRest(wrapped, strings.Repeat(" ", len(mark)))), ""
	}

	code := false
	for line := range strings.SplitSeq(t.Text, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			flush()
			code = !code
		case code:
			out = append(out, "    "+line)
		case line == "":
			flush()
			out = append(out, "")
		case strings.HasPrefix(line, "#"):
			out = append(out, strings.ToUpper(t.plain(strings.TrimLeft(line, "# "))))
		case tableRule.MatchString(line): // what is above it is the head of a table
			paragraph = strings.ToUpper(strings.TrimPrefix(paragraph, "- "))
		case strings.HasPrefix(line, "| "):
			flush()
			row := strings.ReplaceAll(strings.Trim(line, "| "), `\|`, "\x00") // not between cells
			paragraph = "- " + strings.ReplaceAll(cells.ReplaceAllString(row, " – "), "\x00", "|")
		case items.MatchString(line) && !(strings.HasPrefix(line, ">") && strings.HasPrefix(paragraph, ">")):
			flush()
			paragraph = line
		default:
			paragraph = strings.TrimPrefix(paragraph+" "+strings.TrimLeft(line, "> "), " ")
		}
	}

	flush()
	return strings.TrimSpace(strings.Join(out, "\n")) + "\n"
}
