package longwork

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/durable"
	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/session/attempt/runner"
)

// Work is the agent of a run's step: `proof worker JOURNAL DURATION`. It works so long, writes the report and finishes
// the step, and notes in the journal when it begins and when the step is finished, and if another agent of its step
// still works.
func Work(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("worker needs a journal and a duration")
	}
	takes, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	session, step := os.Getenv(config.SessionEnv), os.Getenv(config.StepEnv)
	lock, err := durable.TryLock(args[0] + ".lock")
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(lock) // until the process ends: a file that is collected is closed
	if lock == nil {
		return note(args[0], "beside", session)
	}
	if err := errors.Join(note(args[0], "begin", session), wait.For(ctx, takes), os.WriteFile("report.md", []byte("Done.\n"), 0o644)); err != nil {
		return err
	}
	at := &mcp.StreamableClientTransport{Endpoint: os.Getenv(config.MCPURLEnv), HTTPClient: &http.Client{Transport: bearer(os.Getenv(runner.TokenEnv))}}
	server, err := mcp.NewClient(&mcp.Implementation{Name: "worker", Version: "1"}, nil).Connect(ctx, at, nil)
	if err != nil {
		return err
	}
	defer server.Close()
	r, err := server.CallTool(ctx, &mcp.CallToolParams{Name: "finished_step", Arguments: map[string]any{"step_id": step, "outputs": map[string]any{"report": "report.md"}}})
	if err == nil && r.IsError {
		err = fmt.Errorf("finished_step: %+v", r.Content)
	}
	if err != nil {
		return err
	}
	return note(args[0], "finished", session)
}

// note adds a line to a journal, in one piece.
func note(journal, what, name string) error {
	f, err := os.OpenFile(journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s %s %d\n", what, name, os.Getpid())
	return errors.Join(err, f.Close())
}

// bearer is a token that goes with each request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}
