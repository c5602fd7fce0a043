package jsontext

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

func TestKindAndDepth(t *testing.T) {
	for _, c := range []struct {
		raw, kind, words string
		depth            int
	}{
		{"", "", "missing", 0}, {" \n", "", "missing", 0},
		{" null", "null", "null", 0}, {"true", "boolean", "a boolean", 0},
		{"-1.5e3", "number", "a number", 0}, {`"[{\"["`, "string", "a string", 0},
		{"[]", "array", "an array", 1}, {`{"a":[{"b\\":"]"},[[]]]}`, "object", "an object", 4},
	} {
		raw := []byte(c.raw)
		if Kind(raw) != c.kind || WithArticle(Kind(raw)) != c.words || Depth(raw) != c.depth || IsNull(raw) != (c.kind == "" || c.kind == "null") {
			t.Errorf("%q: kind %q, %q, depth %d, null %v", c.raw, Kind(raw), WithArticle(Kind(raw)), Depth(raw), IsNull(raw))
		}
	}
}

func TestMembersKeepsOrderDigitsAndDuplicates(t *testing.T) {
	var got strings.Builder
	for m, err := range Members([]byte(` {"b": 9007199254740993, "a" : {"x":[1, 2]}, "b":null} `)) {
		testkit.Must(t, err)
		got.WriteString(m.Name + "=" + string(m.Value) + ";")
	}
	testkit.Equal(t, got.String(), `b=9007199254740993;a={"x":[1, 2]};b=null;`)
	for raw, notObject := range map[string]bool{"": false, "[]": true, "3": true, `{"a":1`: false, `{"a":}`: false, `{"a" 1}`: false, `{"a":1,}`: false} {
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
	for _, c := range []struct {
		s    string
		n    int
		want string
	}{
		{"", 3, ""}, {"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"äöü", 3, "äöü"}, {"äöüß", 3, "äö…"}, {"日本語", 1, "…"}, {"a\xffbc", 3, "a\xff…"},
	} {
		testkit.Equal(t, Clip(c.s, c.n), c.want, "Clip(%q, %d)", c.s, c.n)
	}
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
	testkit.Equal(t, Nearest("a", append(make([]string, 999), "A"))+Nearest("a", append(make([]string, 1000), "A")), "A")
	testkit.Equal(t, Nearest("abc", []string{"abd"})+Nearest("abc", []string{"ade"})+Nearest("abcd", []string{"abef"}), "abdabef")
	for name, want := range map[string]string{
		"draft": "draft", "darft": "draft", "drafts": "draft", "dra": "", "d": "", "reviwe": "review", "Max-Items": "max_items",
		"maxitem": "max_items", "okay": "ok", "kk": "ok", "no": "", strings.Repeat("x", 65): "",
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
		if err := json.Unmarshal([]byte(bad), &m); err == nil {
			t.Errorf("%s is read as %v", bad, m)
		}
	}
	testkit.Must(t, json.Unmarshal([]byte("null"), &m))
	testkit.Equal(t, m == nil, true)
	testkit.Equal(t, string(testkit.Get(json.Marshal(m)).Must(t)), "{}")
	if _, err := json.Marshal(OrderedMap[any]{{"a", func() {}}}); err == nil {
		t.Error("a function is written")
	}
}
