package transport

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/session/workflow/machine"
	"deepwork/transport/web"
)

// A stdio server that is asked to stop tells its engine before the connection is
// closed, and so does Close: no session is written for the end of the program.
func TestTheEngineKnowsOfTheEndFirst(t *testing.T) {
	for _, how := range []string{"stdio", "Close"} {
		t.Run(how, func(t *testing.T) {
			var open *fakeAgent
			told := make(chan bool, 9) // whether the connection was still open
			s, f := fakeServer(t, nil, func(p *engines) { p.stopping = func() { told <- !isClosed(open) } })
			if how == "Close" {
				client(t, s)
				open = f.agents[0]
				noError(t, s.Close(t.Context()))
			} else {
				in, ends := io.Pipe()
				defer ends.Close()
				ctx, stop := context.WithCancel(t.Context())
				served := make(chan error, 1)
				go func() { served <- s.ServeStdio(ctx, in, discardCloser{io.Discard}) }()
				if _, err := io.WriteString(ends, hello); err != nil {
					t.Fatal(err)
				}
				waitFor(t, "it is connected", func() bool { return s.conns.Len() == 1 })
				f.mu.Lock()
				open = f.agents[0]
				f.mu.Unlock()
				stop()
				noError(t, <-served)
			}
			if len(told) == 0 || !<-told {
				t.Error("it was not told, or too late")
			}
		})
	}
}

// At the end of the server the record of a session is as its last transition left
// it; when a connection alone ends, the session is anybody's.
func TestTheEndWritesNoSession(t *testing.T) {
	s, root := project(t, nil)
	cs, other := client(t, s), client(t, s)
	const start = `{"goal":"g","job_name":"trip","workflow_name":"plan"}`
	record := func(id string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(root, ".deepwork", "tmp", "session_"+id+".json"))
		must(t, err)
		return string(data)
	}
	freed := into[machine.StartReply](t, other, "start_workflow", start).BeginStep.SessionID
	must(t, other.Close())
	waitFor(t, "the session of a closed connection is free", func() bool { return strings.Contains(record(freed), `"owner": ""`) })
	id := into[machine.StartReply](t, cs, "start_workflow", start).BeginStep.SessionID
	before := record(id)
	must(t, s.Close(t.Context()))
	if after := record(id); after != before {
		t.Errorf("the end wrote the session:\n%s\nwas\n%s", after, before)
	}
}

// The log line of a stateless call has the stack that the call is about.
func TestStatelessCallsAreLoggedWithTheirStack(t *testing.T) {
	logger, log := logged()
	s, _ := project(t, func(o *Options) { o.Logger = logger })
	cs := dial(t, overHTTP(t, s, web.Options{}), "", "")
	start := `{"goal":"g","job_name":"trip","workflow_name":"plan"%s}`
	outer := into[machine.StartReply](t, cs, "start_workflow", fmt.Sprintf(start, "")).BeginStep.SessionID
	inner := into[machine.StartReply](t, cs, "start_workflow", fmt.Sprintf(start, `,"parent_session_id":"`+outer+`"`)).BeginStep.SessionID
	into[machine.StepReply](t, cs, "get_step", `{"session_id":"`+inner+`"}`)
	lines := log.lines(t, "call")
	if lines[0]["session"] != outer || lines[1]["session"] != inner { // of the sessions that they started
		t.Errorf("logged: %v", lines[:2])
	}
	last := lines[len(lines)-1]
	if last["session"] != inner || fmt.Sprint(last["stack"]) != "[trip/plan trip/plan]" {
		t.Errorf("logged: %v", last)
	}
}
