//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"deepwork/actor/testkit"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// output runs a client, a minute at most, and returns what it printed. The client
// has its own home, for what it keeps there.
func output(t *testing.T, argv ...string) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	cmd.Stderr, cmd.WaitDelay = t.Output(), time.Second
	out, err := cmd.Output()
	if ctx.Err() != nil {
		err = fmt.Errorf("it took too long: %w", errors.Join(ctx.Err(), err))
	}
	return out, err
}

// exitCode is that of a program that was not killed; -1 if it was.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return e.ExitCode()
	}
	return -1
}

// runClient runs a client to its good end.
func runClient(t *testing.T, argv ...string) []byte {
	t.Helper()
	out, err := output(t, argv...)
	if err != nil {
		t.Fatalf("the client ended with %v, after\n%s", err, out)
	}
	return out
}

// waitForTool waits until a server that was started just now has found a tool at
// its source, as a client hears of it.
func waitForTool(t *testing.T, url, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	changed := make(chan struct{}, 1)
	client := mcp.NewClient(&mcp.Implementation{Name: "interop", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			select {
			case changed <- struct{}{}:
			default:
			}
		},
	})
	cs, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	testkit.Must(t, err)
	defer cs.Close()
	for {
		list, err := cs.ListTools(ctx, nil)
		testkit.Must(t, err)
		if slices.ContainsFunc(list.Tools, func(tool *mcp.Tool) bool { return tool.Name == name }) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("the server does not list %s", name)
		}
	}
}
