package page

import (
	"bytes"
	"context"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"deepwork/session"
)

// prose renders Markdown. See safely for what it changes.
var prose = goldmark.New(
	goldmark.WithExtensions(extension.Strikethrough, extension.TaskList,
		extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignNone))),
	goldmark.WithParserOptions(parser.WithAutoHeadingID(), parser.WithASTTransformers(util.Prioritized(safely{}, 0))),
)

// scrolling lets the keyboard scroll what may be wider than the page. Both tags come from the renderer only: those in
// the text are escaped.
var scrolling = strings.NewReplacer("<pre>", `<pre tabindex="0">`, "<table>",
	`<div class="scroll" tabindex="0"><table>`, "</table>", "</table></div>")

// maxBrackets is how many brackets Markdown may have, and nests matches deeply nested lines: rendering time grows with
// the square of both.
const maxBrackets = 2000

var nests = regexp.MustCompile(`(?m)^(?:[ \t]*(?:>|(?:[-+*]|[0-9]+[.)])[ \t])){30}`)

// isSlow reports whether a text would take too long to render.
func isSlow(text []byte) bool {
	return bytes.Count(text, []byte("[")) > maxBrackets || nests.Match(text)
}

// markdown renders a text that may come from an agent. The result runs nothing and loads nothing from elsewhere.
func markdown(text []byte) template.HTML {
	var b bytes.Buffer
	if isSlow(text) || prose.Convert(text, &b) != nil { // the buffer refuses nothing
		return template.HTML("<pre>" + template.HTMLEscapeString(string(text)) + "</pre>")
	}
	return template.HTML(scrolling.Replace(b.String()))
}

// safely keeps links to http, https and relative paths; it replaces others, and images, by their text. HTML
// becomes text. Headings get ids that no other element of the page has.
type safely struct{}

const headingID = "h-"

// Transform implements parser.ASTTransformer.
func (safely) Transform(doc *ast.Document, reader text.Reader, _ parser.Context) {
	source := reader.Source()
	// by their children, after the walk, outer ones first
	var replaced []ast.Node
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // none returns an error
		if !entering {
			return ast.WalkContinue, nil
		}

		switch n := n.(type) {
		case *ast.Heading:
			if id, ok := n.AttributeString("id"); ok {
				n.SetAttributeString("id", headingID+string(id.([]byte)))
			}
		case *ast.Image: // one of a path of this server that never stops loading would hold up the page
			replaced = append(replaced, n)
		case *ast.AutoLink:
			to := strings.ToLower(string(n.URL(source)))
			if !strings.HasPrefix(to, "http://") && !strings.HasPrefix(to, "https://") {
				n.AppendChild(n, verbatim(n.Label(source)))
				replaced = append(replaced, n)
			}
			n.SetAttributeString("rel", "noopener noreferrer")
		case *ast.Link:
			n.Destination = resolved(n.Destination)
			switch to, err := url.Parse(string(n.Destination)); {
			case err == nil && (to.Scheme == "http" || to.Scheme == "https"):
				n.SetAttributeString("rel", "noopener noreferrer")
			case err != nil || to.Scheme != "" || to.Host != "":
				replaced = append(replaced, n)
			case to.Fragment != "":
				to.Fragment = headingID + to.Fragment
				n.Destination = []byte(to.String())
			}
		case *ast.RawHTML:
			n.AppendChild(n, verbatim(n.Segments.Value(source)))
			replaced = append(replaced, n)
		case *ast.HTMLBlock:
			code := ast.NewCodeBlock()
			code.SetLines(n.Lines())
			if n.HasClosure() {
				code.Lines().Append(n.ClosureLine)
			}
			n.AppendChild(n, code)
			replaced = append(replaced, n)
		}
		return ast.WalkContinue, nil
	})
	for _, n := range replaced {
		for child := n.FirstChild(); child != nil; child = n.FirstChild() {
			n.Parent().InsertBefore(n.Parent(), n, child)
		}
		n.Parent().RemoveChild(n.Parent(), n)
	}
}

// resolved returns the destination of a link without references to characters, such as &colon;, which the renderer
// would resolve after the scheme was looked at.
func resolved(destination []byte) []byte {
	for {
		next := util.ResolveEntityNames(util.ResolveNumericReferences(util.UnescapePunctuations(destination)))
		if bytes.Equal(next, destination) {
			return next
		}
		destination = next
	}
}

// verbatim returns a node for a text that is escaped, and otherwise shown as it is.
func verbatim(text []byte) ast.Node {
	s := ast.NewString(text)
	s.SetRaw(true)
	return s
}

// A helpPage is a page of the documentation.
type helpPage struct {
	Index bool
	Text  template.HTML
}

// help shows a page of the documentation. Links of one to another are relative, and so lead to the other's URL here.
func (s *Site) help(_ context.Context, _ session.Caller, r *http.Request) (*shown, error) {
	file := path.Join(r.PathValue("folder"), r.PathValue("file"))
	text, err := fs.ReadFile(s.Help, file)
	if err != nil { // embedded files can be read
		return nil, &refusal{http.StatusNotFound, "The documentation has no page " + file + "."}
	}
	title, _, _ := strings.Cut(strings.TrimPrefix(string(text), "# "), "\n")
	return &shown{view: "help", title: title, data: helpPage{file == "README.md", markdown(text)}}, nil
}
