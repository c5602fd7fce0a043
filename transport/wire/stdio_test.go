package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"deepwork/actor/testkit"
)

type output struct{ bytes.Buffer }

func (*output) Close() error { return nil }

// connected is a connection of a client that sends a text.
func connected(t *testing.T, in string) (*Stdio, *output) {
	out := &output{}
	c := NewStdio(io.NopCloser(strings.NewReader(in)), out, slog.New(slog.DiscardHandler))
	c.Connect(t.Context())
	return c, out
}

// Whatever comes in, it is read to its end, and each line is a message, as the SDK reads it, or answered.
func FuzzLine(f *testing.F) {
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`
	for _, s := range []string{call, `[` + call + `,2]`, call + " \r\n" + call, `{"id":"x"}`, `[[`, "\xff",
		`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","Method":"x"}`,
		`{"jsonrpc":"2.0","id":null,"method":""}`,
		`{"method":"a","jsonrpc":"2.0","id":"\u00e9","method":"b","params":null}`,
		`{"method":"a"}`, `{"method":"a","jsonrpc":"2.0","id":1,"method":null}`} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, in string) {
		if json.Valid([]byte(in)) {
			want, failed := jsonrpc.DecodeMessage([]byte(in))
			got, err := decode([]byte(in))
			testkit.Equal(t, fmt.Sprint(err), fmt.Sprint(failed))
			testkit.Same(t, got, want)
		}
		c, out := connected(t, in)
		read := 0
		for msg, err := c.Read(t.Context()); err == nil; msg, err = c.Read(t.Context()) {
			read++
			if r, ok := msg.(*jsonrpc.Request); ok && r.IsCall() {
				c.Write(t.Context(), &jsonrpc.Response{ID: r.ID, Result: json.RawMessage("{}")})
			}
		}

		<-c.Ended
		testkit.True(t, strings.TrimSpace(in) == "" || read+out.Len() != 0, "%q is neither read nor answered", in)
		for line := range bytes.Lines(out.Bytes()) {
			_, err := jsonrpc.DecodeMessage(line)
			testkit.True(t, err == nil || bytes.Contains(line, []byte(`"id":null,"error"`)),
				"%q is answered with %q: %v", in, line, err)
		}
	})
}

// What is not a message is answered, and the rest is read; the input ends only when every call is answered.
func TestLines(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	many := func(n int) string {
		return "[" + strings.Repeat(`{"jsonrpc":"2.0","method":"x"},`, n-1) + `{"jsonrpc":"2.0","method":"x"}]`
	}
	for _, c := range []struct {
		in   string
		read int
		out  string
	}{
		{call + "\n\n \t\n", 1, `"id":1,"result"`},
		{"[" + call + "," + call + "]", 1, "a call with this id is still in flight"},
		{`[` + call + `,{"jsonrpc":"2.0","method":"x"}]`, 2, `"id":1,"result"`},
		{many(MaxBatch), MaxBatch, ""},
		{many(MaxBatch + 1), 0, "a batch of 1001 messages; it must have 1 to 1000"},
		{"[]", 0, "a batch of 0 messages"},
		{"[" + call + `,2]`, 1, "invalid request"},
		{"nonsense", 0, "parse error: invalid character"},
		{`{"jsonrpc":"2.0","id":7,"method":"ping"`, 0, `"code":-32700`},
		{call + " {}", 0, `"code":-32700`},
		{`{"id":7}`, 0, `"code":-32600`},
		{`{"jsonrpc":"1.0","id":"s","method":"ping"}`, 0, `"code":-32600`},
		{`{"jsonrpc":"2.0","id":{},"method":"ping"}`, 0, `"code":-32600`},
		{`{"jsonrpc":"2.0","id":7,"method":8}`, 0, `"code":-32600`},
		{`{"jsonrpc":"2.0","id":7,"error":8}`, 0, `"code":-32600`},
		{`{"jsonrpc":"2.0","id":7,"method":"ping","params":` + strings.Repeat("[", 5_000) + strings.Repeat("]", 5_000) +
			"}", 0, `"code":-32600`},
		{`{"jsonrpc":"2.0","id":7,"method":"ping","params":` +
			strings.Repeat("[", 50_000) + strings.Repeat("]", 50_000) + "}", 0, `"code":-32700`},
		{`"` + strings.Repeat("x", MaxLine) + `"` + "\n" + call, 1,
			"the message has 8388611 bytes; at most 8388608 are read"},
		{`{"jsonrpc":"2.0","method":"x","params":"` + strings.Repeat("y", MaxLine-50) + `"}` + "\n", 1, ""},
		{`{"jsonrpc":"2.0","id":1732700000123456789,"method":"ping"}`, 0,
			`"id":1732700000123456789,"error":{"code":-32600,"message":"invalid request: the id ` +
				`1732700000123456789 would be rounded`},
		{`{"jsonrpc":"2.0","id":0.7316,"method":"ping"}`, 0, `"id":0.7316,"error":{"code":-32600,`},
		{`{"jsonrpc":"2.0","id":9007199254740991,"method":"ping"}`, 1, `"id":9007199254740991,"result"`},
		{`{"jsonrpc":"2.0","id":9,"method":"` + ListenMethod + `"}`, 1, `"id":9`},
	} {
		conn, out := connected(t, c.in)
		var calls []jsonrpc.ID
		for range c.read {
			if r := testkit.Get(conn.Read(t.Context())).Must(t).(*jsonrpc.Request); r.IsCall() {
				calls = append(calls, r.ID)
			}
		}
		for _, id := range calls {
			testkit.Must(t, conn.Write(t.Context(), &jsonrpc.Response{ID: id, Result: json.RawMessage("{}")}))
		}
		testkit.FailsWith(t, testkit.Get(conn.Read(t.Context())).Err(), io.EOF, "after %.40s", c.in)
		testkit.Contains(t, out.String(), c.out, "%.40s", c.in)
		testkit.Equal(t, c.out == "", out.Len() == 0, "%.40s is answered", c.in)
		testkit.Works(t, conn.Err())
	}
}

// The error of a call that its client has cancelled is not sent, and its id may be used again.
func TestCancelledCalls(t *testing.T) {
	in := `{"jsonrpc":"2.0","id":1,"method":"a"}
{"jsonrpc":"2.0","id":2,"method":"b"}
{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}
{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}
{"jsonrpc":"2.0","method":"notifications/cancelled","params":[1]}
`
	c, out := connected(t, in)
	var ids []jsonrpc.ID
	for range 5 {
		if r := testkit.Get(c.Read(t.Context())).Must(t).(*jsonrpc.Request); r.IsCall() {
			ids = append(ids, r.ID)
		}
	}
	testkit.Fails(t, c.Unanswered(), "2 calls did not end in time")

	for _, id := range ids {
		testkit.Must(t, c.Write(t.Context(), &jsonrpc.Response{ID: id, Error: errors.New("given up")}))
	}
	testkit.Must(t, c.Write(t.Context(), &jsonrpc.Request{Method: "news"}))
	testkit.Fails(t, c.Unanswered(), "0 calls")
	testkit.ContainsAll(t, out.String(), []string{`"id":2`, "news"})
	testkit.Equal(t, strings.Count(out.String(), "\n"), 2, "lines in %s", out)
}

// At the limit of calls in flight reading pauses; Stop ends it once they are answered, and Close at once.
func TestReadingPauses(t *testing.T) {
	var in strings.Builder
	for i := range MaxInFlight + 1 {
		fmt.Fprintf(&in, `{"jsonrpc":"2.0","id":%d,"method":"x"}`+"\n", i)
	}

	synctest.Test(t, func(t *testing.T) {
		c, _ := connected(t, in.String())
		for range MaxInFlight {
			testkit.Get(c.Read(t.Context())).Must(t)
		}

		read := make(chan error, 1)
		next := func() {
			_, err := c.Read(t.Context())
			read <- err
		}
		go next()
		synctest.Wait()
		testkit.Equal(t, len(read), 0, "messages beyond the limit")

		id := testkit.Get(jsonrpc.MakeID(float64(0))).Must(t)
		testkit.Must(t, c.Write(t.Context(), &jsonrpc.Response{ID: id, Result: json.RawMessage("{}")}))
		testkit.Works(t, <-read)

		c.Stop()
		go next()
		synctest.Wait()
		testkit.Equal(t, len(read), 0, "calls are in flight")

		testkit.Must(t, c.Close())
		testkit.FailsWith(t, <-read, io.EOF)
		<-c.Closed
		c.Wait()
	})
}

// A client that does not read fails its connection.
func TestWritesThatFail(t *testing.T) {
	broken := errors.New("broken pipe")
	c := NewStdio(io.NopCloser(strings.NewReader("")), failing{broken}, slog.New(slog.DiscardHandler))
	testkit.FailsWith(t, c.Write(t.Context(), &jsonrpc.Request{Method: "news"}), broken)

	<-c.Closed
	testkit.FailsWith(t, c.Err(), broken)

	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		c := NewStdio(in, out, slog.New(slog.DiscardHandler))
		go c.Write(t.Context(), &jsonrpc.Request{Method: "news"})
		time.Sleep(StallAfter - 1)
		synctest.Wait()
		testkit.Works(t, c.Err(), "a slow client")

		<-c.Closed
		testkit.Equal(t, c.Err(), ErrStalled)
		c.Wait()
	})
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
func (failing) Close() error                { return nil }
