package yamltree

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

type item struct {
	Name string            `yaml:"name" add:"a name" unique:""`
	Of   map[string]string `yaml:"of" is:"names" each:"low"`
	Kind string            `yaml:"kind" oneof:"one,other" default:"one"`
	Wait time.Duration     `yaml:"wait" min:"1s" zero:"never"`
	Size int               `yaml:"size" min:"1" max:"9"`
	Flag bool              `yaml:"flag" default:"true"`
	Own  []string          `yaml:"own" own:"--own" each:"low"`
	More []named           `yaml:"more" is:"things" nonempty:"add one"`
	Plus *float64          `yaml:"plus"`
}

type named struct {
	Name string `yaml:",key"`
	Text string `yaml:",value"`
}

func decoder(source string, lenient bool) (*Decoder, []item) {
	d := &Decoder{File: "f", Lenient: lenient, Texts: map[string]Text{"low": func(s string) (string, error) {
		if s == "high" {
			return s, errors.New("is high")
		}
		return strings.ToLower(s), nil
	}}}
	var all []item
	if root := d.Open([]byte(source)); root != nil {
		d.decode(Self(root), reflect.ValueOf(&all).Elem(), &field{is: "a list", elem: &field{item: true}})
	}
	return d, all
}

func TestFaultsHavePositionsPathsAndRemedies(t *testing.T) {
	for _, test := range []struct {
		source  string
		lenient bool
		want    string // the faults, or the beginning of the first
	}{
		{"- name: a\n  of: {x y: b, é: [c]}", false, `f:2:19: [0].of["é"]: is a list; expected a text`},
		{"- nmae: a\n  name: a", false, "f:1:3: [0].nmae: unknown key: did you mean name?"},
		{"- {zzzzzz: a, name: a}", false, "f:1:4: [0].zzzzzz: unknown key; the keys here are name, of, kind, wait, size, flag, own, more, plus"},
		{"- name: a\n  name: b", false, "f:2:3: [0].name: this key appears twice, the first time in line 1"},
		{"- name: a\n  of: {b: 1, c: 2, b: 3}", true, "f:2:20: [0].of.b: this key appears twice, the first time in line 2"},
		{"- {}\n- name: a\n- of: {}", false, "f:1:3: [0]: name is missing: add a name\nf:3:3: [2]: name is missing: add a name"},
		{"- name: a\n- name: b\n- name: a", false, `f:3:9: [2].name: "a" is the name of [0] too, in line 1: give each its own`},
		{"- name: a\n  of: {[b]: 1}", true, "f:2:8: [0].of: a key is a list"},
		{"- name: a\n  of: {1: b}", true, `f:2:8: [0].of: the key is a number (1); expected a text: put it in quotes, as in "1"`},
		{"- name: &x a\n  of: {<<: *x}", false, "f:2:8: [0].of: merge keys (<<)"},
		{"- name: a\n  of:", false, "f:2:3: [0].of: is empty; expected names: fill it in"},
		{"- name: a\n  of:\n  kind: ~", true, ""},
		{"-", true, "f:1:2: [0]: name is missing"},
		{"- {name: ~}", false, "f:1:4: [0].name: is empty; expected a text: fill it in"},
		{"- !odd {name: a}", false, `f:1:3: [0]: the tag "!odd" is not supported: remove it`},
		{"- a", false, `f:1:3: [0]: is a text ("a"); expected a mapping with the keys name, of, `},
		{"a: b", false, "f:1:1: is a mapping; expected a list"},
		{"- &a {name: a, of: [b]}\n- {name: b, more: *a}", false, "f:1:20: [0].of: is a list; expected names\nf:1:20: [1].more.of: is a list; expected a text"},
		{"- {name: a, own: [1, 2]}", false, `f:1:19: [0].own[0]: is a number (1); expected a text: put it in quotes, as in "1"`},
		{"- {name: a, of: {b: 7, c: high}}", false, "f:1:27: [0].of.c: is high"},
		{"- {name: 1.0}", false, `f:1:10: [0].name: is a number (1.0); expected a text: put it in quotes, as in "1.0"`},
		{"- {name: a, kind: oter}", false, `f:1:19: [0].kind: "oter" is not one of one, other: did you mean other?`},
		{"- {name: a, kind: 1}", false, `f:1:19: [0].kind: is a number (1); expected one of one, other`},
		{"- {name: a, kind: \"one\\0\"}", false, `f:1:19: [0].kind: has a NUL byte in it: remove it`},
		{"- {name: a, wait: 0.5}", false, "f:1:19: [0].wait: is 500ms; expected 0 (never) or at least 1s"},
		{"- {name: a, wait: -1}", false, "f:1:19: [0].wait: is -1s; expected 0s to 168h0m0s"},
		{"- {name: a, wait: .inf}", false, "f:1:19: [0].wait: is a number (.inf); expected a number of seconds, or a text like 90s or 2m30s, at most"},
		{"- {name: a, wait: '5'}", false, `f:1:19: [0].wait: is a text ("5"); expected a number of seconds, or a text like 90s or 2m30s; seconds are written without quotes`},
		{"- {name: a, size: 10}", false, "f:1:19: [0].size: is a number (10); expected a whole number from 1 to 9"},
		{"- {name: a, size: 1.5}", false, "f:1:19: [0].size: is a number (1.5); expected a whole number"},
		{"- {name: a, plus: .nan}", false, "f:1:19: [0].plus: is a number (.nan); expected a number from 0"},
		{"- {name: a, flag: yes}", false, `f:1:19: [0].flag: is a text ("yes"); expected true or false, without quotes`},
		{"- {name: a, more: {}}", false, "f:1:19: [0].more: is empty: add one"},
		{"- {name: a, own: [high]}", false, "f:1:19: [0].own[0]: is high"},
		{"--- []\n--- []", false, "f:2:1: a second document begins here"},
		{"- {name: \"\x00\"}", false, "f:1:11: the byte at offset 10 is NUL"},
		{"- {name: a", false, "f:1:1: did not find expected ',' or '}': a { is not closed"},
	} {
		d, _ := decoder(test.source, test.lenient)
		if got := d.Diagnostics().Error(); got != test.want && (test.want == "" || !strings.HasPrefix(got, test.want)) {
			t.Errorf("%q:\n got %s\nwant %s", test.source, got, test.want)
		}
	}
	d, _ := decoder(strings.Repeat("- 1\n", MaxDiagnostics+7), false)
	if many := d.Diagnostics(); len(many) != MaxDiagnostics+1 || many[MaxDiagnostics].Message != "7 more faults were found: fix the ones above first" {
		t.Errorf("%d faults, the last: %v", len(many), many[len(many)-1])
	}
}

func TestDecodedValues(t *testing.T) {
	d, all := decoder("- {name: a, of: {B: true, c: 7}, wait: 1m, size: 9, flag: false, own: [X, 'Y'], more: {z: '1', y: '2'}, plus: 1}\n- {name: b, kind: other, wait: 0}\n", false)
	plus := 1.0
	want := []item{
		{"a", map[string]string{"B": "true", "c": "7"}, "one", time.Minute, 9, false, []string{"x", "y"}, []named{{"z", "1"}, {"y", "2"}}, &plus},
		{Name: "b", Kind: "other", Flag: true},
	}
	if d.Faults() > 0 || !reflect.DeepEqual(all, want) {
		t.Errorf("%v\n%+v\nwant %+v", d.Diagnostics(), all, want)
	}
	if v := d.Find("x", 0); v.Node != d.root || !d.Has([]any{1}, "kind") || d.Has([]any{1, "kind", "x"}) || d.Has([]any{2}) {
		t.Error("what is at a path is not found")
	}
	if got := d.At("odd", 0, "more", "y").String(); got != "f:1:99: [0].more.y: odd" {
		t.Error(got)
	}
}

// A key that may not be in the file is reported if it has a value.
func TestForeignKeys(t *testing.T) {
	for source, want := range map[string]string{"own: [x]": "f: own: --own", "own: []": "", "own:": ""} {
		d := &Decoder{File: "f"}
		d.Foreign = func(_ Value, flag string) { d.Fault(Position{}, "%s", flag) }
		var one struct {
			Own []string `yaml:"own" own:"--own"`
		}
		d.Decode(Self(d.Open([]byte(source))), &one)
		if got := d.Diagnostics().Error(); got != want {
			t.Errorf("%s: %s", source, got)
		}
	}
}
