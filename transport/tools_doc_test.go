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
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
	"deepwork/session/board"
	"deepwork/transport/tool"
)

// toolsDocs is the folder of the pages about tools: tools.md, and one page per toolset.
const toolsDocs = "../cmd/deepwork/docs/reference/"

// The pages about tools have what the server lists, in tables: made from the schemas as a client gets them, and of
// replies also which fields are always there, which clients are not told.
func TestToolsDocument(t *testing.T) {
	t.Parallel()
	all := listTools(t)
	sets := map[string][]string{}
	for _, set := range config.Toolsets {
		chosen := []string{set}
		if set == "source" {
			chosen = append(chosen, "workflows") // which it needs
		}
		for _, workspace := range []*board.Context{nil, new(board.Context)} {
			s := testkit.Get(newServer(engines{connect: new(fakes).agent, workspace: workspace}, chosen, "",
				slog.New(slog.DiscardHandler))).Must(t)
			for name := range listed(t, client(t, s)) {
				if set == "workflows" || !slices.Contains(sets["workflows"], name) {
					sets[set] = append(sets[set], name)
				}
			}
		}
		slices.Sort(sets[set])
		sets[set] = slices.Compact(sets[set])
	}

	generated := func(file string, text fmt.Stringer) {
		testkit.Generated(t, toolsDocs+file, "## All tools", text.String(), *update,
			"go test ./transport -run TestToolsDocument -update")
	}
	d, index := &document{replies: map[string]string{}}, new(document)
	index.line("\n| tool | set | title | |\n|---|---|---|---|")
	for _, set := range config.Toolsets {
		d.file = "tools-" + set + ".md"
		d.Reset()
		for _, name := range sets[set] {
			index.line("| [%s](%s#%s) | `%s` | %s | %s |", name, d.file, name, set, all[name].Title,
				annotationsOf(all[name]))
			d.tool(t, all[name])
		}
		generated(d.file, d)
	}
	index.line("\n## A step\n\nWhat `begin_step` and each entry of `concurrent_steps` are, if not `null`.\n")
	index.fields(d.step)
	index.line("\n## Error codes\n\nThe codes in `%s` and `%s` of `_meta`, and what to do about each. A text that "+
		"begins with `Waiting:` says that the caller can only wait or call again.\n", tool.ErrorMeta, tool.WaitingMeta)
	index.line("| code | what to do |\n|---|---|")
	for _, c := range codeConstants(t) {
		index.line("| `%s` | %s |", strings.Trim(c.Values[0].(*ast.BasicLit).Value, `"`),
			cell(strings.Join(strings.Fields(c.Doc.Text()), " ")))
	}
	generated("tools.md", index)
}

// ordered reads a schema and keeps the order of its properties, which the schema's own type forgets.
func ordered(t *testing.T, data json.RawMessage) *jsonschema.Schema {
	t.Helper()
	s := schemaFrom(t, data)
	var walk func(data json.RawMessage, s *jsonschema.Schema)
	walk = func(data json.RawMessage, s *jsonschema.Schema) {
		var raw struct {
			Properties, Items, AdditionalProperties json.RawMessage
			Defs                                    map[string]json.RawMessage `json:"$defs"`
		}
		if s == nil || len(data) == 0 || data[0] != '{' {
			return
		}
		must(t, json.Unmarshal(data, &raw))
		var properties jsontext.OrderedMap[json.RawMessage]
		if raw.Properties != nil {
			must(t, json.Unmarshal(raw.Properties, &properties))
		}
		for _, p := range properties {
			s.PropertyOrder = append(s.PropertyOrder, p.Key)
			walk(p.Value, s.Properties[p.Key])
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

type document struct {
	bytes.Buffer
	file    string
	replies map[string]string  // tables that are in a page already, and where
	step    *jsonschema.Schema // what the replies that describe steps share
}

func (d *document) line(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

func (d *document) tool(t *testing.T, tool *listedTool) {
	t.Helper()
	d.line("\n### %s\n\n**%s.** %s\n\n%s\n", tool.Name, tool.Title, annotationsOf(tool), tool.Description)
	input, output := ordered(t, tool.InputSchema), ordered(t, tool.Reply)
	if len(input.Properties) == 0 {
		d.line("It takes no arguments.")
	} else {
		d.line("| argument | type | required | meaning |\n|---|---|---|---|")
		rows(input, "", func(path string, needed bool, s *jsonschema.Schema) {
			d.line("| `%s` | %s | %s | %s |", path, typeOf(s), map[bool]string{true: "yes", false: "no"}[needed],
				cell(s.Description))
		})
	}

	for name, def := range output.Defs {
		def.Description = ""
		if d.step == nil {
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

// rows gives every property of a schema, at any depth, in the order of the schema, and whether it is required.
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
	kinds := slices.DeleteFunc(append(slices.Clone(s.Types), s.Type), func(k string) bool {
		return k == "null" || k == ""
	})
	text, null := strings.Join(kinds, " or "), ", or null"
	switch {
	case s.Ref != "":
		text = "[step](tools.md#a-step)"
	case len(kinds) == 0 || len(kinds) >= 5:
		text, null = "any JSON", ""
	case text == "array" && s.Items != nil:
		text = "list of " + typeOf(s.Items)
	case text == "array":
		text = "list"
	}

	before := ": "
	for _, v := range s.Enum {
		if v != nil {
			text += fmt.Sprintf("%s`%v`", before, v)
			before = ", "
		}
	}
	if s.Minimum != nil && s.Maximum != nil {
		text += fmt.Sprintf(", %v to %v", *s.Minimum, *s.Maximum)
	}
	for format, limit := range map[string]*int{", at most %d characters": s.MaxLength, ", at least %d": s.MinItems} {
		if limit != nil {
			text += fmt.Sprintf(format, *limit)
		}
	}
	if s.MaxItems != nil {
		text += fmt.Sprintf(", at most %d entries", *s.MaxItems)
	}
	if slices.Contains(s.Types, "null") {
		text += null
	}
	return text
}

func cell(s string) string { return strings.NewReplacer("\n", " ", "|", `\|`, "<", `\<`).Replace(s) }

func annotationsOf(tool *listedTool) string {
	a, words := tool.Annotations, "Adds data"
	if a.ReadOnlyHint {
		words = "Only reads"
	} else if *a.DestructiveHint {
		words = "Changes or deletes existing data"
	}
	if a.IdempotentHint && !a.ReadOnlyHint {
		words += "; repeating it has no further effect"
	}
	if *a.OpenWorldHint {
		words += "; reaches beyond the project"
	}
	return words + "."
}

// codesFile has the codes of errors, each with what to do. It is the source of the table in tools.md.
const codesFile = "../session/codes/codes.go"

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

// Each code is listed once, with what to do, and used, by its constant only; errors have no other.
func TestEveryErrorCodeIsListed(t *testing.T) {
	t.Parallel()
	codes := codeConstants(t)
	last := ""
	quoted := []string(nil)

	// also states, kinds, arguments
	others := []string{`"blocked"`, `"budget_reached"`, `"in_place"`, `"internal"`, `"stopping"`, `"untrusted"`}
	testkit.True(t, len(codes) >= 100, "%s has %d codes", codesFile, len(codes))

	unused := map[string]bool{}
	for _, c := range codes {
		code := c.Values[0].(*ast.BasicLit).Value
		testkit.True(t, code > last && len(strings.TrimSpace(c.Doc.Text())) >= 10,
			"%s: %s is listed twice, is not in its place, or does not say what to do", codesFile, code)
		last, unused[c.Names[0].Name] = code, true
		quoted = append(quoted, code)
	}
	quoted = slices.DeleteFunc(quoted, func(code string) bool { return slices.Contains(others, code) })
	used := regexp.MustCompile(`codes\.(\w+)`)
	literal := regexp.MustCompile(`(?:\b(?:Wrong|NotNow)\("\w+"|[^:](?:` + strings.Join(quoted, "|") + `)).*`)
	must(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			path == filepath.FromSlash(codesFile) {
			return err
		}
		text := string(testkit.Get(os.ReadFile(path)).Must(t))
		found := literal.FindString(text)
		// proof judges from outside
		testkit.True(t, found == "" || strings.HasPrefix(path, filepath.FromSlash("../cmd/proof/")),
			"%s: use a constant of package codes: %s", path, found)

		for _, m := range used.FindAllStringSubmatch(text, -1) {
			delete(unused, m[1])
		}

		return nil
	}))
	testkit.Same(t, unused, nil, "codes that no error has")
}
