package yamltree

import (
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

func testDialect(lenient bool) *Dialect {
	return &Dialect{
		WrongKind: "is %s, not %s", WrongKey: "key is %s", Repeated: "again, see line %d", More: "%d more", Lenient: lenient,
		Describe:   func(what string, keys []string) string { return what + " of " + strings.Join(keys, ", ") },
		UnknownKey: func(_ string, _ []string, hint string) string { return "unknown, like " + hint },
		Kind:       func(n *yaml.Node) string { return strings.TrimPrefix(Target(n).ShortTag(), "!!") },
	}
}

// decode reads a list of mappings with the keys name, which is required, and of, which
// is a mapping of the author's names to texts.
func decode(t *testing.T, source string, lenient bool) Diagnostics {
	t.Helper()
	first, second, err := Documents(strings.NewReader(source))
	if err != nil || second != nil {
		t.Fatalf("%q: %v", source, err)
	}
	d := &Decoder{Dialect: testDialect(lenient), File: "f"}
	text := func(v Value) { d.Is(v, yaml.ScalarNode, "text") }
	d.List(Self(first.Content[0]), "a list", func(_ int, v Value) {
		d.Mapping(v, Shape{"an item", []Key{
			Required("name", "a name", text),
			Optional("of", func(v Value) { d.Entries(v, "names", text) }),
		}})
	})
	return d.Diagnostics()
}

func TestFaultsHavePositionsPathsAndSuggestions(t *testing.T) {
	for _, test := range []struct {
		source  string
		lenient bool
		want    string
	}{
		{"- name: a\n  of: {x y: b, é: [c]}", false, "f:2:19: [0].of[\"é\"]: is seq, not text"},
		{"- name: a\n  of: {x y: [b]}", true, "f:2:13: [0].of.x y: is seq, not text"},
		{"- nmae: a\n  name: a", false, "f:1:3: [0].nmae: unknown, like name"},
		{"- name: a\n  name: b", false, "f:2:3: [0].name: again, see line 1"},
		{"- name: a\n  of: {b: 1, c: 2, b: 3}", true, "f:2:20: [0].of.b: again, see line 2"},
		{"- {}\n- name: a\n- of: {}", false, "f:1:3: [0]: name is missing: add a name\nf:3:3: [2]: name is missing: add a name"},
		{"- name: a\n  of: {[b]: 1}", true, "f:2:8: [0].of: key is seq"},
		{"- name: a\n  of: {1: b}", false, `f:2:8: [0].of: the key 1 is int, but must be text: put it in quotes, as in "1"`},
		{"- name: a\n  of: {1: b}", true, ""},
		{"- name: &x a\n  of: {<<: *x}", false, "f:2:8: [0].of: merge keys (<<)"},
		{"- name: a\n  of:", false, "f:2:3: [0].of: is empty, not names: fill it in"},
		{"- name: a\n  of:\n-", true, ""},
		{"- !odd {name: a}", false, `f:1:3: [0]: the tag "!odd" is not supported: remove it`},
		{"- a", false, "f:1:3: [0]: is str, not an item of name, of"},
		{"a: b", false, "f:1:1: is map, not a list"},
		{"- &a {name: a, of: [b]}\n- *a", false, "f:1:20: [0].of: is seq, not names\nf:1:20: [1].of: is seq, not names"},
	} {
		if got := decode(t, test.source, test.lenient).Error(); got != test.want && (test.want == "" || !strings.HasPrefix(got, test.want)) {
			t.Errorf("%q:\n got %s\nwant %s", test.source, got, test.want)
		}
	}
	many := decode(t, strings.Repeat("- 1\n", MaxDiagnostics+7), false)
	if last := many[len(many)-1]; len(many) != MaxDiagnostics+1 || last.Message != "7 more" {
		t.Errorf("%d faults, the last: %v", len(many), last)
	}
}
