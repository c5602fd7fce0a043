package wire

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

type output struct{ bytes.Buffer }

func (*output) Close() error { return nil }

// Whatever comes in, it is read to its end, and each line is a message or answered.
func FuzzLine(f *testing.F) {
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`
	for _, s := range []string{call, `[` + call + `,2]`, call + " \r\n" + call, `{"id":"x"}`, `[[`, "\xff", `{"jsonrpc":"2.0","id":1,"result":{}}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		out := &output{}
		c := NewStdio(io.NopCloser(strings.NewReader(in)), out, slog.New(slog.DiscardHandler))
		c.Connect(t.Context())
		read := 0
		for msg, err := c.Read(t.Context()); err == nil; msg, err = c.Read(t.Context()) {
			read++
			if r, ok := msg.(*jsonrpc.Request); ok && r.IsCall() {
				c.Write(t.Context(), &jsonrpc.Response{ID: r.ID, Result: json.RawMessage("{}")})
			}
		}
		<-c.Ended
		if strings.TrimSpace(in) != "" && read+out.Len() == 0 {
			t.Errorf("%q is neither read nor answered", in)
		}
		for line := range bytes.Lines(out.Bytes()) {
			if _, err := jsonrpc.DecodeMessage(line); err != nil && !bytes.Contains(line, []byte(`"id":null,"error"`)) {
				t.Errorf("%q is answered with %q: %v", in, line, err)
			}
		}
	})
}
