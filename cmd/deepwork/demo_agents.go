package main

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
	"github.com/spf13/cobra"

	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/session/attempt/runner"
)

// demoAgents returns the agents of the demo, which are this program.
func (a *app) demoAgents() []*cobra.Command {
	agent := func(name, short string, run func(ctx context.Context) error) *cobra.Command {
		return &cobra.Command{Use: name, Short: short, Hidden: true, Args: takes(0, 0, ""), RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := context.WithTimeout(cmd.Context(), demoTimeout)
			defer stop()
			return run(ctx)
		}}
	}
	return []*cobra.Command{
		agent("coder", "Do the task of the demo's board", func(ctx context.Context) error { return a.demoCoder(ctx, a.in) }),
		agent("writer", "Do a step of the demo's run", a.demoWriter),
		agent("reviewer", "Review a file of the demo", func(context.Context) error { return a.demoReviewer(a.in) }),
	}
}

// demoPages are the steps of the almanac that run at the same time.
var demoPages = []string{"weather", "garden", "kitchen"}

// demoText is a page as it passes the review.
func demoText(page string) string {
	return map[string]string{
		"weather": "Fog in the morning, and stars at night. Tip: look up.\n",
		"garden":  "The leaves are down, and the hedgehogs know it. Tip: leave them a heap.\n",
		"kitchen": "It is the month of soups. Tip: make twice as much.\n",
	}[page]
}

// demoWriter does the step that its environment names, and hands it in to the server that it names.
func (a *app) demoWriter(ctx context.Context) error {
	session, err := dialStep(ctx, os.Getenv(config.MCPURLEnv), os.Getenv(runner.TokenEnv))
	if err != nil {
		return err
	}
	defer session.Close()
	step := os.Getenv(config.StepEnv)
	if !slices.Contains(demoPages, step) {
		var all strings.Builder
		for _, page := range demoPages {
			text, err := os.ReadFile(page + ".md")
			if err != nil {
				return err
			}
			all.Write(text)
		}
		return a.demoFinish(ctx, session, "almanac", "almanac.md", all.String())
	}
	text := demoText(step)
	if step == "garden" { // it forgets the tip
		text, _, _ = strings.Cut(text, " Tip:")
	}
	if err := os.WriteFile(step+".md", []byte(text), 0o644); err != nil {
		return err
	}
	for _, page := range demoPages { // all have begun
		for _, err := os.Stat(page + ".md"); err != nil; _, err = os.Stat(page + ".md") {
			if err := wait.For(ctx, 20*time.Millisecond); err != nil {
				return fmt.Errorf("waiting for the writer of the page %s: %w", page, err)
			}
		}
	}
	return a.demoFinish(ctx, session, "page", step+".md", text)
}

// demoFinish hands in a file, and again, with the tip, if its review does not pass.
func (a *app) demoFinish(ctx context.Context, session *mcp.ClientSession, output, file, text string) error {
	feedback := ""
	for range 2 {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "finished_step", Arguments: object{"outputs": object{output: file}}})
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
			fmt.Fprintln(a.out, said)
			return nil
		}
		feedback, text = "Add a tip at the end.", demoText(strings.TrimSuffix(file, ".md"))
		if !strings.Contains(reply.Feedback, feedback) {
			return fmt.Errorf("needs_work: %s", reply.Feedback)
		}
	}
	return fmt.Errorf("the review of %s has failed twice", file)
}

// demoReviewer passes a page with a tip, and a newsletter without the mistake that the demo makes.
func (a *app) demoReviewer(task io.Reader) error {
	told, err := io.ReadAll(task)
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
	return json.NewEncoder(a.out).Encode(object{"passed": feedback == "", "feedback": feedback})
}

// dialStep connects to the server of a run.
func dialStep(ctx context.Context, url, token string) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "deepwork-demo-writer", Version: readBuild().Version}, nil)
	return client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearer(token)}, DisableStandaloneSSE: true, MaxRetries: -1}, nil)
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

// demoCoder does the demo's task in the current folder, which is a worktree, and commits.
func (a *app) demoCoder(ctx context.Context, prompt io.Reader) error {
	told, err := io.ReadAll(prompt)
	if err != nil {
		return err
	}
	if !strings.Contains(string(told), demoTask) {
		return fmt.Errorf("the prompt is not the task %q: %s", demoTask, told)
	}
	if err := os.WriteFile("greeting.txt", []byte(demoWelcome), 0o644); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "git", "commit", "-q", "-a", "-m", demoTask).CombinedOutput(); err != nil {
		return fmt.Errorf("git commit: %w: %s", err, out)
	}
	fmt.Fprintln(a.out, "I have made the greeting friendlier, and committed it.")
	return nil
}
