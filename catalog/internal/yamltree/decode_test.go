package yamltree

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
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
	Half float64           `yaml:"half" as:"half"`
	Low  map[string]bool   `yaml:"low" keys:"low" is:"names to booleans"`
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
	}}, Forms: map[string]Form{"half": func(d *Decoder, v Value, to any) {
		x, _ := d.Number(v, "a number", 0, 10, "!!int")
		*to.(*float64) = x / 2
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
		{"- {zzzzzz: a, name: a}", false, "f:1:4: [0].zzzzzz: unknown key; the keys here are name, of, kind, wait, size, flag, own, more, plus, half, low"},
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
		{"- {name: a, half: 11}", false, "f:1:19: [0].half: is a number (11); expected a number from 0 to 10"},
		{"- {name: a, low: {high: true}}", false, "f:1:19: [0].low.high: is high"},
		{"- {name: a, low: 2020-01-02}", false, "f:1:18: [0].low: is a date (2020-01-02); expected names to booleans"},
		{"- {name: 1.0, own: [true]}", false, "f:1:10: [0].name"},
		{"- {name: a, wait: [1]}", false, "f:1:19: [0].wait: is a list; expected a number of seconds"},
		{"- {name: a, own: [!!int high]}", false, "f:1:19: [0].own[0]: is a number (high); expected a text: put it in quotes; also, is high"},
		{"- {name: a, of: {!x b: c}}", false, `f:1:18: [0].of: the tag "!x" is not supported: remove it`},
		{"- &a [*a]", false, "f:1:7: the alias *a is inside the value it names"},
		{"- &a {name: a, own: [" + strings.Repeat("x,", 1000) + "]}\n" + strings.Repeat("- *a\n", 200), false, "f:101:3: the aliases of this file expand to more than 100000 values"},
		{"\xef\xbb\xbf- 1", false, "f:1:3: [0]: is a number (1); expected a mapping"},
		{"\xff\xfea", false, "f:1:1: is UTF-16"},
		{strings.Repeat("#", MaxBytes+1), false, "f: is larger than 1048576 bytes"},
		{"- é\xff", false, "f:1:4: the byte 0xff at offset 4 is not UTF-8"},
		{"- é\n- >\n  a\u2028 b", false, "f:3:4: the character U+2028 (line separator) at offset 12 would end the line"},
		{"- é\x1b", false, "f:1:4: the character U+001B at offset 4 is not allowed in YAML"},
		{strings.Repeat("%TAG !a! b\n", 17), false, "f:17:1: there are more than 16 %TAG directives"},
		{"- a: b: c", false, `f:1:7: mapping values are not allowed in this context: a value that contains ": " must be put in quotes`},
		{"- {name: @a}", false, "f:1:1: found character that cannot start any token: a value that begins with @"},
		{"- {name: a, size: 1, wait: 1}\n- {name: b, size: 9, wait: 604800}\n- {name: c, wait: 0}", false, ""},
		{"- {name: a, wait: 604801}", false, "f:1:19: [0].wait: is 168h0m1s; expected 0s to 168h0m0s"},
		{"- {name: a", false, "f:1:1: did not find expected ',' or '}': a { is not closed"},
	} {
		d, _ := decoder(test.source, test.lenient)
		got := d.Diagnostics().Error()
		testkit.True(t, got == test.want || test.want != "" && strings.HasPrefix(got, test.want), "%q:\n got %s\nwant %s", test.source, got, test.want)
	}
	d, _ := decoder(strings.Repeat("- 1\n", MaxDiagnostics+7), false)
	if many := d.Diagnostics(); len(many) != MaxDiagnostics+1 || many[MaxDiagnostics].Message != "7 more errors were found: fix the ones above first" {
		t.Errorf("%d faults, the last: %v", len(many), many[len(many)-1])
	}
}

func TestDecodedValues(t *testing.T) {
	d, all := decoder("- {name: a, of: {B: true, c: 7}, wait: 1m, size: 9, flag: false, own: [X, 'Y'], more: {z: '1', y: '2'}, plus: 1, half: 7, low: {on: true}}\n- {name: b, kind: other, wait: 0}\n", false)
	plus := 1.0
	want := []item{
		{"a", map[string]string{"B": "true", "c": "7"}, "one", time.Minute, 9, false, []string{"x", "y"}, []named{{"z", "1"}, {"y", "2"}}, &plus, 3.5, map[string]bool{"on": true}},
		{Name: "b", Kind: "other", Flag: true},
	}
	testkit.True(t, d.Faults() <= 0 && reflect.DeepEqual(all, want), "%v\n%+v\nwant %+v", d.Diagnostics(), all, want)
	v := d.Find("x", 0)
	testkit.True(t, v.Node == d.root && d.Has([]any{1}, "kind") && !d.Has([]any{1, "kind", "x"}) && !d.Has([]any{2}), "what is at a path is not found")
	testkit.Equal(t, d.At("odd", 0, "more", "y").String(), "f:1:99: [0].more.y: odd")
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
		testkit.Equal(t, d.Diagnostics().Error(), want, "%s", source)
	}
}

// Warnings are no faults, and come with them only on request.
func TestWarnings(t *testing.T) {
	d, _ := decoder("- name: a\n  kind: odd\n", false)
	d.WarnAt([]any{0, "name"}, "is %s", "short")
	d.WarnAt(nil, "is short")
	testkit.Equal(t, d.Warnings().Error(), "f: warning: is short\nf:1:9: warning: [0].name: is short")
	if got := d.All().Error(); d.Diagnostics().Err() == nil || got != d.Warnings().Error()+"\n"+d.Diagnostics().Error() {
		t.Error(got)
	}
	for range MaxDiagnostics {
		d.WarnAt(nil, "again")
	}
	if got := d.Warnings(); got[len(got)-1].Message != "2 more warnings were found: fix the ones above first" || Diagnostics(nil).Err() != nil {
		t.Error(got[len(got)-1])
	}
}

// What the tags name must exist.
func TestUnknownRules(t *testing.T) {
	for _, of := range []any{
		&struct {
			A string `yaml:"a" as:"none"`
		}{},
		&struct {
			A map[string]string `yaml:"a" keys:"none"`
		}{},
		&struct {
			A []string `yaml:"a" as:"none"`
		}{},
		&struct {
			A uint8 `yaml:"a"`
		}{},
		&struct {
			A int `yaml:"a" max:"x"`
		}{},
	} {
		func() {
			defer func() { testkit.True(t, recover() != nil, "accepted: %T", of) }()
			source := "a: 1"
			if reflect.TypeOf(of).Elem().Field(0).Type.Kind() == reflect.Map {
				source = "a: {b: c}"
			}
			d := &Decoder{}
			d.Decode(Self(d.Open([]byte(source))), of)
		}()
	}
}

// One mistake is one fault: a key that was misspelt is neither missing nor given twice.
func TestOneMistakeIsOneFault(t *testing.T) {
	for source, want := range map[string]string{
		"- nmae: a":                         "f:1:3: [0].nmae: unknown key: did you mean name?",
		"- nmae: a\n  name: b\n- {name: a}": "f:1:3: [0].nmae: unknown key: did you mean name?",
	} {
		d, _ := decoder(source, false)
		testkit.Equal(t, d.Diagnostics().Error(), want)
	}
	d, _ := decoder("- 1", false)
	d.FaultIn(Position{}, "", "of no line")
	d.FaultIn(Position{Line: 2}, "", "of another file")
	testkit.Equal(t, len(d.Diagnostics()), 3)
}

// A quote that is not closed is found in the line that opens it.
func TestUnclosedQuotes(t *testing.T) {
	for text, want := range map[string]int{
		"a: \"x\nb: \"y": 1, "a: 'it''s\n b' c": 1, "a: \"x\\\" \ny\" z": 1, "- 'x\ny' z": 1, "{a: 'x\n y' z}": 1, "\"x\ny\" z": 1, "a:   \"x\ny\" z": 1, "a: [b, 'x\ny' z": 1,
		"a: |\n  \"x\n  y\" z": 0, "a: |\n\n  \"x\nb: \"y\nc\" z": 4, "a: |\nb: \"y\nc\" z": 2, "a: >- # b\n  'x\n  y' z": 0,
		"a: \"x\nb\" # c": 0, "a: \"x\ny\", b": 0, "a: \"x\ny\": b": 0, "a: \"x\" y": 0, "a: 'x'": 0, "a: x'\ny' z": 0, "# it's\nit's a": 0, "a: b # 'c\nd' e": 0, "a: b#\nc: 'd\ne' f": 2,
	} {
		testkit.Equal(t, unclosedQuote(bytes.SplitAfter([]byte(text), []byte("\n"))), want, "%q", text)
	}
}

// What a message repeats of a file is short, whole characters, and quoted where it is not plain.
func TestWhatAMessageRepeats(t *testing.T) {
	long := strings.Repeat("x", maxQuoted)
	for text, want := range map[string]string{long: long, long + "x": long + "…", long[1:] + "é": long[1:] + "…", strings.Repeat("\x80", 99): "…"} {
		testkit.Equal(t, Clip(text), want)
	}
	testkit.Equal(t, Join([]string{"azAZ09_-", "", "é", "a b", "a{", "`", "@", "[", "/", ":", "11"}), `azAZ09_-, "", "é", "a b", "a{", "`+"`"+`", "@", "[", "/", ":" and 1 more`)
	testkit.Equal(t, Join([]string{long, long + "x"}), long+`, "`+long+`…"`)
	testkit.Equal(t, strings.Count(Join(slices.Repeat([]string{"x"}, 10)), "x")+strings.Count(Join(slices.Repeat([]string{"x"}, 10)), "more"), 10)
	for text, want := range map[string]int{"\x1f": 0, " ~\n\r\t": -1, "a\x7f": 1, "\u0085": 0, "a\u2028": 1, "\u2029": 0, "a\u0084": 1, "a\u009f": 1, "\u00a0é\ufffd": -1, "a\ufeff": 1, "a\ufffe": 1, "a\uffff": 1, "é\xff": 2} {
		at, bad := firstBad([]byte(text))
		testkit.True(t, bad == (want >= 0) && (!bad || at == want), "%q: %d %t", text, at, bad)
		at, bad = NotUTF8([]byte(text))
		testkit.Equal(t, bad, text == "é\xff", "%q at %d", text, at)
	}
}
