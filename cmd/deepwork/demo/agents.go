package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/process"
	"deepwork/catalog/config"
	"deepwork/session/attempt/executors"
)

// Agents are the demo's agents and reviewer, by their subcommand. They read their task from in, and write what they say
// to out.
var Agents = map[string]func(ctx context.Context, in io.Reader, out io.Writer) error{
	"coder":    coder,
	"writer":   writer,
	"reviewer": reviewer,
}

// coder does the board's task in the current folder, a worktree, and commits.
func coder(ctx context.Context, _ io.Reader, out io.Writer) error {
	if err := os.WriteFile("greeting.txt", []byte("Hello, and welcome!\n"), 0o644); err != nil {
		return err
	}
	fmt.Fprintln(out, "I've made the greeting friendlier.")
	_, err := process.Run(ctx, process.Spec{Command: []string{"git", "commit", "-qam", "Make the greeting friendlier"}})
	return err
}

// reviewer passes an issue that agrees with the story's notes, and a page that has a tip.
func reviewer(_ context.Context, in io.Reader, out io.Writer) error {
	told, err := io.ReadAll(in)
	if err != nil {
		return err
	}

	feedback := ""
	if bytes.Contains(told, []byte("Excel")) {
		feedback = "notes.md has CSV, but not Excel."
	} else if bytes.Contains(told, []byte("end with a tip?")) && !bytes.Contains(told, []byte("Tip:")) {
		feedback = "Add a tip at the end."
	}
	return json.NewEncoder(out).Encode(map[string]any{"passed": feedback == "", "feedback": feedback})
}

// writer writes the page of the step that its environment names, and hands it in to the server named there, at first
// without a tip.
func writer(ctx context.Context, _ io.Reader, out io.Writer) error {
	server := &mcp.StreamableClientTransport{
		Endpoint:   os.Getenv(config.MCPURLEnv),
		HTTPClient: &http.Client{Transport: bearer(os.Getenv(executors.TokenEnv))},
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "deepwork-demo-writer"}, nil).Connect(ctx, server, nil)
	if err != nil {
		return err
	}
	defer session.Close()

	step, said := os.Getenv(config.StepEnv), "I've written the page."
	time.Sleep(300 * time.Millisecond) // so that three of them can be seen at work
	for _, text := range []string{"Mind the " + step + ".\n", "Mind the " + step + ". Tip: take your time.\n"} {
		if err := os.WriteFile(step+".md", []byte(text), 0o644); err != nil {
			return err
		}

		reply, err := call(ctx, session, "finished_step",
			map[string]any{"outputs": map[string]string{"page": step + ".md"}})
		switch {
		case err != nil || reply["refused"] != nil:
			return fmt.Errorf("finishing %s: %v, %v", step, reply["refused"], err)
		case reply["status"] != "needs_work":
			fmt.Fprintln(out, said)
			return nil
		}
		said = "I've written the page, and added the tip that the review asked for."
	}

	return errors.New("the review failed twice")
}

// call calls a tool and returns its reply, with the fields of the step that begins moved to the top. A refusal has only
// "refused".
func call(ctx context.Context, session *mcp.ClientSession, tool string, arguments any) (map[string]any, error) {
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return nil, fmt.Errorf("calling %s: %w", tool, err)
	}
	if text, ok := result.Content[0].(*mcp.TextContent); ok && result.IsError {
		return map[string]any{"refused": text.Text}, nil
	}

	reply, _ := result.StructuredContent.(map[string]any)
	step, _ := reply["begin_step"].(map[string]any)
	maps.Copy(reply, step)
	return reply, nil
}

// A bearer sends itself as the token of each request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}
