package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// Whatever comes in, what is passed on are lines that the SDK can read, and each other line is answered.
func FuzzLine(f *testing.F) {
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`
	for _, s := range []string{call, `[` + call + `,2]`, call + " \r\n" + call, `{"id":"x"}`, `[[`, "\xff", `{"jsonrpc":"2.0","id":1,"result":{}}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		refused, ended := 0, 0
		r := &lineReader{in: bufio.NewReader(strings.NewReader(in)), ended: func() { ended++ }, refuse: func(code int64, reason string) {
			if refused++; code == 0 || reason == "" {
				t.Errorf("%q is refused with %d %q", in, code, reason)
			}
		}}
		out, err := io.ReadAll(r)
		if err != nil || ended == 0 {
			t.Fatalf("%q: %v, ended %d times", in, err, ended)
		}
		passed := 0
		for line := range bytes.Lines(out) {
			passed++
			if _, err := jsonrpc.DecodeMessage(line); err != nil || !json.Valid(line) || line[len(line)-1] != '\n' {
				t.Errorf("%q passes %q on: %v", in, line, err)
			}
		}
		if strings.TrimSpace(in) != "" && refused+passed == 0 {
			t.Errorf("%q is neither answered nor passed on", in)
		}
	})
}
