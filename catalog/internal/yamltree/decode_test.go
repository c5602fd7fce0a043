package yamltree

import (
	"bytes"
	"errors"
	"flag"
	"os"
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

var update = flag.Bool("update", false, "write golden files anew")

func TestFaultsHavePositionsPathsAndRemedies(t *testing.T) {
	// The files of both have sources, each with its faults below, which begin with "! ".
	for file, lenient := range map[string]bool{"testdata/faults.txt": false, "testdata/lenient.txt": true} {
		var all []string
		for block := range strings.SplitSeq(strings.TrimSpace(string(testkit.Get(os.ReadFile(file)).Must(t))), "\n\n") {
			source, _, _ := strings.Cut(block, "\n! ")
			if d, _ := decoder(source, lenient); d.Faults() > 0 {
				source += "\n! " + strings.ReplaceAll(d.Diagnostics().Error(), "\n", "\n! ")
			}
			all = append(all, source)
		}
		testkit.Golden(t, file, strings.Join(all, "\n\n")+"\n", *update)
	}
	for source, want := range map[string]string{
		"- {name: a, kind: \"one\\0\"}": `f:1:19: [0].kind: has a NUL byte in it: remove it`,
		"- {name: \"\x00\"}":            "f:1:11: the byte at offset 10 is NUL",
		"- &a {name: a, own: [" + strings.Repeat("x,", 1000) + "]}\n" +
			strings.Repeat("- *a\n", 200): "f:101:3: the aliases of this file expand to more than 100000 values",
		"\xef\xbb\xbf- 1":               "f:1:3: [0]: is a number (1); expected a mapping",
		"\xff\xfea":                     "f:1:1: is UTF-16",
		strings.Repeat("#", MaxBytes+1): "f: is larger than 1048576 bytes",
		"- é\xff":                       "f:1:4: the byte 0xff at offset 4 is not UTF-8",
		"- é\n- >\n  a\u2028 b": "f:3:4: the character U+2028 (line separator) at offset 12 would end " +
			"the line",
		"- é\x1b":                          "f:1:4: the character U+001B at offset 4 is not allowed in YAML",
		strings.Repeat("%TAG !a! b\n", 17): "f:17:1: there are more than 16 %TAG directives",
	} {
		d, _ := decoder(source, false)
		testkit.True(t, strings.HasPrefix(d.Diagnostics().Error(), want), "%.60q: %v, want %s", source,
			d.Diagnostics(), want)
	}
	d, _ := decoder(strings.Repeat("- 1\n", MaxDiagnostics+7), false)
	many := d.Diagnostics()
	testkit.Need(t, len(many) == MaxDiagnostics+1, "%d faults", len(many))
	testkit.Equal(t, many[MaxDiagnostics].Message, "7 more errors were found: fix the ones above first")
}

func TestDecodedValues(t *testing.T) {
	d, all := decoder("- {name: a, of: {B: true, c: 7}, wait: 1m, size: 9, flag: false, own: [X, 'Y'], more: {z: "+
		"'1', y: '2'}, plus: 1, half: 7, low: {on: true}}\n- {name: b, kind: other, wait: 0}\n", false)
	testkit.Works(t, d.Diagnostics().Err())
	testkit.Same(t, all, []item{
		{"a", map[string]string{"B": "true", "c": "7"}, "one", time.Minute, 9, false, []string{"x", "y"},
			[]named{{"z", "1"}, {"y", "2"}}, new(1.0), 3.5, map[string]bool{"on": true}},
		{Name: "b", Kind: "other", Flag: true},
	})

	v := d.Find("x", 0)
	testkit.Equal(t, v.Node, d.root, "what is at a path is not found")
	testkit.True(t, d.Has([]any{1}, "kind"), "what is at a path is not found")
	testkit.True(t, !d.Has([]any{1, "kind", "x"}), "what is at a path is not found")
	testkit.True(t, !d.Has([]any{2}), "what is at a path is not found")
	testkit.Equal(t, d.At("odd", 0, "more", "y").String(), "f:1:99: [0].more.y: odd")
}

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

// Warnings are not faults, and come with them only on request.
func TestWarnings(t *testing.T) {
	d, _ := decoder("- name: a\n  kind: odd\n", false)
	d.WarnAt([]any{0, "name"}, "is %s", "short")
	d.WarnAt(nil, "is short")
	testkit.Equal(t, d.Warnings().Error(), "f: warning: is short\nf:1:9: warning: [0].name: is short")
	testkit.Fails(t, d.Diagnostics().Err(), "")
	testkit.Equal(t, d.All().Error(), d.Warnings().Error()+"\n"+d.Diagnostics().Error())

	for range MaxDiagnostics {
		d.WarnAt(nil, "again")
	}
	testkit.Equal(t, d.Warnings()[MaxDiagnostics].Message, "2 more warnings were found: fix the ones above first")
	testkit.Works(t, Diagnostics(nil).Err())
}

// What the tags name must exist.
func TestUnknownRules(t *testing.T) {
	for tag, zero := range map[string]any{
		`as:"none"`:             "",
		`keys:"none"`:           map[string]string{},
		`as:"none" is:"a list"`: []string{},
		`min:"1"`:               uint8(0),
		`max:"x"`:               0,
	} {
		func() {
			defer func() { testkit.True(t, recover() != nil, "accepted: %T %s", zero, tag) }()
			of := reflect.StructOf([]reflect.StructField{{
				Name: "A",
				Type: reflect.TypeOf(zero),
				Tag:  reflect.StructTag(`yaml:"a" ` + tag),
			}})
			d := &Decoder{}
			d.Decode(Self(d.Open([]byte(map[bool]string{
				true:  "a: {b: c}",
				false: "a: 1",
			}[of.Field(0).Type.Kind() == reflect.Map]))), reflect.New(of).Interface())
		}()
	}
}

func TestFaultsOfOtherPlaces(t *testing.T) {
	d, _ := decoder("- 1", false)
	d.FaultIn(Position{}, "", "of no line")
	d.FaultIn(Position{Line: 2}, "", "of another file")
	testkit.Equal(t, len(d.Diagnostics()), 3)
}

func TestUnclosedQuotes(t *testing.T) {
	for text, want := range map[string]int{
		"a: \"x\nb: \"y":               1,
		"a: 'it''s\n b' c":             1,
		"a: \"x\\\" \ny\" z":           1,
		"- 'x\ny' z":                   1,
		"{a: 'x\n y' z}":               1,
		"\"x\ny\" z":                   1,
		"a:   \"x\ny\" z":              1,
		"a: [b, 'x\ny' z":              1,
		"a: |\n  \"x\n  y\" z":         0,
		"a: |\n\n  \"x\nb: \"y\nc\" z": 4,
		"a: |\nb: \"y\nc\" z":          2,
		"a: >- # b\n  'x\n  y' z":      0,
		"a: \"x\nb\" # c":              0,
		"a: \"x\ny\", b":               0,
		"a: \"x\ny\": b":               0,
		"a: \"x\" y":                   0,
		"a: 'x'":                       0,
		"a: x'\ny' z":                  0,
		"# it's\nit's a":               0,
		"a: b # 'c\nd' e":              0,
		"a: b#\nc: 'd\ne' f":           2,
	} {
		testkit.Equal(t, unclosedQuote(bytes.SplitAfter([]byte(text), []byte("\n"))), want, "%q", text)
	}
}

// What a message repeats of a file is short, whole characters, and quoted where it is not plain.
func TestWhatAMessageRepeats(t *testing.T) {
	long := strings.Repeat("x", maxQuoted)
	for text, want := range map[string]string{
		long:                       long,
		long + "x":                 long + "…",
		long[1:] + "é":             long[1:] + "…",
		strings.Repeat("\x80", 99): "…",
	} {
		testkit.Equal(t, Clip(text), want)
	}
	testkit.Equal(t, Join([]string{"azAZ09_-", "", "é", "a b", "a{", "`", "@", "[", "/", ":", "11"}),
		`azAZ09_-, "", "é", "a b", "a{", "`+"`"+`", "@", "[", "/", ":" and 1 more`)
	testkit.Equal(t, Join([]string{long, long + "x"}), long+`, "`+long+`…"`)
	testkit.Equal(t, strings.Count(Join(slices.Repeat([]string{"x"}, 10)),
		"x")+strings.Count(Join(slices.Repeat([]string{"x"}, 10)), "more"), 10)

	for text, want := range map[string]int{
		"\x1f":          0,
		" ~\n\r\t":      -1,
		"a\x7f":         1,
		"\u0085":        0,
		"a\u2028":       1,
		"\u2029":        0,
		"a\u0084":       1,
		"a\u009f":       1,
		"\u00a0é\ufffd": -1,
		"a\ufeff":       1,
		"a\ufffe":       1,
		"a\uffff":       1,
		"é\xff":         2,
	} {
		at, bad := firstBad([]byte(text))
		testkit.True(t, bad == (want >= 0) && (!bad || at == want), "%q: %d %t", text, at, bad)
		at, bad = NotUTF8([]byte(text))
		testkit.Equal(t, bad, text == "é\xff", "%q at %d", text, at)
	}
}
