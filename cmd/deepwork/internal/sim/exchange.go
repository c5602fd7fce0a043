//go:build unix

package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// connection returns the agent's connection to a process.
func (a *agent) connection(ctx context.Context, r *run) (*mcp.ClientSession, error) {
	if r.client != nil {
		return r.client, nil
	}
	if c := a.clients[r]; c != nil {
		return c, nil
	}
	c, err := client().Connect(ctx, &mcp.StreamableClientTransport{Endpoint: r.url, MaxRetries: -1, DisableStandaloneSSE: true},
		&mcp.ClientSessionOptions{ProtocolVersion: "2025-06-18"}) // one that has connections
	if err != nil {
		return nil, err
	}
	for old := range a.clients {
		if !a.alive(old) {
			delete(a.clients, old)
		}
	}
	a.clients[r] = c
	return c, nil
}

// callTime bounds a call; no server takes so long.
const callTime = 30 * time.Second

// call makes one call of a workflow tool.
func (a *agent) call(ctx context.Context, r *run, in input) answer {
	result, odd := a.exchange(ctx, r, in.Tool, in.arguments())
	switch {
	case odd != "":
		return answer{kind: oddAnswer, reply: odd}
	case result == nil:
		return answer{kind: lostAnswer}
	}
	ans := read(in, result)
	session := in.Session
	if ans.session != "" {
		session = ans.session
	}
	ans.damaged = a.world.history.isDamaged(session)
	return ans
}

// exchange makes one call of any tool. No result: it is lost; odd is why that
// must not be.
func (a *agent) exchange(ctx context.Context, r *run, tool string, arguments any) (result *mcp.CallToolResult, odd string) {
	// What the world does to the disk it does while no call is under way.
	a.world.calls.RLock()
	defer a.world.calls.RUnlock()
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	began := time.Now()
	cut := a.random.IntN(25) == 0
	c, err := a.connection(bounded, r)
	if err == nil {
		if cut { // the client gives up
			var giveUp context.CancelFunc
			bounded, giveUp = context.WithTimeout(bounded, rand.N(4*time.Millisecond))
			defer giveUp()
		}
		if result, err = c.CallTool(bounded, &mcp.CallToolParams{Name: tool, Arguments: arguments}); err == nil {
			if a.random.IntN(25) == 0 {
				return nil, "" // it came, and the client has lost it
			}
			return result, ""
		}
	}
	if !cut && errors.Is(err, context.DeadlineExceeded) && time.Since(began) >= callTime && a.alive(r) {
		return nil, fmt.Sprintf("no answer within %v", callTime)
	}
	if a.alive(r) && !cut {
		// The process may be about to end; a connection that broke is not used again.
		delete(a.clients, r)
		pause(ctx, 5*time.Millisecond)
	}
	return nil, ""
}

func (in input) arguments() json.RawMessage {
	args := map[string]any{}
	put := func(key, value string) {
		if value != "" {
			args[key] = value
		}
	}
	put("request_id", in.Request)
	put("session_id", in.Session)
	switch in.Tool {
	case "start_workflow":
		args = map[string]any{"goal": "g", "job_name": "sim", "workflow_name": in.Workflow}
		put("request_id", in.Request)
		put("parent_session_id", in.Parent)
	case "finished_step":
		args["outputs"] = map[string]any{}
		put("step_id", in.Step)
	case "go_to_step":
		put("step_id", in.Step)
	case "abort_workflow":
		put("explanation", in.Text)
	}
	text, err := json.Marshal(args)
	if err != nil {
		panic(err) // a map of texts
	}
	return text
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
