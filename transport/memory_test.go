package transport

import (
	"context"
	"fmt"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/session/workflow/machine"
	"deepwork/transport/web"
)

// A server that leads many agents for months keeps next to nothing for a session that has ended and
// a connection that was closed: their request_ids, in the index.
func TestEndedSessionsUseNoMemory(t *testing.T) {
	s, _ := project(t, nil)
	h := overHTTP(t, s, web.Options{})
	over := &mcp.StreamableClientTransport{Endpoint: h.URL(), HTTPClient: httpClient(t, "")}
	sessions := 0
	work := func(connections int) uint64 {
		for range connections {
			cs, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).
				Connect(context.Background(), over, &mcp.ClientSessionOptions{ProtocolVersion: stateful})
			must(t, err)
			for range 10 {
				sessions++
				into[machine.StartReply](t, cs, "start_workflow", fmt.Sprintf(`{"goal":"g","job_name":"trip","workflow_name":"dream","request_id":"start %d"}`, sessions))
				r := into[machine.FinishReply](t, cs, "finished_step", fmt.Sprintf(`{"outputs":{"idea":"idea.txt"},"request_id":"finish %d"}`, sessions))
				if r.Status != machine.WorkflowComplete {
					t.Fatalf("reply %+v", r)
				}
			}
			cs.Close()
		}
		return memory()
	}
	before := work(10)
	was := sessions
	after := work(20)
	each := (int64(after) - int64(before)) / int64(sessions-was)
	t.Logf("%d bytes before, %d after %d more sessions: %d each", before, after, sessions-was, each)
	if each > 1024 {
		t.Errorf("%d bytes remain of each ended session", each)
	}
}
