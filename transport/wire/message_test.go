package wire

import (
	"encoding/json"
	"strings"
	"testing"
)

// Ids are texts, or integers that a client that has floats alone can tell apart.
func TestIDsOfMessages(t *testing.T) {
	for id, fits := range map[string]bool{
		`"x"`: true, `""`: true, "1": true, "-5": true, "1.0": true, "9007199254740992": true, "-9007199254740992": true,
		"9007199254740993": false, "-9007199254740993": false, "9223372036854775808": false, "1.5": false, "1e300": false, "true": false, "[1]": false,
	} {
		if got, err := DecodeID(json.RawMessage(id)); (err == nil) != fits {
			t.Errorf("%s: %v, %v", id, got, err)
		}
	}
}

func FuzzLine(f *testing.F) {
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`
	for _, s := range []string{call, `[` + call + `,2]`, `{"jsonrpc":"2.0","id":1.5,"method":null}`, `{"id":"x"}`, `[[`, "\xff", `{"jsonrpc":"2.0","id":1,"result":{}}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		r := newLineReader(strings.NewReader(in))
		for range len(in) + 2 {
			l := r.next()
			if l.err != nil {
				return
			}
			if len(l.messages)+len(l.faults) == 0 {
				t.Fatalf("%q: a line that is neither message nor fault", in)
			}
			for _, m := range l.messages {
				if b, err := appendMessage(nil, m); err != nil || strings.Contains(string(b), "\n") {
					t.Fatalf("%q: %q, %v", in, b, err)
				}
			}
		}
		t.Fatalf("%q: no end", in)
	})
}

func TestFindID(t *testing.T) {
	for message, want := range map[string]any{
		`{"id":1}`: int64(1), `{"id":"a","params":{"id":2}}`: "a", `{"method":"x","id":"a","params":{"id":2}}`: "a", `{"params":[{"id":3}],"id":-4}`: int64(-4),
		`{ "params":{"id":3}, "jsonrpc": "2.0" , "id" : 1e2 } `: int64(100), `{"params":7,"id":"\"","method":"m","jsonrpc":"2.0"}`: `"`,
		`{"id":null}`: nil, `{"id":{"id":1}}`: nil, `{"id":1.5}`: nil, `{"params":{"a":1,"id":2}}`: nil, `{"params":[{"a":1,"id":2}]}`: nil, `{"a":"\"id\":7}"}`: nil,
	} {
		if got := findID([]byte(message), []byte(message)).Raw(); got != want {
			t.Errorf("%s: %v, not %v", message, got, want)
		}
	}
}

// An id that is found in the bytes of a message is the one that a decoder finds.
func FuzzFindID(f *testing.F) {
	for _, s := range []string{`{"method":"x","id":"a","params":{"id":2}}`, `{"params":[{"id":3}],"id":-4.5}`, `{"a":"\"id\":7","id":8}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var top map[string]json.RawMessage
		if json.Unmarshal(data, &top) != nil || strings.Count(string(data), "id") > 1 {
			return // of several ids the last one counts
		}
		want, _ := DecodeID(top["id"])
		if got := findID(data, data); got.IsValid() && got.Raw() != want.Raw() {
			t.Errorf("%s: found %v, want %v", data, got.Raw(), want.Raw())
		}
	})
}
