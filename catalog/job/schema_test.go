package job

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
	"gopkg.in/yaml.v3"

	"deepwork/actor/testkit"
	"deepwork/actor/xslices"
)

// asJSON gives what an editor makes of YAML before it applies a schema.
func asJSON(n *yaml.Node) any {
	switch n.Kind {
	case yaml.DocumentNode:
		return asJSON(n.Content[0])
	case yaml.AliasNode:
		return asJSON(n.Alias)
	case yaml.SequenceNode:
		return xslices.Map(n.Content, asJSON)
	case yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		for i := 0; i < len(n.Content); i += 2 {
			m[n.Content[i].Value] = asJSON(n.Content[i+1])
		}
		return m
	}
	switch n.Tag {
	case "!!int", "!!float":
		f, _ := strconv.ParseFloat(n.Value, 64)
		return f
	case "!!bool":
		return strings.EqualFold(n.Value, "true")
	case "!!null":
		return nil
	}
	return n.Value
}

// TestSchemaAgrees holds the schema against the parser: what one accepts the
// other does, except what is marked as the parser's alone, and nothing else is.
func TestSchemaAgrees(t *testing.T) {
	var s jsonschema.Schema
	testkit.Must(t, json.Unmarshal(Schema(), &s))
	r := testkit.Get(s.Resolve(nil)).Must(t)
	judge := func(t *testing.T, source []byte) error {
		t.Helper()
		var n yaml.Node
		testkit.Must(t, yaml.Unmarshal(source, &n))
		return r.Validate(asJSON(&n))
	}
	for _, name := range append(validFiles(t), testkit.Get(filepath.Glob("testdata/mapping/*.yml")).Must(t)...) {
		j, _ := Parse("/jobs/x", FileName, readFile(t, name))
		testkit.Equal(t, judge(t, readFile(t, name)) == nil, (j != nil), "%v %v", name, j != nil)
	}
	ours, other := string(readFile(t, "testdata/valid/base.yml")), string(readFile(t, "testdata/valid/format2.yml"))
	for name, mix := range map[string]string{
		"ours with step_arguments":           ours + "step_arguments: []\n",
		"ours with workflows of the other":   strings.Replace(ours, "workflows:\n", "workflows: {w: {summary: W, steps: [{name: a, instructions: A}]}}\nnone:\n", 1),
		"the other with steps":               other + "steps: []\n",
		"the other with a version":           other + "version: \"1.0.0\"\n",
		"the other with workflows as a list": strings.Replace(other, "workflows:\n", "workflows: [{name: w, summary: W, steps: []}]\nnone:\n", 1),
	} {
		j, _ := Parse("/jobs/x", FileName, []byte(mix))
		testkit.True(t, j == nil && judge(t, []byte(mix)) != nil, "%s: accepted by the parser: %v, by the schema: %v", name, j != nil, judge(t, []byte(mix)) == nil)
	}
	for _, c := range baseRules(t) {
		var n yaml.Node
		if c.parserOnly && (!utf8.Valid(c.source) || strings.Contains(c.name, "alias circle") || yaml.Unmarshal(c.source, &n) != nil || n.Kind == 0) {
			continue // an editor makes no JSON of it
		}
		testkit.Equal(t, judge(t, c.source) == nil, c.parserOnly, "%v", c.name)
	}
}

// TestSchemaHasTheShapes holds the keys of the schema, and which are required,
// against the parser's tables, and every property against having no description.
func TestSchemaHasTheShapes(t *testing.T) {
	parse := func(data json.RawMessage) (o object) {
		t.Helper()
		testkit.Must(t, json.Unmarshal(data, &o))
		return o
	}
	root := parse(Schema())
	step := parse(root.Defs["step"])
	for name, of := range map[string]any{
		"job": Job{}, "format2": file2{}, "argument": argument2{}, "review2": review2{}, "workflow2": workflow2{}, "step2": step2{}, "use": use2{},
		"parameter": Parameter{}, "step": Step{}, "check": StepCheck{}, "output": Output{}, "review": Review{}, "input": Input{}, "hook": Hook{}, "workflow": Workflow{},
	} {
		checkShape(t, of, parse(root.Defs[name]))
	}
	checkShape(t, Hooks{}, parse(step.Properties["hooks"]))
}

type object struct {
	Required             []string                   `json:"required"`
	Properties           map[string]json.RawMessage `json:"properties"`
	AdditionalProperties *bool                      `json:"additionalProperties"`
	Defs                 map[string]json.RawMessage `json:"$defs"`
}

func checkShape(t *testing.T, of any, o object) {
	t.Helper()
	var all, required []string
	for _, f := range reflect.VisibleFields(reflect.TypeOf(of)) {
		name := f.Tag.Get("yaml")
		if name == "" || name[0] == ',' {
			continue
		}
		if all = append(all, name); f.Tag.Get("add") != "" {
			required = append(required, name)
		}
	}
	testkit.Same(t, slices.Sorted(maps.Keys(o.Properties)), slices.Sorted(slices.Values(all)), "%T: keys", of)
	testkit.Same(t, slices.Sorted(slices.Values(o.Required)), slices.Sorted(slices.Values(required)), "%T: required keys", of)
	testkit.True(t, o.AdditionalProperties != nil && !*o.AdditionalProperties, "%T: the schema allows other keys", of)
	for name, p := range o.Properties {
		var described struct {
			Description string `json:"description"`
		}
		err := json.Unmarshal(p, &described)
		testkit.True(t, err == nil && len(described.Description) >= 10, "%T: property %s has no description", of, name)
	}
}

// The page has a table for each object of the schema, with a row for each key that says whether it is required.
func TestDocumentationDescribesEveryKey(t *testing.T) {
	type object struct {
		Properties map[string]any
		Required   []string
	}
	var schema struct {
		Defs map[string]object `json:"$defs"`
	}
	testkit.Must(t, json.Unmarshal(Schema(), &schema))
	page := readFile(t, "../../cmd/deepwork/docs/reference/job-file.md")
	for name, o := range schema.Defs {
		title := strings.ToUpper(name[:1]) + name[1:]
		_, section, _ := strings.Cut(string(page), "\n### "+title+"\n")
		section, _, _ = strings.Cut(section, "\n### ")
		for key := range o.Properties {
			required := "no"
			if slices.Contains(o.Required, key) {
				required = "yes"
			}
			described := func(line string) bool {
				cells := strings.Split(line, " | ")
				return len(cells) == 3 && strings.Contains(cells[0], "`"+key+"`") && cells[1] == required
			}
			testkit.True(t, slices.ContainsFunc(strings.Split(section, "\n"), described), "job-file.md has no row for %s under the heading %s that says required: %s", key, title, required)
		}
	}
}
