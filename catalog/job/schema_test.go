package job

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
	"gopkg.in/yaml.v3"

	"deepwork/actor/testkit"
	"deepwork/catalog/internal/yamltree"
)

func resolvedSchema(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	var s jsonschema.Schema
	testkit.Must(t, json.Unmarshal(Schema(), &s))
	r, err := s.Resolve(nil)
	testkit.Must(t, err)
	return r
}

// asJSON gives what an editor makes of YAML before it applies a schema.
func asJSON(n *yaml.Node) any {
	switch n.Kind {
	case yaml.DocumentNode:
		return asJSON(n.Content[0])
	case yaml.AliasNode:
		return asJSON(n.Alias)
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, c := range n.Content {
			list[i] = asJSON(c)
		}
		return list
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
	r := resolvedSchema(t)
	judge := func(t *testing.T, source []byte) error {
		t.Helper()
		var n yaml.Node
		testkit.Must(t, yaml.Unmarshal(source, &n))
		return r.Validate(asJSON(&n))
	}
	for _, name := range validFiles(t) {
		if err := judge(t, readFile(t, name)); err != nil {
			t.Errorf("the schema refuses %s: %v", name, err)
		}
	}
	base := string(readFile(t, "testdata/valid/base.yml"))
	for _, c := range ruleCases {
		var n yaml.Node
		source := c.source(t, base)
		if c.schemaPasses && (!utf8.Valid(source) || c.name == "alias circle" || yaml.Unmarshal(source, &n) != nil || n.Kind == 0) {
			continue // an editor makes no JSON of it
		}
		if err := judge(t, source); (err == nil) != c.schemaPasses {
			t.Errorf("%s: the schema says %v; correct it, or the mark semantic of the case", c.name, err)
		}
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
	d := new(decoder)
	checkShape(t, d.job(new(Job)), root)
	checkShape(t, d.step(new(Step), new(stepSpots)), parse(root.Defs["step"]))
	checkShape(t, d.output(new(Output)), parse(root.Defs["output"]))
	checkShape(t, d.review(new(Review), nil), parse(root.Defs["review"]))
	checkShape(t, d.input(new(Input), nil, nil), parse(root.Defs["input"]))
	checkShape(t, d.hook(new(Hook), nil), parse(root.Defs["hook"]))
	checkShape(t, d.workflow(new(Workflow), new(workflowSpots)), parse(root.Defs["workflow"]))
	checkShape(t, d.hooks(new(Hooks)), parse(parse(root.Defs["step"]).Properties["hooks"]))
}

type object struct {
	Required             []string                   `json:"required"`
	Properties           map[string]json.RawMessage `json:"properties"`
	AdditionalProperties *bool                      `json:"additionalProperties"`
	Defs                 map[string]json.RawMessage `json:"$defs"`
}

func checkShape(t *testing.T, s yamltree.Shape, o object) {
	t.Helper()
	var required []string
	for _, k := range s.Keys {
		if k.Missing != "" {
			required = append(required, k.Name)
		}
	}
	if got, want := slices.Sorted(maps.Keys(o.Properties)), slices.Sorted(slices.Values(s.Names())); !slices.Equal(got, want) {
		t.Errorf("%s: the schema has %v, the parser %v", s.What, got, want)
	}
	if got, want := slices.Sorted(slices.Values(o.Required)), slices.Sorted(slices.Values(required)); !slices.Equal(got, want) {
		t.Errorf("%s: the schema requires %v, the parser %v", s.What, got, want)
	}
	if o.AdditionalProperties == nil || *o.AdditionalProperties {
		t.Errorf("%s: the schema allows other keys", s.What)
	}
	for name, p := range o.Properties {
		var described struct {
			Description string `json:"description"`
		}
		if err := json.Unmarshal(p, &described); err != nil || len(described.Description) < 10 {
			t.Errorf("%s: property %s has no description", s.What, name)
		}
	}
}
