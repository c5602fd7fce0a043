package transport

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"deepwork/session/remote"
	"deepwork/transport/wire"
)

// A client that closed its end is not waited for until its runs have ended: each call
// is told which run it was, and that it goes on; the rest is answered as before.
func TestStdioDoesNotWaitForRunsAfterEOF(t *testing.T) {
	f := newFactory(standardWorkflows...)
	s, _ := withSource(t, f, "")
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	if runGrace != 10*time.Second {
		t.Errorf("it waits for %v", runGrace)
	}
	began, served := time.Now(), make(chan error, 1)
	go func() { served <- s.serveStdio(t.Context(), wire.NewStdio(in, out, s.logger), time.Millisecond) }()
	go func() {
		io.WriteString(toServer, hello+toolsCallOf("1", "hang", `{}`)+toolsCallOf("2", "call_workflow_tool", `{"name":"block"}`))
		f.until(t, "both runs", func() bool { return f.looked() && contains(f.started, "w-block") })
		io.WriteString(toServer, toolsCallOf("3", "echo", `{"customer":"a"}`))
		f.until(t, "the third", func() bool { return contains(f.started, "w-echo") })
		toServer.Close()
	}()
	data, err := io.ReadAll(fromServer)
	must(t, err)
	noError(t, <-served)
	if took := time.Since(began); took > eofGrace/2 {
		t.Errorf("it took %v", took)
	}
	got := replies(t, strings.Split(strings.TrimSuffix(string(data), "\n"), "\n"))
	for _, id := range []string{"1", "2"} {
		result, _ := json.Marshal(got[id])
		if !strings.Contains(string(result), `"code":"stopping"`) || !strings.Contains(string(result), "call workflow_status with execution_id") {
			t.Errorf("call %s: %s", id, result)
		}
	}
	if len(got) != 4 {
		t.Errorf("%d replies: %s", len(got), data)
	}
	if r := only(t, s); r.State != remote.Running {
		t.Errorf("the run: %+v", r)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.cancelled)+len(f.ended) != 0 {
		t.Errorf("cancelled %v, cut off %v", f.cancelled, f.ended)
	}
	close(f.let)
}

// toolsCallOf is the line of a tool call.
func toolsCallOf(id, name, arguments string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + name + `","arguments":` + arguments + "}}\n"
}
