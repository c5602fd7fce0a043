package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/session/board"
)

// A boardID names what belongs to a task.
type boardID struct{ project, repo, task, attempt, session string }

// noID names nothing.
func (b boardID) noID() boardID {
	return boardID{b.project, b.repo, "3b241101-e2bb-4255-8caf-4136c566a961", "3b241101-e2bb-4255-8caf-4136c566a962", "3b241101-e2bb-4255-8caf-4136c566a963"}
}

func (b boardID) as(other boardID, text string) string {
	return strings.NewReplacer(b.task, other.task, b.attempt, other.attempt, b.session, other.session).Replace(text)
}

// A boardRow is a call of a tool that names something of a task, in an order in which
// one after the other can be made.
type boardRow struct {
	tool, args string // in args, {task} and so on are ids
	right      string // that it needs; "" means none
}

var boardRows = []boardRow{
	{tool: "get_task", args: `{"task_id":"{task}"}`},
	{tool: "update_task", args: `{"task_id":"{task}","title":"New"}`},
	{tool: "list_task_attempts", args: `{"task_id":"{task}"}`},
	{tool: "get_attempt", args: `{"attempt_id":"{attempt}"}`},
	{tool: "tail_attempt", args: `{"attempt_id":"{attempt}","after_index":-1}`},
	{tool: "get_attempt_diff", args: `{"attempt_id":"{attempt}"}`},
	{tool: "start_task_attempt", args: `{"task_id":"{task}","executor":"CODER","repos":[{"repo_id":"{repo}","target_branch":"main"}]}`, right: "agents"},
	{tool: "follow_up", args: `{"attempt_id":"{attempt}","action":"send","prompt":"more"}`, right: "agents"},
	{tool: "follow_up", args: `{"workspace_id":"{attempt}","action":"queue","prompt":"more"}`, right: "agents"},
	{tool: "follow_up", args: `{"session_id":"{session}","action":"queue","prompt":"more"}`, right: "agents"},
	{tool: "follow_up", args: `{"session_id":"{session}","action":"cancel"}`},
	{tool: "follow_up", args: `{"attempt_id":"{attempt}","action":"cancel"}`},
	{tool: "comment_attempt", args: `{"attempt_id":"{attempt}"}`},
	{tool: "comment_attempt", args: `{"attempt_id":"{attempt}","remove":["all"]}`, right: "agents"},
	{tool: "stop_attempt", args: `{"attempt_id":"{attempt}"}`},
	{tool: "change_target", args: `{"attempt_id":"{attempt}","target_branch":"main"}`, right: "merge"},
	{tool: "rebase_attempt", args: `{"attempt_id":"{attempt}"}`, right: "merge"},
	{tool: "merge_attempt", args: `{"attempt_id":"{attempt}"}`, right: "merge"},
	{tool: "abort_merge", args: `{"attempt_id":"{attempt}"}`, right: "merge"},
	{tool: "push_attempt", args: `{"attempt_id":"{attempt}"}`, right: "merge"},
	{tool: "delete_task", args: `{"task_id":"{task}"}`},
}

// forAll are the tools that name nothing of a task, or a run, which is an attempt (TestFollowUpOfARun).
var forAll = []string{"run_workflow", "get_run", "list_projects", "list_repos", "list_executors", "list_tasks", "create_task", "needs_attention"}

func (r boardRow) call(t *testing.T, client *mcp.ClientSession, b boardID) (text string, refused bool) {
	t.Helper()
	args := strings.NewReplacer("{task}", b.task, "{repo}", b.repo, "{attempt}", b.attempt, "{session}", b.session).Replace(r.args)
	result, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: r.tool, Arguments: json.RawMessage(args)})
	testkit.Need(t, err == nil, "%v %v", r.tool, err)
	return resultText(result), result.IsError
}

// Each tool of the board, over HTTP, shows and changes what the caller or its group made;
// for others it does not exist, and starting agents needs the right.
func TestBoardHasOwners(t *testing.T) {
	t.Parallel()
	p := newBoardProject(t)
	file := filepath.Join(t.TempDir(), "tokens")
	token := map[string]string{}
	lines := ""
	for name, options := range map[string][]string{"ann": {"--group", "team", "--rights", "agents"}, "bob": {"--group", "team", "--rights", "merge"}, "eve": {"--rights", "agents,merge"}, "solo": nil} {
		var line string
		token[name], line = newToken(t, name, options...)
		lines += line
	}
	must(t, os.WriteFile(file, []byte(lines), 0o600))
	_, url, _ := serveNetwork(t, p.root, "--transport", "http", "--toolsets", "board", "--token-file", file)
	as := func(name string) *boardProject {
		other := *p
		other.client = connectNetwork(t, url, token[name])
		return &other
	}
	ann, bob, eve, solo := as("ann"), as("bob"), as("eve"), as("solo")
	tools := testkit.Get(eve.client.ListTools(t.Context(), nil)).Must(t)
	for _, tool := range tools.Tools {
		testkit.True(t, slices.Contains(forAll, tool.Name) || slices.ContainsFunc(boardRows, func(r boardRow) bool { return r.tool == tool.Name }), "no test of whose tasks %s shows", tool.Name)
	}

	p.task() // the owner's
	task := boardCall[board.Task](ann, "create_task", map[string]any{"project_id": p.project, "title": "Plans", "request_id": "r", "description": fmt.Sprintf("! write plan.txt x\n! context\n"+
		"! call list_tasks {\"project_id\":%q}\n! call start_task_attempt {\"task_id\":%[1]q,\"executor\":\"CODER\",\"repos\":[{\"repo_id\":%q,\"target_branch\":\"main\"}]}", p.project, p.repo)})
	made := p.ends(ann.start(task).AttemptID) // the owner sees it
	id := boardID{p.project, p.repo, task.TaskID, made.AttemptID, optional(made.LatestSessionID)}

	// Its agent is ann, without her right.
	output := ann.output(id.attempt)
	_, listed, _ := strings.Cut(output, "list_tasks said ")
	listed, _, _ = strings.Cut(listed, "\n")
	testkit.ContainsAll(t, output, []string{`"task_id":"` + task.TaskID, "start_task_attempt said StateError: An agent that works on an attempt cannot start agents"})
	testkit.ContainsAll(t, listed, []string{`"title":"Plans"`, `"total":1`})

	state := func() (all string) {
		for _, r := range boardRows[2:6] {
			text, _ := r.call(t, ann.client, id)
			all += text + "\n"
		}
		return all
	}
	was := state()
	for _, who := range []*boardProject{eve, solo} {
		for _, r := range boardRows {
			got, refused := r.call(t, who.client, id)
			want, _ := r.call(t, who.client, id.noID())
			testkit.True(t, refused && (who != eve || strings.HasPrefix(got, "ToolError: There is no ")), "%s %s of a stranger: %s", r.tool, r.args, got)
			testkit.Equal(t, id.as(id.noID(), got), want, "%s %s of a stranger is not told the same as where there is nothing", r.tool, r.args)
		}
		listed := boardCall[board.TasksReply](who, "list_tasks", map[string]any{"project_id": p.project})
		testkit.True(t, listed.Total == 0 && listed.Count == 0 && len(listed.Tasks) == 0, "a stranger is given %+v", listed)
		for _, tool := range []string{"list_projects", "list_executors"} {
			testkit.Equal(t, string(callTool(t, who.client, tool, map[string]any{})), string(callTool(t, ann.client, tool, map[string]any{})), tool)
		}
	}
	testkit.Equal(t, state(), was, "strangers changed it")
	for who, want := range map[*boardProject]string{p: id.attempt, ann: id.attempt, bob: id.attempt, eve: "", solo: ""} {
		got := ""
		for _, i := range boardCall[board.AttentionReply](who, "needs_attention", map[string]any{}).Items {
			got += i.ID
		}
		testkit.Equal(t, got, want, "needs_attention lists")
	}
	// A request_id is its identity's.
	own := boardCall[board.Task](eve, "create_task", map[string]any{"project_id": p.project, "title": "Hers", "request_id": "r"})
	for who, want := range map[*boardProject]int{p: 3, ann: 1, bob: 1, eve: 1, solo: 0} {
		got := boardCall[board.TasksReply](who, "list_tasks", map[string]any{"project_id": p.project})
		testkit.True(t, got.Total == want && got.Count == want, "%d of %d tasks, want %d", got.Count, got.Total, want)
	}
	eve.ends(eve.start(own).AttemptID)
	solo.refused("start_task_attempt", map[string]any{"task_id": own.TaskID, "executor": "CODER", "repos": []map[string]any{{"repo_id": p.repo, "target_branch": "main"}}},
		"StateError", "right agents", "deepwork token new solo --rights agents")

	solo.refused("merge_attempt", map[string]any{"attempt_id": id.attempt}, "StateError", "the right merge", "deepwork token new solo --rights merge")

	p.git(p.root, "remote", "add", "origin", p.root)
	for _, r := range boardRows {
		got, refused := r.call(t, bob.client, id)
		needs := strings.HasPrefix(got, "StateError: Starting agents needs the right agents, which bob does not have")
		testkit.True(t, needs == refused && refused == (r.right == "agents"), "%s %s of the same group: %s", r.tool, r.args, got)
	}
	ann.refused("get_task", map[string]any{"task_id": task.TaskID}, "ToolError", task.TaskID)
}
