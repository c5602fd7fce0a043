//go:build interop

package interop

import (
	"deepwork/session/board"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/session/attempt"
)

// A taskBoard is a client of a server on a project with a git repository.
type taskBoard struct {
	*testing.T
	*mcp.ClientSession
}

// openBoard starts a server whose agents have these programs and variables.
func openBoard(t *testing.T, p project, programs string, env ...string) taskBoard {
	t.Helper()
	command := p.command(t)
	server := exec.CommandContext(t.Context(), command[0], command[1:]...)
	server.Env = append(append(os.Environ(), "PATH="+programs+string(filepath.ListSeparator)+os.Getenv("PATH")), env...)
	server.Stderr = t.Output()
	client, err := mcp.NewClient(&mcp.Implementation{Name: "interop", Version: "1"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: server}, nil)
	testkit.Must(t, err)
	t.Cleanup(func() { client.Close() })
	return taskBoard{t, client}
}

// ask calls a tool and decodes its reply.
func ask[Reply any](b taskBoard, tool string, args map[string]any) (r Reply) {
	b.Helper()
	res, err := b.CallTool(b.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	testkit.Must(b, err)
	text := res.Content[0].(*mcp.TextContent).Text
	if res.IsError {
		b.Fatalf("%s %v: %s", tool, args, text)
	}
	testkit.Must(b, json.Unmarshal([]byte(text), &r))
	return r
}

// ends waits until an attempt has ended, and checks how.
func (b taskBoard) ends(id, state string) attempt.AttemptReply {
	b.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		r := ask[attempt.AttemptReply](b, "get_attempt", map[string]any{"attempt_id": id})
		switch r.State {
		case "waiting", "starting", "running":
			if time.Now().Before(end) {
				continue
			}
		case state:
			return r
		}
		tail := ask[attempt.TailReply](b, "tail_attempt", map[string]any{"attempt_id": id})
		b.Fatalf("the attempt is %s, expected %s: %+v\n%+v", r.State, state, r, tail.Messages)
	}
}

// Claude Code works on a task of the board, continues its conversation in a follow-up, and is stopped
// with its children in the middle of a third. What it used is counted; what is not known of the last is
// not 0. Its user's settings name a server of another project, whose workflow does not count as that of the attempt.
func TestClaudeCodeWorksOnATask(t *testing.T) {
	p, other := careProject(t), careProject(t)
	testkit.Git(t, p.root, "init", "-q", "-b", "main")
	testkit.Git(t, p.root, "config", "user.name", "Una User")
	testkit.Git(t, p.root, "config", "user.email", "una@example.com")
	testkit.Git(t, p.root, "add", "-A")
	testkit.Git(t, p.root, "commit", "-q", "-m", "first")
	bash := func(format string, args ...any) move {
		return move{tool: "Bash", own: true, args: map[string]any{"command": fmt.Sprintf(format, args...), "description": "Work"}}
	}
	pids := filepath.Join(t.TempDir(), "pids")
	m := startModel(t, anthropic,
		move{tool: "start_workflow", args: map[string]any{"goal": "Elsewhere", "job_name": "care", "workflow_name": "main"}},
		bash("echo hello > a.txt && git add a.txt && git commit -q -m hello"), move{text: "I have said hello."},
		move{text: "I have thought of it again."},
		bash("echo $$ >'%[1]s.new'; sleep 600 & echo $! >>'%[1]s.new'; mv '%[1]s.new' '%[1]s'; wait", pids))
	home, programs := t.TempDir(), t.TempDir()
	_, env := codingAgents[0].setup(t, home, m.URL, server{url: "unused"})
	claude := fmt.Sprintf("#!/bin/sh\nexec '%s' '%s' \"$@\"\n", node(t), filepath.Join(agentPackages(t), "node_modules", "@anthropic-ai", "claude-code", "cli-wrapper.cjs"))
	testkit.Must(t, os.WriteFile(filepath.Join(programs, "claude"), []byte(claude), 0o755))
	command := other.command(t)
	write(t, filepath.Join(home, ".claude.json"), encoded(map[string]any{"hasCompletedOnboarding": true,
		"mcpServers": map[string]any{"deepwork": map[string]any{"command": command[0], "args": command[1:]}}}))
	b := openBoard(t, p, programs, append(env, "HOME="+home, "IS_SANDBOX=1")...) // which root needs

	projectID := ask[board.ProjectsReply](b, "list_projects", nil).Projects[0].ProjectID
	repo := ask[board.ReposReply](b, "list_repos", map[string]any{"project_id": projectID}).Repos[0].RepoID
	task := ask[board.Task](b, "create_task", map[string]any{"project_id": projectID, "title": "Say hello", "description": "Use the word gazelle."})
	id := ask[attempt.AttemptReply](b, "start_task_attempt", map[string]any{"task_id": task.TaskID, "executor": "CLAUDE_CODE",
		"repos": []any{map[string]any{"repo_id": repo, "target_branch": "main"}}}).AttemptID
	first := b.ends(id, "completed")
	if first.Repos[0].Ahead != 1 || first.FinalMessage == nil || *first.FinalMessage != "I have said hello." {
		t.Errorf("%+v", first)
	}
	checkCost(t, first.Cost, 1, 0, 3)

	ask[attempt.FollowUpReply](b, "follow_up", map[string]any{"attempt_id": id, "action": "send", "prompt": "Think of an elephant."})
	checkCost(t, b.ends(id, "completed").Cost, 2, 0, 4)
	if told := m.turns[len(m.turns)-1].told; !strings.Contains(told, "gazelle") || !strings.Contains(told, "I have said hello.") || !strings.Contains(told, "elephant") {
		t.Errorf("the model was told %s", told)
	}

	ask[attempt.FollowUpReply](b, "follow_up", map[string]any{"attempt_id": id, "action": "send", "prompt": "Wait."})
	var text []byte
	for end := time.Now().Add(time.Minute); len(text) == 0 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		text, _ = os.ReadFile(pids)
	}
	running := strings.Fields(string(text))
	if len(running) != 2 {
		t.Fatalf("the agent does not wait: %q", text)
	}
	ask[attempt.AttemptReply](b, "stop_attempt", map[string]any{"attempt_id": id})
	stopped := b.ends(id, "stopped")
	checkCost(t, stopped.Cost, 3, 1, 4)
	for _, pid := range running {
		n, err := strconv.Atoi(pid)
		testkit.Must(t, err)
		if err := syscall.Kill(n, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d goes on: %v", n, err)
		}
	}
	if whole := ask[board.TaskReply](b, "get_task", map[string]any{"task_id": task.TaskID}); encoded(whole.Cost) != encoded(stopped.Cost) {
		t.Errorf("the task costs %s, and its attempt %s", encoded(whole.Cost), encoded(stopped.Cost))
	}
	m.saw(t, 1, "zebra") // the workflow was begun there
	if stopped.WorkflowSession != nil {
		t.Errorf("the attempt has the workflow %s", *stopped.WorkflowSession)
	}
	var said []string
	for _, msg := range ask[attempt.TailReply](b, "tail_attempt", map[string]any{"attempt_id": id, "limit": 100}).Messages {
		said = append(said, fmt.Sprint(msg))
	}
	if all := strings.Join(said, "\n"); !strings.Contains(all, "echo hello") || !strings.Contains(all, "I have said hello.") {
		t.Errorf("the messages are\n%s", all)
	}
}

// checkCost checks what executions used. The model reports at least a token per turn.
func checkCost(t *testing.T, c *board.Cost, executions, unknown int, output int64) {
	t.Helper()
	if c == nil || c.Executions != executions || c.Unknown != unknown || c.Output == nil || *c.Output < output || c.Turns == nil || c.USD == nil {
		t.Errorf("the cost is %s", encoded(c))
	}
}
