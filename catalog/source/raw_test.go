package source_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"deepwork/actor/testkit"
	"deepwork/catalog/source"
)

// An order is what the raw source is asked for, as a workflow's input.
type order struct {
	Before []byte `json:"before,omitempty"` // is written before the answer
	Result []byte `json:"result,omitempty"` // is the answer's result, whatever it is
	Size   int    `json:"size,omitempty"`   // is about the size of the answer, in bytes
	Await  string `json:"await,omitempty"`  // is not answered before this file is there; .began beside it says that it has begun
	Filler string `json:"filler,omitempty"` // says nothing
}

// beRaw is a source that writes, byte for byte, what it is ordered to; no SDK
// would.
func beRaw() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	fmt.Println("raw source, version 1\n[INFO] listening on standard input\n✓ ready")
	for in.Scan() {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				ProtocolVersion string
				Name            string
				Arguments       struct{ Input order }
			}
		}
		if err := json.Unmarshal(in.Bytes(), &m); err != nil || m.ID == nil {
			continue
		}
		result := "{}"
		switch m.Method {
		case "initialize":
			result = fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"raw","version":"1"}}`, m.Params.ProtocolVersion)
		case "tools/list":
			result = `{"nextCursor":null,"tools":[null,{"name":"odd","inputSchema":null},{"name":"workflows-list-tool","inputSchema":{"type":"object"}},{"name":"workflows-execute-tool","inputSchema":{"type":"object"}}]}`
		case "tools/call":
			if m.Params.Name == "workflows-list-tool" {
				result = "{\"content\":[],\"structuredContent\":[{\"id\":\"r\",\"name\":\"raw\",\"description\":\"d\xff\",\"executionType\":\"sync\",\"metadata\":{\"m\":\"\xff\"}," +
					"\"inputSchema\":{\"type\":\"object\",\"title\":\"\xff\"}}]}"
				break
			}
			o := m.Params.Arguments.Input
			if o.Await != "" {
				os.WriteFile(o.Await+".began", nil, 0o600)
				for exists := false; !exists; time.Sleep(2 * time.Millisecond) {
					_, err := os.Stat(o.Await)
					exists = err == nil
				}
			}
			os.Stdout.Write(o.Before)
			if result = string(o.Result); o.Size > 0 {
				result = largeResult(o.Size)
			}
		}
		fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n", m.ID, result)
	}
}

func (o order) String() string {
	data, _ := json.Marshal(o)
	return string(data)
}

func rawSource(t *testing.T) (*rig, *source.Workflow) { return offering(t, command("s", "raw"), "raw") }

func TestWhatASourceAnswersIsReadOrRefused(t *testing.T) {
	t.Parallel()
	r, w := rawSource(t)
	testkit.True(t, utf8.ValidString(w.Description) && utf8.Valid(w.InputSchema) && utf8.Valid(w.Metadata), "what is no UTF-8 was passed on: %q", w.InputSchema)
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for result, want := range map[string]string{
		"{\"content\":[],\"structuredContent\":{\"x\":\"a\xff\xfeb\"}}": "{\"x\":\"a\uFFFDb\"}",
		`{"content":[],"structuredContent":{"a":1,"a":2}}`:              `{"a":1,"a":2}`,
		`{"content":[],"structuredContent":` + deep(200) + `}`:          deep(200),
		`{"content":[],"structuredContent":` + deep(201) + `}`:          `"` + deep(201) + `"`,
		`{"content":[{"type":"text","text":"` + deep(9000) + `"}]}`:     `"` + deep(9000) + `"`,
		`{"content":[{"type":"text","text":"{\"x\":NaN}"}]}`:            `"{\"x\":NaN}"`,
		`{"content":[{"type":"text","text":7}]}`:                        `[{"type":"text","text":7}]`,
		`{"content":[],"_meta":7}`:                                      ``,
		`{}`:                                                            ``,
	} {
		r.gives(t, w, order{Result: []byte(result)}.String(), want, "%.80q", result)
	}
	for result, want := range map[string]string{
		`null`: "it is null", `7`: "it is a number", `[]`: "it is an array",
		`{"content":"x"}`: "its content is a text", `{"content":[],"isError":"no"}`: "its isError is a text",
		`{"isError":true}`: "an error that says nothing", `{"isError":true,"content":[]}`: "an error that says nothing",
	} {
		_, err := r.execute(t, w, order{Result: []byte(result)}.String())
		e, ok := errors.AsType[*source.RefusedError](err)
		testkit.True(t, ok && strings.Contains(e.Error(), want) && !errors.Is(err, source.ErrLost), "%s: %v, want %q", result, err, want)
	}
}

func TestStrayLinesDoNotCostTheConnection(t *testing.T) {
	t.Parallel()
	r, w := rawSource(t)
	r.logged(t, "a source writes what is no message", "raw source, version 1")
	var logged strings.Builder // objects with the id of every call that there may be
	for id := range 90 {
		fmt.Fprintf(&logged, "{\"id\":%d,\"result\":NaN}\n", id)
	}
	answer := []byte(`{"content":[{"type":"text","text":"ok"}]}`)
	for _, before := range []string{
		"working…\n", "\n\n", strings.Repeat("x", 200<<10) + "\n", strings.Repeat("noise\n", 100), logged.String(),
		`{"level":"info","msg":"an object that is logged"}` + "\n", strings.Repeat("{ x\n", 60),
		"{ starting\n", "{\n  a: 1,\n}\n", "{\n", "[1, 2]\n", "  indented\n", "{\"open\n", "{'python': True}\n", "[\n", "{\"a\": [\n", "12\n", "\"a\"\n",
	} {
		r.gives(t, w, order{Before: []byte(before), Result: answer}.String(), `"ok"`, "%.40q", before)
	}
	testkit.Equal(t, r.connected(), 1, "it was connected to … times")
}

// A message that cannot be read costs the calls in flight, as lost, and the
// connection; later calls go on over the next one.
func TestAMessageThatIsNotJSONCostsItsConnection(t *testing.T) {
	t.Parallel()
	for result, says := range map[string]string{
		`{"content":[],"structuredContent":{"mean":NaN}}`:                                           "'N'",
		`{"content":[],"structuredContent":{"max":Infinity,"min":-Infinity,"says":"a \\ \"NaN\""}}`: "'I'",
		`{"content":[]` + "\n" + `}`:                                                                "unexpected end",
		`{"content":[]}} trailing {`:                                                                "not JSON",
		`{"content":['a']}`:                                                                         "not JSON",
		`{"x":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`:                   "max depth",
	} {
		r, w := rawSource(t)
		began := time.Now()
		_, err := r.execute(t, w, order{Result: []byte(result)}.String())
		testkit.FailsWith(t, err, source.ErrLost, "%.60s", result)
		testkit.Fails(t, err, says, "%.60s", result)
		testkit.True(t, time.Since(began) <= 30*time.Second, "%.60s took %v", result, time.Since(began))
		r.gives(t, w, order{Result: []byte(`{"content":[],"structuredContent":{"a":1}}`)}.String(), `{"a":1}`, "after %.60s", result)
	}
}

// A source that does one thing at a time does not read while it works: a call that is
// given up before it could be written returns at once, and costs the other nothing.
func TestACallIsGivenUpWhileItsSourceWorks(t *testing.T) {
	t.Parallel()
	r, w := rawSource(t)
	gate := filepath.Join(t.TempDir(), "gate")
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.gives(t, w, order{Await: gate, Result: []byte(`{"content":[],"structuredContent":{"a":1}}`)}.String(), `{"a":1}`, "the other call")
	}()
	testkit.Until(t, "begun", func() bool { _, err := os.Stat(gate + ".began"); return err == nil })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := r.Execute(ctx, w, []byte(order{Filler: strings.Repeat("x", 1<<20)}.String()), nil) // more than a pipe holds
	testkit.FailsWith(t, err, context.DeadlineExceeded)
	testkit.True(t, time.Since(began) <= writePatience, "it took %v", time.Since(began))
	testkit.Must(t, os.WriteFile(gate, nil, 0o600))
	<-done
}

// writePatience is well below the time that a write to a command may take.
const writePatience = 20 * time.Second

// An error that answers nothing ends the connection, and is not taken for what the
// source says of the calls that are under way.
func TestAnErrorThatAnswersNothingIsNoAnswer(t *testing.T) {
	t.Parallel()
	r, w := rawSource(t)
	_, err := r.execute(t, w, order{Before: []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}` + "\n"), Result: []byte("{}")}.String())
	_, refused := errors.AsType[*source.RefusedError](err)
	testkit.True(t, !refused && errors.Is(err, source.ErrLost), "%v", err)
	r.back(t, "raw")
}
