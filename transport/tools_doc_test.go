package transport

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/board"
	"deepwork/transport/tool"
)

// toolsDocs is the folder of the pages about tools: tools.md, and one page per toolset.
const toolsDocs = "../cmd/deepwork/docs/reference/"

// The pages about tools have what the server lists, in tables: made from the schemas as a client gets them, and not as
// the code has them.
func TestToolsDocument(t *testing.T) {
	t.Parallel()
	for file, text := range toolsDocument(t) {
		testkit.Generated(t, toolsDocs+file, "## All tools", text, *update, "go test ./transport -run TestToolsDocument -update")
	}
}

// toolsDocument makes the generated parts of the pages, by file.
func toolsDocument(t *testing.T) map[string]string {
	t.Helper()
	all := listedTools(t)
	sets := map[string][]string{}
	for _, set := range config.Toolsets {
		chosen := []string{set}
		if set == "source" {
			chosen = append(chosen, "workflows") // which it needs
		}
		for _, workspace := range []*board.Context{nil, new(board.Context)} {
			s := testkit.Get(newServer(engines{connect: new(fakes).agent, workspace: workspace}, chosen, "", slog.New(slog.DiscardHandler))).Must(t)
			for name := range listed(t, client(t, s)) {
				if !slices.Contains(sets[set], name) && (set == "workflows" || !slices.Contains(sets["workflows"], name)) {
					sets[set] = append(sets[set], name)
				}
			}
		}
	}
	pages := map[string]string{}
	d := &document{replies: map[string]string{}}
	var index document
	index.line("\n| tool | set | title | |\n|---|---|---|---|")
	for _, set := range config.Toolsets {
		slices.Sort(sets[set])
		d.file = "tools-" + set + ".md"
		d.Reset()
		for _, name := range sets[set] {
			index.line("| [%s](%s#%s) | `%s` | %s | %s |", name, d.file, name, set, all[name].Title, annotationsOf(all[name]))
			d.tool(t, all[name])
		}
		pages[d.file] = d.String()
	}
	if d.step != nil {
		index.line("\n## A step\n\nWhat `begin_step` and each entry of `concurrent_steps` are, if not `null`.\n")
		index.fields(d.step)
	}
	index.line("\n## Error codes\n\nThe codes in `%s` and `%s` of `_meta`, and what to do about each. A text that begins with `Waiting:` says that the caller can only wait or call again.\n", tool.ErrorMeta, tool.WaitingMeta)
	index.line("| code | what to do |\n|---|---|")
	for _, row := range codeRows(t) {
		index.line("| `%s` | %s |", row[0], cell(row[1]))
	}
	pages["tools.md"] = index.String()
	return pages
}

// A listedTool is a tool as its bytes are: with the order of its properties.
type listedTool struct {
	Name, Title, Description  string
	Annotations               *mcp.ToolAnnotations
	InputSchema, OutputSchema json.RawMessage
}

// listedTools lists all tools there are, by name.
func listedTools(t *testing.T) map[string]*listedTool {
	t.Helper()
	all := map[string]*listedTool{}
	for _, options := range [][]func(*engines){nil, {inWorkspace}} {
		s, _ := fakeServer(t, nil, options...)
		lines := overStdio(t, s, hello+`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`+"\n")
		var list struct{ Result struct{ Tools []*listedTool } }
		must(t, json.Unmarshal([]byte(lines[len(lines)-1]), &list))
		for _, tool := range list.Result.Tools {
			all[tool.Name] = tool
		}
	}
	return all
}

// ordered reads a schema and keeps the order of its properties, which the schema's
// own type forgets.
func ordered(t *testing.T, data json.RawMessage) *jsonschema.Schema {
	t.Helper()
	s := schemaFrom(t, data)
	var walk func(data json.RawMessage, s *jsonschema.Schema)
	walk = func(data json.RawMessage, s *jsonschema.Schema) {
		var raw struct {
			Properties           json.RawMessage
			Items                json.RawMessage
			AdditionalProperties json.RawMessage
			Defs                 map[string]json.RawMessage `json:"$defs"`
		}
		if s == nil || len(data) == 0 || data[0] != '{' {
			return
		}
		must(t, json.Unmarshal(data, &raw))
		if raw.Properties != nil {
			d := json.NewDecoder(bytes.NewReader(raw.Properties))
			d.Token() // {
			for d.More() {
				name := testkit.Get(d.Token()).Must(t)
				var of json.RawMessage
				must(t, d.Decode(&of))
				s.PropertyOrder = append(s.PropertyOrder, name.(string))
				walk(of, s.Properties[name.(string)])
			}
		}
		walk(raw.Items, s.Items)
		walk(raw.AdditionalProperties, s.AdditionalProperties)
		for name, def := range raw.Defs {
			walk(def, s.Defs[name])
		}
	}
	walk(data, s)
	return s
}

// A document is written from top to bottom.
type document struct {
	bytes.Buffer
	file    string
	replies map[string]string  // tables that are in a page already, and where
	step    *jsonschema.Schema // what the replies that describe steps share
}

func (d *document) line(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

// tool writes the section of one tool.
func (d *document) tool(t *testing.T, tool *listedTool) {
	t.Helper()
	d.line("\n### %s\n\n**%s.** %s\n\n%s\n", tool.Name, tool.Title, annotationsOf(tool), tool.Description)
	input, output := ordered(t, tool.InputSchema), ordered(t, tool.OutputSchema)
	if len(input.Properties) == 0 {
		d.line("It takes no arguments.")
	} else {
		d.line("| argument | type | required | meaning |\n|---|---|---|---|")
		rows(input, "", func(path string, needed bool, s *jsonschema.Schema) {
			d.line("| `%s` | %s | %s | %s |", path, typeOf(s), map[bool]string{true: "yes", false: "no"}[needed], cell(s.Description))
		})
	}
	for name, def := range output.Defs {
		if def.Description = ""; d.step == nil {
			d.step = def
		} else if !reflect.DeepEqual(d.step, def) {
			t.Errorf("the %s of %s is not that of the other tools", name, tool.Name)
		}
	}
	var table document
	if output.Description != "" {
		table.line("%s\n", output.Description)
	}
	if len(output.Properties) > 0 {
		table.fields(output)
	}
	if other, ok := d.replies[table.String()]; ok {
		_, name, _ := strings.Cut(other, "#")
		d.line("\nThe reply is the same as that of [%s](%s).", name, strings.TrimPrefix(other, d.file))
		return
	}
	d.replies[table.String()] = d.file + "#" + tool.Name
	d.line("\n%s", strings.TrimSuffix(table.String(), "\n"))
}

// fields writes the table of a reply.
func (d *document) fields(s *jsonschema.Schema) {
	d.line("| field of the reply | type | meaning |\n|---|---|---|")
	rows(s, "", func(path string, always bool, s *jsonschema.Schema) {
		kind := typeOf(s)
		if !always {
			kind += ", may be missing"
		}
		d.line("| `%s` | %s | %s |", path, kind, cell(s.Description))
	})
}

// rows gives every property of a schema, at any depth, in the order of the schema,
// and whether it is required.
func rows(s *jsonschema.Schema, under string, row func(path string, required bool, s *jsonschema.Schema)) {
	for _, name := range s.PropertyOrder {
		p := s.Properties[name]
		row(under+name, slices.Contains(s.Required, name), p)
		inside(p, under+name, row)
	}
}

// inside returns the fields in the entries of a list and in the values of an object.
func inside(p *jsonschema.Schema, path string, row func(string, bool, *jsonschema.Schema)) {
	rows(p, path+".", row)
	if p.Items != nil {
		if p.Items.Description != "" {
			row(path+"[]", true, p.Items)
		}
		inside(p.Items, path+"[]", row)
	}
	if more := p.AdditionalProperties; more != nil && more.Not == nil {
		row(path+".*", true, more)
		inside(more, path+".*", row)
	}
}

// typeOf describes the type of a property, its values and its limits, in words.
func typeOf(s *jsonschema.Schema) string {
	kinds, null := slices.Clone(s.Types), slices.Contains(s.Types, "null")
	if s.Type != "" {
		kinds = []string{s.Type}
	}
	kinds = slices.DeleteFunc(kinds, func(k string) bool { return k == "null" })
	text := strings.Join(kinds, " or ")
	switch {
	case len(kinds) == 0 || len(kinds) >= 5:
		text, null = "any JSON", false
	case len(kinds) == 1 && kinds[0] == "array":
		text = "list"
		if s.Items != nil {
			text += " of " + typeOf(s.Items)
		}
	}
	if s.Ref != "" {
		text = "[step](tools.md#a-step)"
	}
	var values []string
	for _, v := range s.Enum {
		if v != nil {
			values = append(values, fmt.Sprintf("`%v`", v))
		}
	}
	if len(values) > 0 {
		text += ": " + strings.Join(values, ", ")
	}
	var limits []string
	if s.Minimum != nil && s.Maximum != nil {
		limits = append(limits, fmt.Sprintf("%v to %v", *s.Minimum, *s.Maximum))
	}
	if s.MaxLength != nil {
		limits = append(limits, fmt.Sprintf("at most %d characters", *s.MaxLength))
	}
	if s.MinItems != nil {
		limits = append(limits, fmt.Sprintf("at least %d", *s.MinItems))
	}
	if s.MaxItems != nil {
		limits = append(limits, fmt.Sprintf("at most %d entries", *s.MaxItems))
	}
	if len(limits) > 0 {
		text += ", " + strings.Join(limits, ", ")
	}
	if null {
		text += ", or null"
	}
	return text
}

// cell is a text in a table of Markdown.
func cell(s string) string {
	return strings.NewReplacer("\n", " ", "|", `\|`, "<", `\<`).Replace(s)
}

// annotationsOf describes the annotations of a tool.
func annotationsOf(tool *listedTool) string {
	var words []string
	switch a := tool.Annotations; {
	case a.ReadOnlyHint:
		words = append(words, "Only reads")
	case *a.DestructiveHint:
		words = append(words, "Changes or deletes existing data")
	default:
		words = append(words, "Adds data")
	}
	if a := tool.Annotations; a.IdempotentHint && !a.ReadOnlyHint {
		words = append(words, "repeating it has no further effect")
	}
	if *tool.Annotations.OpenWorldHint {
		words = append(words, "reaches beyond the project")
	}
	return strings.Join(words, "; ") + "."
}

// codesFile has the codes of errors, each with what to do. It is the source of the table in tools.md.
const codesFile = "../session/codes/codes.go"

// codeRows reads codesFile: each code with its comment.
func codeRows(t *testing.T) (rows [][2]string) {
	t.Helper()
	for _, s := range codeConstants(t) {
		code := testkit.Get(strconv.Unquote(s.Values[0].(*ast.BasicLit).Value)).Must(t)
		rows = append(rows, [2]string{code, strings.TrimSpace(s.Comment.Text())})
	}
	return rows
}

func codeConstants(t *testing.T) (all []*ast.ValueSpec) {
	t.Helper()
	f := testkit.Get(parser.ParseFile(token.NewFileSet(), codesFile, nil, parser.ParseComments)).Must(t)
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.ValueSpec); ok {
			all = append(all, s)
		}
		return true
	})
	return all
}

// Each code is listed once, with what to do, and used; errors have no other.
func TestEveryErrorCodeIsListed(t *testing.T) {
	t.Parallel()
	rows := codeRows(t)
	testkit.True(t, slices.IsSortedFunc(rows, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) }) && len(rows) >= 100, "%s has %d codes, or is not sorted", codesFile, len(rows))
	for i, row := range rows {
		if len(row[1]) < 10 || i > 0 && row[0] == rows[i-1][0] {
			t.Errorf("%s: %s is listed twice, or does not say what to do", codesFile, row[0])
		}
	}
	unused := map[string]string{} // the names, by the code in quotes: some packages have constants of their own
	for _, s := range codeConstants(t) {
		unused[s.Values[0].(*ast.BasicLit).Value] = s.Names[0].Name
	}
	set := token.NewFileSet()
	must(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || path == filepath.FromSlash(codesFile) {
			return err
		}
		f := testkit.Get(parser.ParseFile(set, path, nil, parser.SkipObjectResolution)).Must(t)
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, is := n.X.(*ast.Ident); is && x.Name == "codes" {
					maps.DeleteFunc(unused, func(_, name string) bool { return name == n.Sel.Name })
				}
			case *ast.BasicLit:
				delete(unused, n.Value)
			case *ast.CallExpr:
				name := ""
				switch f := n.Fun.(type) {
				case *ast.SelectorExpr:
					name = f.Sel.Name
				case *ast.Ident:
					name = f.Name
				}
				if name == "FaultOf" && len(n.Args) > 2 { // which names what is unknown
					if l, is := n.Args[2].(*ast.BasicLit); is {
						delete(unused, `"unknown_`+strings.Trim(l.Value, `"`)+`"`)
					}
				}
				if (name == "Wrong" || name == "NotNow") && len(n.Args) > 1 {
					if l, is := n.Args[0].(*ast.BasicLit); is {
						t.Errorf("%s: use a constant of package codes instead of %s", set.Position(n.Pos()), l.Value)
					}
				}
			}
			return true
		})
		return nil
	}))
	for _, name := range unused {
		t.Errorf("%s: no error has the code %s", codesFile, name)
	}
}
