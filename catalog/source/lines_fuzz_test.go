package source

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// Whatever a command writes, what comes through the filter are messages, each valid
// JSON with "jsonrpc" in it, and there is an end of it.
func FuzzLineFilter(f *testing.F) {
	for _, s := range []string{
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n", "hello\n{\"jsonrpc\":\"2.0\",\n\"id\":1,\"result\":{}}\nbye\n",
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"x\":NaN}}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n", "{\"jsonrpc\":\"2.0\",\"id\":1,\n", "{}\n[]\n\"\"\n\n  \n", "{\"a\":\"\xff\"}{",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		s := newLineFilter(io.NopCloser(bytes.NewReader(in)), func(line string) {
			if len(line) > 10_000 {
				t.Errorf("%d bytes of a stray line are told", len(line))
			}
		})
		out, err := io.ReadAll(io.LimitReader(s, int64(2*len(in)+1_000_000)))
		if err != nil && strings.TrimSpace(err.Error()) == "" {
			t.Errorf("an error without words")
		}
		d := json.NewDecoder(bytes.NewReader(out))
		for {
			var message json.RawMessage
			if err := d.Decode(&message); err == io.EOF {
				return
			} else if err != nil {
				t.Fatalf("%q came through of %q: %v", out, in, err)
			}
			if !bytes.Contains(message, []byte(`"jsonrpc"`)) {
				t.Errorf("%q is no message", message)
			}
		}
	})
}
