package page

import (
	"html/template"
	"strings"
	"time"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/lexers"
)

const (
	// highlightMost is how many bytes of a text are colored.
	highlightMost = 64 << 10
	// highlightTime is how long that may take: a hostile text can make a lexer slow.
	highlightTime = 2 * time.Second
)

// highlight returns a text as HTML, with its words in elements of the classes hl-k (keywords), hl-s (texts), hl-n
// (numbers), hl-c (comments) and hl-f (names that are defined, tags and the like). The path says in which language it
// is. No element goes over the end of a line, so that the lines can be shown apart.
func highlight(path string, text []byte) template.HTML {
	plain := template.HTML(template.HTMLEscapeString(string(text)))
	lexer := lexers.Match(path)
	if lexer == nil || len(text) > highlightMost {
		return plain
	}
	tokens, err := chroma.Coalesce(lexer).Tokenise(&chroma.TokeniseOptions{State: "root"}, string(text))
	if err != nil {
		return plain
	}
	var b strings.Builder
	began := time.Now()
	for token := tokens(); token != chroma.EOF; token = tokens() {
		if time.Since(began) > highlightTime {
			return plain
		}
		class := classOf(token.Type)
		for i, line := range strings.Split(token.Value, "\n") {
			if i > 0 {
				b.WriteByte('\n')
			}
			if class == "" || line == "" {
				b.WriteString(template.HTMLEscapeString(line))
				continue
			}
			b.WriteString(`<span class="` + class + `">` + template.HTMLEscapeString(line) + `</span>`)
		}
	}
	return template.HTML(b.String())
}

// classOf returns the class of a kind of token, "" if it has no color.
func classOf(t chroma.TokenType) string {
	switch {
	case t.InCategory(chroma.Comment):
		return "hl-c"
	case t.InSubCategory(chroma.LiteralString):
		return "hl-s"
	case t.InSubCategory(chroma.LiteralNumber):
		return "hl-n"
	case t.InCategory(chroma.Keyword), t == chroma.OperatorWord:
		return "hl-k"
	case t == chroma.NameFunction, t == chroma.NameClass, t == chroma.NameTag, t == chroma.NameAttribute, t == chroma.NameBuiltin, t == chroma.NameDecorator:
		return "hl-f"
	}
	return ""
}
