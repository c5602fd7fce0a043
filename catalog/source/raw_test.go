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
				for {
					if _, err := os.Stat(o.Await); err == nil {
						break
					}
					time.Sleep(2 * time.Millisecond)
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

func executeRaw(t *testing.T, r *rig, w *source.Workflow, o order) (*source.Answer, error) {
	t.Helper()
	input := testkit.Get(json.Marshal(o)).Must(t)
	return r.Execute(t.Context(), w, input, nil)
}

func TestWhatASourceAnswersIsReadOrRefused(t *testing.T) {
	t.Parallel()
	r := open(t, settings(command("s", "raw")))
	tool := r.tools(t, "raw").Tools[0]
	testkit.True(t, utf8.ValidString(tool.Description) && utf8.Valid(tool.InputSchema) && utf8.Valid(tool.Metadata), "what is no UTF-8 was passed on: %q", tool.InputSchema)
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
		got, err := executeRaw(t, r, &tool.Workflow, order{Result: []byte(result)})
		testkit.True(t, err == nil && got.State == source.Completed && string(got.Output) == want, "%.80q: %.200v %v, want %.80q", result, got, err, want)
	}
	for result, want := range map[string]string{
		`null`: "it is null", `7`: "it is a number", `[]`: "it is an array",
		`{"content":"x"}`: "its content is a text", `{"content":[],"isError":"no"}`: "its isError is a text",
		`{"isError":true}`: "an error that says nothing", `{"isError":true,"content":[]}`: "an error that says nothing",
	} {
		got, err := executeRaw(t, r, &tool.Workflow, order{Result: []byte(result)})
		e, ok := errors.AsType[*source.RefusedError](err)
		testkit.True(t, ok && strings.Contains(e.Error(), want) && !errors.Is(err, source.ErrLost), "%s: %+v %v, want %q", result, got, err, want)
	}
}

func TestStrayLinesDoNotCostTheConnection(t *testing.T) {
	t.Parallel()
	r := open(t, settings(command("s", "raw")))
	w := &r.tools(t, "raw").Tools[0].Workflow
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
		testkit.Equal(t, string(testkit.Get(executeRaw(t, r, w, order{Before: []byte(before), Result: answer})).Must(t).Output), `"ok"`, "%.40q", before)
	}
	testkit.Equal(t, strings.Count(r.log.String(), "a source is connected"), 1, "it was connected to … times")
}

// A message that cannot be read costs the calls in flight, as lost, and the
// connection; later calls go on over the next one.
func TestAMessageThatIsNotJSONCostsItsConnection(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ before, result, says string }{
		{"", `{"content":[],"structuredContent":{"mean":NaN}}`, "'N'"},
		{"", `{"content":[],"structuredContent":{"max":Infinity,"min":-Infinity,"says":"a \\ \"NaN\""}}`, "'I'"},
		{"", `{"content":[]` + "\n" + `}`, "unexpected end"},
		{"", `{"content":[]}} trailing {`, "not JSON"},
		{"", `{"content":['a']}`, "not JSON"},
		{"", `{"x":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`, "max depth"},
	} {
		r := open(t, settings(command("s", "raw")))
		w := &r.tools(t, "raw").Tools[0].Workflow
		began := time.Now()
		got, err := executeRaw(t, r, w, order{Before: []byte(c.before), Result: []byte(c.result)})
		if !errors.Is(err, source.ErrLost) || !strings.Contains(err.Error(), c.says) || time.Since(began) > 30*time.Second {
			t.Errorf("%.60s: %+v %v after %v", c.result, got, err, time.Since(began))
		}
		testkit.Equal(t, string(testkit.Get(executeRaw(t, r, w, order{Result: []byte(`{"content":[],"structuredContent":{"a":1}}`)})).Must(t).Output), `{"a":1}`, "after %.60s", c.result)
	}
}

// A source that does one thing at a time does not read while it works: a call that is
// given up before it could be written returns at once, and costs the other nothing.
func TestACallIsGivenUpWhileItsSourceWorks(t *testing.T) {
	t.Parallel()
	r := open(t, settings(command("s", "raw")))
	w := &r.tools(t, "raw").Tools[0].Workflow
	gate := filepath.Join(t.TempDir(), "gate")
	done := make(chan error, 1)
	go func() {
		got, err := executeRaw(t, r, w, order{Await: gate, Result: []byte(`{"content":[],"structuredContent":{"a":1}}`)})
		if err == nil && string(got.Output) != `{"a":1}` {
			err = fmt.Errorf("it gave %s", got.Output)
		}
		done <- err
	}()
	testkit.Until(t, "begun", func() bool { _, err := os.Stat(gate + ".began"); return err == nil })
	input, err := json.Marshal(order{Filler: strings.Repeat("x", 1<<20)}) // more than a pipe holds
	testkit.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := r.Execute(ctx, w, input, nil); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > writePatience {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	testkit.Must(t, os.WriteFile(gate, nil, 0o600))
	testkit.Works(t, <-done, "the other call")
}

// writePatience is well below the time that a write to a command may take.
const writePatience = 20 * time.Second

// An error that answers nothing ends the connection, and is not taken for what the
// source says of the calls that are under way.
func TestAnErrorThatAnswersNothingIsNoAnswer(t *testing.T) {
	t.Parallel()
	r := open(t, settings(command("s", "raw")))
	w := &r.tools(t, "raw").Tools[0].Workflow
	_, err := executeRaw(t, r, w, order{Before: []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}` + "\n"), Result: []byte("{}")})
	_, refused := errors.AsType[*source.RefusedError](err)
	testkit.True(t, !refused && errors.Is(err, source.ErrLost), "%v", err)
	r.until(t, "the source to be back", func(s *source.Snapshot) bool { return len(s.Tools) == 1 && s.Tools[0].Away == "" })
}
