package jsontext

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

func TestKindAndDepth(t *testing.T) {
	for raw, want := range map[string]string{
		"":                         ", missing, 0, true",
		" \n":                      ", missing, 0, true",
		" null":                    "null, null, 0, true",
		"true":                     "boolean, a boolean, 0, false",
		"-1.5e3":                   "number, a number, 0, false",
		`"[{\"["`:                  "string, a string, 0, false",
		"[]":                       "array, an array, 1, false",
		`{"a":[{"b\\":"]"},[[]]]}`: "object, an object, 4, false",
	} {
		data := []byte(raw)
		testkit.Equal(t, fmt.Sprintf("%s, %s, %d, %t", Kind(data), WithArticle(Kind(data)), Depth(data), IsNull(data)),
			want, "%q", raw)
	}
}

func TestMembersKeepsOrderDigitsAndDuplicates(t *testing.T) {
	var got strings.Builder
	for m, err := range Members([]byte(` {"b": 9007199254740993, "a" : {"x":[1, 2]}, "b":null} `)) {
		testkit.Must(t, err)
		got.WriteString(m.Name + "=" + string(m.Value) + ";")
	}
	testkit.Equal(t, got.String(), `b=9007199254740993;a={"x":[1, 2]};b=null;`)

	for raw, notObject := range map[string]bool{
		"":         false,
		"[]":       true,
		"3":        true,
		`{"a":1`:   false,
		`{"a":}`:   false,
		`{"a" 1}`:  false,
		`{"a":1,}`: false,
	} {
		var last error
		for _, err := range Members([]byte(raw)) {
			testkit.True(t, last == nil, "%q: something follows the error %v", raw, last)
			last = err
		}
		testkit.True(t, last != nil && errors.Is(last, ErrNotObject) == notObject, "%q: error %v", raw, last)
	}
}

func TestEncode(t *testing.T) {
	testkit.Equal(t, string(Quote("<a&b>\n\xff")), `"<a&b>\n\ufffd"`)
	for _, c := range []string{" ", "~", "\x7f", "é"} {
		testkit.Equal(t, string(Quote(c)), `"`+c+`"`)
	}
	testkit.Equal(t, string(Quote("\x1f\"\\")), `"\u001f\"\\"`)
	testkit.Fails(t, testkit.Get(Encode(make(chan int))).Err(), "", "a channel was encoded")
}

func TestClip(t *testing.T) {
	for s, want := range map[string]string{
		"":        "",
		"abc":     "abc",
		"abcd":    "ab…",
		"äöü":     "äöü",
		"äöüß":    "äö…",
		"a\xffbc": "a\xff…",
	} {
		testkit.Equal(t, Clip(s, 3), want, "%q", s)
	}
	testkit.Equal(t, Clip("日本語", 1), "…")
}

func TestUnquote(t *testing.T) {
	for in, want := range map[string]string{
		`"{\"a\":\"b\"}"`: `{"a":"b"}`, `" [1]"`: ` [1]`, `{"a":1}`: `{"a":1}`,
		`"a.md"`: `"a.md"`, `"{a}"`: `"{a}"`, `"7"`: `"7"`, `null`: `null`, ``: ``,
	} {
		testkit.Equal(t, string(Unquote([]byte(in))), want, "%v", in)
	}
}

func TestNearest(t *testing.T) {
	candidates := []string{"draft", "review", "max_items", "ok"}
	// The bounds against hostile files are not those of a person.
	long := strings.Repeat("x", 64)
	testkit.Equal(t, Nearest(long, []string{long[1:] + "y"}), long[1:]+"y")
	testkit.Equal(t, Nearest(long, []string{long + "y", "", long[2:] + "yz", long[1:] + "y"}), long[1:]+"y")
	testkit.Equal(t, Nearest("a", append(make([]string, 999), "A"))+Nearest("a", append(make([]string, 1000), "A")),
		"A")
	testkit.Equal(t, Nearest("abc", []string{"abd"})+Nearest("abc", []string{"ade"})+Nearest("abcd", []string{"abef"}),
		"abdabef")

	for name, want := range map[string]string{
		"draft":                 "draft",
		"darft":                 "draft",
		"drafts":                "draft",
		"dra":                   "",
		"d":                     "",
		"reviwe":                "review",
		"Max-Items":             "max_items",
		"maxitem":               "max_items",
		"okay":                  "ok",
		"kk":                    "ok",
		"no":                    "",
		strings.Repeat("x", 65): "",
	} {
		testkit.Equal(t, Nearest(name, candidates), want, "%.20s", name)
	}
}

func TestAnOrderedMapKeepsItsOrder(t *testing.T) {
	var m OrderedMap[int]
	testkit.Must(t, json.Unmarshal([]byte(` {"b":1,"a<":2} `), &m))
	m = m.Set("c", 3).Set("b", 4)
	testkit.Equal(t, string(testkit.Get(json.Marshal(m)).Must(t)), `{"b":4,"a\u003c":2,"c":3}`)
	for key, want := range map[string]int{"b": 4, "c": 3, "d": 0} {
		got, there := m.Get(key)
		testkit.Equal(t, got, want, "%s", key)
		testkit.Equal(t, there, want > 0, "%s is there", key)
	}
	for _, bad := range []string{`{"a":1,"a":2}`, `{"a":"x"}`, `[1]`} {
		testkit.Fails(t, json.Unmarshal([]byte(bad), &m), "", "%s", bad)
	}
	testkit.Must(t, json.Unmarshal([]byte("null"), &m))
	testkit.Equal(t, m == nil, true)
	testkit.Equal(t, string(testkit.Get(json.Marshal(m)).Must(t)), "{}")
	testkit.Fails(t, testkit.Get(json.Marshal(OrderedMap[any]{{"a", func() {}}})).Err(), "", "a function is written")
}
