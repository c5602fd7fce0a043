package main

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestInsertServer(t *testing.T) {
	tests := map[string]struct{ in, want string }{
		"empty object": {"{}\n", clients[0].stdio().file()},
		"before another server": {
			"{\n  \"mcpServers\": {\n    \"other\": {\"command\": \"other\"}\n  },\n  \"z\": 1,\n  \"a\": [1, 2]\n}\n",
			"{\n  \"mcpServers\": {\n    \"deepwork\": {\n      \"command\": \"deepwork\",\n      \"args\": [\"serve\", \"--path\", \".\"]\n    },\n    \"other\": {\"command\": \"other\"}\n  },\n  \"z\": 1,\n  \"a\": [1, 2]\n}\n",
		},
		"tabs, no servers yet, CRLF": {
			"{\r\n\t\"inputs\": []\r\n}\r\n",
			"{\r\n\t\"mcpServers\": {\r\n\t\t\"deepwork\": {\r\n\t\t\t\"command\": \"deepwork\",\r\n\t\t\t\"args\": [\"serve\", \"--path\", \".\"]\r\n\t\t}\r\n\t},\r\n\t\"inputs\": []\r\n}\r\n",
		},
		"empty servers": {
			"{\n    \"mcpServers\": {},\n    \"x\": null\n}",
			"{\n    \"mcpServers\": {\n        \"deepwork\": {\n            \"command\": \"deepwork\",\n            \"args\": [\"serve\", \"--path\", \".\"]\n        }\n    },\n    \"x\": null\n}",
		},
		"empty servers on two lines": {
			"{\n  \"mcpServers\": {\n  }\n}",
			"{\n  \"mcpServers\": {\n    \"deepwork\": {\n      \"command\": \"deepwork\",\n      \"args\": [\"serve\", \"--path\", \".\"]\n    }\n  }\n}",
		},
		"already there": {`{"mcpServers":{"deepwork":{"command":"mine"}}}`, `{"mcpServers":{"deepwork":{"command":"mine"}}}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := insertServer([]byte(tt.in), clients[0].stdio())
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
			again, err := insertServer(got, clients[0].stdio())
			if err != nil || !bytes.Equal(again, got) {
				t.Errorf("the second time: %v\n%s", err, again)
			}
		})
	}
}

func TestInsertServerLeavesAlone(t *testing.T) {
	for in, want := range map[string]string{
		"":                                     "cannot be parsed",
		"{\n// no\n}":                          "line 2",
		`{"a": 1,}`:                            "cannot be parsed",
		`{"a": 1} x`:                           "cannot be parsed",
		`[]`:                                   "not a JSON object",
		`null`:                                 "not a JSON object",
		`{"mcpServers": []}`:                   `"mcpServers" is not an object`,
		`{"mcpServers": null}`:                 `"mcpServers" is not an object`,
		`{"mcpServers":{"a":{"command":"a"}}}`: "another form",
		"{\n \"a\": {\n  \"mcpServers\": {}\n }\n}":         "another form",
		"{\n  \"mcpServers\": {},\n  \"mcpServers\": {}\n}": "another form",
		"\ufeff{}":                  "cannot be parsed",
		strings.Repeat("[", 20_000): "cannot be parsed",
	} {
		got, err := insertServer([]byte(in), clients[0].stdio())
		if _, ok := err.(*leftAloneError); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("insertServer(%.40q) = %q, %v; want a *leftAloneError with %q", in, got, err, want)
		}
	}
}

// FuzzInsertServer holds the promise of init: what was in the file is still
// there, byte for byte around one insertion, and the server is in it.
func FuzzInsertServer(f *testing.F) {
	for _, seed := range []string{
		"{}", `{"mcpServers":{}}`, "{\n\t\"mcpServers\" : {\n\t\t\"a\" :{}\n\t}\n}", `{"a":"{\"","mcpServers":{"b\"":[{}]}}`,
		"{\"a\":1\n,\"b\":2}", ` { "mcpServers" : { } , "n" : -1.5e3 } `, `{"mcpServers":{"deepwork":null}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		out, err := insertServer(in, clients[0].stdio())
		if err != nil {
			return
		}
		if bytes.Equal(in, out) {
			return
		}
		var before, after map[string]any
		if err := json.Unmarshal(in, &before); err != nil {
			t.Fatalf("edited a file that does not parse: %v", err)
		}
		if err := json.Unmarshal(out, &after); err != nil {
			t.Fatalf("%q became %q: %v", in, out, err)
		}
		servers, _ := before["mcpServers"].(map[string]any)
		if servers == nil {
			servers = map[string]any{}
			before["mcpServers"] = servers
		}
		servers["deepwork"] = map[string]any{"command": "deepwork", "args": []any{"serve", "--path", "."}}
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("%q became %q", in, out)
		}
		if again, err := insertServer(out, clients[0].stdio()); err != nil || !bytes.Equal(again, out) {
			t.Fatalf("%q: not the same the second time: %v", out, err)
		}
		prefix := 0
		for prefix < len(in) && in[prefix] == out[prefix] {
			prefix++
		}
		if !bytes.HasSuffix(out, in[prefix:]) && strings.TrimSpace(string(in)) != "{}" {
			t.Fatalf("%q became %q: more than one insertion", in, out)
		}
	})
}
