package transport

import (
	"io"
	"strings"
	"sync"
	"testing"
)

type discardCloser struct{ io.Writer }

func (discardCloser) Close() error { return nil }

// A session whose input ends at once may be over before ServeStdio has looked for its connection:
// that is no error.
func TestStdioSessionsThatEndAtOnce(t *testing.T) {
	s := serverOn(t, t.TempDir(), nil)
	const in = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"short","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"get_workflows","arguments":{}}}
`
	var clients sync.WaitGroup
	for range 50 {
		clients.Go(func() {
			for range 40 {
				noError(t, s.ServeStdio(t.Context(), io.NopCloser(strings.NewReader(in)), discardCloser{io.Discard}))
			}
		})
	}
	clients.Wait()
}
