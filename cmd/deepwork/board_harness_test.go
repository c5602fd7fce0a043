package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/attempt"
	"deepwork/session/attempt/runner"
	"deepwork/session/board"
	"deepwork/session/state"
	"deepwork/session/store/postgres/pgtest"
)

const boardConfig = `version: "1.0"
executors:
  CODER:
    command: [coder, first]
    resume: [coder, resumed]
    variants:
      PLAN: {command: [coder, plan], resume: [coder, plan-resumed]}
`

// A boardProject is a project with a git repository, a job and an executor, and a
// client of a server on it.
type boardProject struct {
	t        *testing.T
	root     string
	client   *mcp.ClientSession
	server   *exec.Cmd
	project  string // ids
	repo     string
	received []string // every reply, as text
}

func newBoardProject(t *testing.T, more ...string) *boardProject {
	t.Helper()
	top := testkit.Dir(t)
	p := &boardProject{t: t, root: filepath.Join(top, "shop")}
	writeFiles(t, p.root, map[string]string{"README": "hello\n"})
	inGit(t, p.root)
	writeFiles(t, p.root, map[string]string{
		".deepwork/config.yml":           boardConfig + strings.Join(more, ""),
		".deepwork/jobs/release/job.yml": jobText("release", "one", "two", "three"), ".deepwork/jobs/release/a.md": "Do it.",
	})
	t.Cleanup(p.endAgents)
	p.client, p.server = startClient(t, p.root)
	p.find()
	return p
}

// onPostgres has the test run with a PostgreSQL database.
func onPostgres(t *testing.T) {
	t.Setenv(config.StoreEnv, pgtest.URL(t))
	t.Setenv("CI", "") // there, a store needs the name of its project
}

// find looks up the ids of the project root.
func (p *boardProject) find() {
	p.t.Helper()
	for _, project := range boardCall[board.ProjectsReply](p, "list_projects", map[string]any{}).Projects {
		if project.IsRoot {
			p.project = project.ProjectID
		}
	}
	p.repo = boardCall[board.ReposReply](p, "list_repos", map[string]any{"project_id": p.project}).Repos[0].RepoID
}

func (p *boardProject) git(dir string, args ...string) string {
	p.t.Helper()
	return testkit.Git(p.t, dir, args...)
}

// endAgents ends whatever agents a test has left.
func (p *boardProject) endAgents() {
	runs, _ := filepath.Glob(filepath.Join(state.Of(p.root).Logs(), "attempts", "*", "runs", "*"))
	for _, dir := range runs {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		if proc, err := new(runner.Runner).Find(ctx, dir); err == nil {
			testkit.Works(p.t, testkit.Get(proc.Stop(ctx, 0)).Err(), "an agent goes on")
		}
		cancel()
	}
}

// boardCall makes a call that must succeed.
func boardCall[R any](p *boardProject, tool string, args map[string]any) *R {
	p.t.Helper()
	text := callTool(p.t, p.client, tool, args)
	p.received = append(p.received, string(text))
	r := new(R)
	must(p.t, json.Unmarshal(text, r))
	return r
}

// refused makes a call that must be refused, and returns why.
func (p *boardProject) refused(tool string, args map[string]any, kind string, mentions ...string) string {
	p.t.Helper()
	result := testkit.Get(p.client.CallTool(p.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})).Must(p.t)
	text := resultText(result)
	testkit.True(p.t, result.IsError && strings.HasPrefix(text, kind+": "), "%s %v: want a %s, got: %s", tool, args, kind, text)
	testkit.ContainsAll(p.t, text, mentions, "%s %v", tool, args)
	return text
}

// task makes a task whose description tells the coder what to do.
func (p *boardProject) task(lines ...string) *board.Task {
	p.t.Helper()
	return boardCall[board.Task](p, "create_task", map[string]any{"project_id": p.project, "title": "Add a basket", "description": strings.Join(lines, "\n")})
}

// workflowTask makes one that names a workflow.
func (p *boardProject) workflowTask(lines ...string) *board.Task {
	p.t.Helper()
	return boardCall[board.Task](p, "create_task", map[string]any{"project_id": p.project, "title": "Make a release", "description": strings.Join(lines, "\n"), "job_name": "release", "workflow_name": "w"})
}

func (p *boardProject) start(t *board.Task) *attempt.AttemptReply {
	p.t.Helper()
	return boardCall[attempt.AttemptReply](p, "start_task_attempt", map[string]any{"task_id": t.TaskID, "executor": "CODER",
		"repos": []map[string]any{{"repo_id": p.repo, "target_branch": "main"}}})
}

func (p *boardProject) get(id string) *attempt.AttemptReply {
	p.t.Helper()
	return boardCall[attempt.AttemptReply](p, "get_attempt", map[string]any{"attempt_id": id})
}

func (p *boardProject) getTask(id string) *board.Task {
	p.t.Helper()
	return boardCall[board.Task](p, "get_task", map[string]any{"task_id": id})
}

// reaches waits until an attempt is in one of the states, with no follow-up to come.
func (p *boardProject) reaches(id string, states ...board.State) (now *attempt.AttemptReply) {
	p.t.Helper()
	eventually(p.t, func() (bool, any) {
		now = p.get(id)
		return slices.Contains(states, now.State), fmt.Sprintf("%s (%s); expected %v", now.State, optional(now.Error), states)
	})
	return now
}

func (p *boardProject) ends(id string) *attempt.AttemptReply {
	p.t.Helper()
	return p.reaches(id, "completed", "failed", "stopped", "interrupted")
}

// output is what an attempt's agents wrote, a line each.
func (p *boardProject) output(id string) string {
	p.t.Helper()
	r := boardCall[attempt.TailReply](p, "tail_attempt", map[string]any{"attempt_id": id, "after_index": -1, "limit": 1000, "raw": true})
	var lines []string
	for _, e := range r.Entries {
		if e.Stream != "system" {
			lines = append(lines, e.Text)
		}
	}
	return strings.Join(lines, "\n")
}

// gate is a file that a coder awaits, and the function that makes it.
func (p *boardProject) gate(name string) (path string, open func()) {
	path = filepath.Join(p.root, "..", name)
	return path, func() { testkit.Write(p.t, path, "") }
}

func deref(s *string) string { return optional(s) }
