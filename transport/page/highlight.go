package page

import (
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/chroma/v2"
)

//go:embed lexers
var lexerFiles embed.FS

// lexers are the languages that have colors. They are not those of chroma's own package of lexers, which
// reads all of its 270 whenever any command starts.
var lexers = sync.OnceValues(func() (*chroma.LexerRegistry, error) {
	all := chroma.NewLexerRegistry()
	files, err := fs.Glob(lexerFiles, "lexers/*.xml")
	for _, file := range files {
		lexer, err := chroma.NewXMLLexer(lexerFiles, file)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		all.Register(lexer)
	}
	return all, err
})

// The bounds of coloring a text: it takes longer than the rest of a page, and patterns can be slow on a hostile one.
const maxColored = 64 << 10

var maxColoring = 200 * time.Millisecond // a variable for tests on busy machines

// highlight returns a text as HTML, with its words in elements of the classes hl-k (keywords), hl-s (texts), hl-n
// (numbers), hl-c (comments) and hl-f (names that are defined, tags and the like). The name of the file says in which
// language it is. No element goes over the end of a line, so that the lines can be shown apart.
func highlight(file string, text []byte) (markup template.HTML) {
	plain := template.HTML(template.HTMLEscapeString(string(text)))
	defer func() {
		if recover() != nil { // a lexer panics
			markup = plain
		}
	}()

	all, err := lexers()
	if err != nil || len(text) > maxColored {
		return plain
	}
	lexer := all.Match(path.Base(file))
	if lexer == nil {
		return plain
	}
	tokens, err := lexer.Tokenise(&chroma.TokeniseOptions{State: "root"}, string(text))
	if err != nil {
		return plain
	}

	var b strings.Builder
	began := time.Now()
	for token := tokens(); token != chroma.EOF; token = tokens() {
		if time.Since(began) > maxColoring {
			return plain
		}

		class := classOf(token.Type)
		for i, part := range strings.Split(token.Value, "\n") {
			if i > 0 {
				b.WriteByte('\n')
			}
			part = template.HTMLEscapeString(part)
			if class != "" && part != "" {
				part = `<span class="` + class + `">` + part + `</span>`
			}
			b.WriteString(part)
		}
	}

	markup = template.HTML(b.String())
	if len(text) > 0 && text[len(text)-1] != '\n' {
		markup = template.HTML(strings.TrimSuffix(string(markup), "\n")) // some lexers add one
	}
	return markup
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
	case t == chroma.NameFunction, t == chroma.NameClass, t == chroma.NameTag, t == chroma.NameAttribute,
		t == chroma.NameBuiltin, t == chroma.NameDecorator:
		return "hl-f"
	}

	return ""
}
