package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/session/attempt/runner"
)

// Agents are the agents and the reviewer of the demo, by the name of the command that this program is for them. They
// read their task from in, and print what they say to out.
var Agents = map[string]func(ctx context.Context, in io.Reader, out io.Writer) error{"coder": coder, "writer": writer, "reviewer": reviewer}

// pages are the steps of the almanac that run at the same time.
var pages = []string{"weather", "garden", "kitchen"}

// pageText is a page as it passes the review.
func pageText(page string) string {
	return map[string]string{
		"weather": "Fog in the morning, and stars at night. Tip: look up.\n",
		"garden":  "The leaves are down, and the hedgehogs know it. Tip: leave them a heap.\n",
		"kitchen": "It is the month of soups. Tip: make twice as much.\n",
	}[page]
}

// writer does the step that its environment names, and hands it in to the server that it names.
func writer(ctx context.Context, _ io.Reader, out io.Writer) error {
	client := mcp.NewClient(&mcp.Implementation{Name: "deepwork-demo-writer"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: os.Getenv(config.MCPURLEnv), HTTPClient: &http.Client{Transport: bearer(os.Getenv(runner.TokenEnv))},
		DisableStandaloneSSE: true, MaxRetries: -1}, nil)
	if err != nil {
		return err
	}
	defer session.Close()
	step := os.Getenv(config.StepEnv)
	if !slices.Contains(pages, step) {
		var all strings.Builder
		for _, page := range pages {
			text, err := os.ReadFile(page + ".md")
			if err != nil {
				return err
			}
			all.Write(text)
		}
		if err := os.WriteFile("almanac.md", []byte(all.String()), 0o644); err != nil {
			return err
		}
		if err := commit(ctx, "The almanac"); err != nil {
			return err
		}
		return finish(ctx, out, session, "almanac", "almanac.md", all.String())
	}
	text := pageText(step)
	if step == "garden" { // it forgets the tip
		text, _, _ = strings.Cut(text, " Tip:")
	}
	if err := os.WriteFile(step+".md", []byte(text), 0o644); err != nil {
		return err
	}
	for _, page := range pages { // all have begun
		for _, err := os.Stat(page + ".md"); err != nil; _, err = os.Stat(page + ".md") {
			if err := wait.For(ctx, 20*time.Millisecond); err != nil {
				return fmt.Errorf("waiting for the writer of the page %s: %w", page, err)
			}
		}
	}
	return finish(ctx, out, session, "page", step+".md", text)
}

// finish hands in a file, and again, with the tip, if its review does not pass.
func finish(ctx context.Context, out io.Writer, session *mcp.ClientSession, output, file, text string) error {
	feedback := ""
	for range 2 {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "finished_step", Arguments: map[string]any{"outputs": map[string]string{output: file}}})
		if err != nil {
			return err
		}
		var reply struct{ Status, Feedback string }
		if err := json.Unmarshal([]byte(resultText(result)), &reply); err != nil || result.IsError {
			return fmt.Errorf("finished_step: %s", resultText(result))
		}
		if reply.Status != "needs_work" {
			said := "I have written " + file + "."
			if feedback != "" {
				said = "The review said: " + feedback + " I have done that."
			}
			fmt.Fprintln(out, said)
			return nil
		}
		feedback, text = "Add a tip at the end.", pageText(strings.TrimSuffix(file, ".md"))
		if !strings.Contains(reply.Feedback, feedback) {
			return fmt.Errorf("needs_work: %s", reply.Feedback)
		}
	}
	return fmt.Errorf("the review of %s has failed twice", file)
}

// reviewer passes a page with a tip, and a newsletter without the mistake that the story makes.
func reviewer(_ context.Context, in io.Reader, out io.Writer) error {
	told, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	feedback, text := "", string(told)
	switch {
	case strings.Contains(text, "joinde"):
		feedback = "Correct the spelling of 'joinde'."
	case strings.Contains(text, "end with a tip?") && !strings.Contains(text, "Tip:"):
		feedback = "Add a tip at the end."
	}
	return json.NewEncoder(out).Encode(map[string]any{"passed": feedback == "", "feedback": feedback})
}

// bearer sends a token with each request, unless it is "".
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if b != "" {
		r.Header.Set("Authorization", "Bearer "+string(b))
	}
	return http.DefaultTransport.RoundTrip(r)
}

// coder does the task of the board in the current folder, which is a worktree, and commits.
func coder(ctx context.Context, _ io.Reader, out io.Writer) error {
	if err := os.WriteFile("greeting.txt", []byte("Hello, and welcome!\n"), 0o644); err != nil {
		return err
	}
	if err := commit(ctx, "Make the greeting friendlier"); err != nil {
		return err
	}
	fmt.Fprintln(out, "I have made the greeting friendlier, and committed it.")
	return nil
}

// commit commits all changes in the current folder.
func commit(ctx context.Context, message string) error {
	for _, args := range [][]string{{"add", "."}, {"commit", "-q", "-m", message}} {
		if out, err := exec.CommandContext(ctx, "git", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", args[0], err, out)
		}
	}
	return nil
}
