// Package pagetest gives tests a project with pages: its files, callers with tokens, and calls of MCP
// tools over the network.
package pagetest

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/state/statetest"
	"deepwork/transport/web"
)

// Hostile is a text that would run a script on a page that does not escape it, in each place where a
// page may have it, with a word that is wider than a screen.
const Hostile = `"'><script>window.hit=1</script><img src=x onerror="window.hit=1">{{.}}</title></textarea> ` +
	"Donaudampfschifffahrtsgesellschaftskapitaenswitwenrentenauszahlungsstelle"

const tripJob = `name: trip
version: 1.0.0
summary: Plans a trip
common_job_info_provided_to_all_steps_at_runtime: Prices in EUR.
workflows:
  - name: plan
    summary: From idea to booking
    steps: [idea, [hotel, train], booking]
steps:
  - {id: idea, name: Idea, description: Where to, instructions_file: idea.md, outputs: {idea: {type: file, ` +
	`description: The idea, required: true}}, reviews: []}
  - {id: hotel, name: Hotel, description: Where to sleep, instructions_file: idea.md, outputs: {}, reviews: []}
  - {id: train, name: Train, description: How to get there, instructions_file: idea.md, outputs: {}, reviews: []}
  - {id: booking, name: Booking, description: Book it, instructions_file: idea.md, dependencies: [hotel], outputs: ` +
	`{}, reviews: []}
`

// Main is statetest.Main for a user whose git has a name, with which agents commit.
func Main(m *testing.M, leaks ...func(...goleak.Option) error) int {
	dir, err := os.MkdirTemp("", "pagetest")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	file := filepath.Join(dir, "gitconfig")
	text := []byte("[user]\n\tname = Tester\n\temail = tester@example.com\n")
	if err := errors.Join(os.WriteFile(file, text, 0o600), os.Setenv("GIT_CONFIG_GLOBAL", file)); err != nil {
		panic(err)
	}
	return statetest.Main(m, leaks...)
}

// Project makes a project, a git repository with a job that works and one that does not, both with
// hostile texts, and an agent that runs the shell script of its prompt. It returns its folder.
func Project(t testing.TB) string {
	t.Helper()
	root := testkit.Dir(t)
	quoted, _ := json.Marshal(Hostile)
	testkit.WriteAll(t, root, map[string]string{
		".deepwork/jobs/trip/job.yml":   strings.Replace(tripJob, "Plans a trip", string(quoted), 1),
		".deepwork/jobs/trip/idea.md":   "Think hard. " + Hostile,
		".deepwork/jobs/broken/job.yml": "name: broken\nsteps: " + string(quoted) + "\n",
		".deepwork/config.yml": "executors:\n  SCRIPT:\n    command: [sh, -c, 'sed -n \"s/^! //p\" | sh " +
			"-e']\n",
		"idea.txt": "sea " + Hostile,
	})

	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}, {"commit", "-q", "-m", "first"}} {
		testkit.Git(t, root, args...)
	}
	return root
}

// Tokens makes a file with a token for each of the callers, and returns the tokens.
func Tokens(t testing.TB, callers ...config.Token) (file string, tokens []string) {
	t.Helper()
	file = filepath.Join(testkit.Dir(t), "tokens")
	var lines []string
	for _, c := range callers {
		token, line, err := web.NewToken(c)
		testkit.Must(t, err)
		tokens, lines = append(tokens, token), append(lines, line)
	}
	testkit.Must(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600))
	return file, tokens
}

type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// Connect connects an agent to the server at a URL such as http://127.0.0.1:8000, with a token or "".
func Connect(t testing.TB, url, token string) Call {
	t.Helper()
	return Over(t, &mcp.StreamableClientTransport{
		Endpoint:   url + "/mcp",
		HTTPClient: &http.Client{Transport: bearer{token}},
	})
}

// Over connects an agent over any transport.
func Over(t testing.TB, over mcp.Transport) Call {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	cs, err := client.Connect(t.Context(), over, nil)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = cs.Close() }) // the server may have ended
	return func(tool string, args, reply any) {
		t.Helper()
		res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
		testkit.Must(t, err)
		text := res.Content[0].(*mcp.TextContent).Text
		if res.IsError {
			t.Fatalf("%s: %s", tool, text)
		}

		if reply != nil {
			testkit.Must(t, json.Unmarshal([]byte(text), reply))
		}
	}
}

// A Call calls a tool and decodes its reply, if that is not nil. It fails the test if the tool refuses.
type Call func(tool string, args, reply any)

// Args are the arguments of a tool.
type Args = map[string]any

// made decodes the ids in the replies of tools that make or list something.
type made struct {
	Step struct {
		SessionID string `json:"session_id"`
	} `json:"begin_step"`
	Projects []struct {
		ID string `json:"project_id"`
	}
	Repos []struct {
		ID string `json:"repo_id"`
	}
	TaskID    string `json:"task_id"`
	AttemptID string `json:"attempt_id"`
}

func (c Call) make(tool string, args Args) (m made) {
	c(tool, args, &m)
	return m
}

// Start starts a workflow and returns its session.
func (c Call) Start(args Args) string { return c.make("start_workflow", args).Step.SessionID }

// Plan starts the workflow of the project's job.
func (c Call) Plan(goal string) string {
	return c.Start(Args{"goal": goal, "job_name": "trip", "workflow_name": "plan"})
}

// Project returns the first project of the board.
func (c Call) Project() string { return c.make("list_projects", Args{}).Projects[0].ID }

// Task adds a task.
func (c Call) Task(title, description string) string {
	return c.make("create_task", Args{"project_id": c.Project(), "title": title, "description": description}).TaskID
}

// Attempt starts an executor on a task.
func (c Call) Attempt(task, executor string) string {
	repo := c.make("list_repos", Args{"project_id": c.Project()}).Repos[0].ID
	return c.make("start_task_attempt", Args{
		"task_id":  task,
		"executor": executor,
		"repos":    []any{Args{"repo_id": repo, "target_branch": "main"}},
	}).AttemptID
}

// Script adds a task and starts the project's executor on it, with a script as its description.
func (c Call) Script(title, script string) (task, attempt string) {
	task = c.Task(title, script)
	return task, c.Attempt(task, "SCRIPT")
}

// Await waits until the agent of an attempt is in one of these states.
func (c Call) Await(t testing.TB, attempt string, states ...string) {
	t.Helper()
	testkit.Until(t, "attempt "+strings.Join(states, " or "), func() bool {
		var now struct{ State string }
		c("get_attempt", Args{"attempt_id": attempt}, &now)
		return slices.Contains(states, now.State)
	})
}
