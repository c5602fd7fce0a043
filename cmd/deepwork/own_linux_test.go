package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
)

// Sources and reviewers of the user's own config do not start in a folder that the user has not approved: programs
// such as npx run what they find there.
func TestOwnCommandsStartOutsideAnUnapprovedFolder(t *testing.T) {
	log := filepath.Join(testkit.Dir(t), "log")
	program := func(what, answer string) string {
		return "[sh, -c, 'echo " + what + " in $(pwd) >> " + log + "; echo " + answer + "']"
	}
	review := `{\"passed\": true}`
	ownUser(t, "workflow_tools: {sources: [{name: mine, command: "+program("source", "")+"}]}\n"+
		"quality_gate: {agent_review_command: "+strings.ReplaceAll(program("reviewer", review), "\n", "")+"}\n")
	home := testkit.Dir(t)
	t.Setenv("HOME", home)
	root := projectOf(t, reviewedJob("one", isItGood, "a"), "out.txt", "done\n")
	client, _ := startClient(t, root)
	logged := func(line string) {
		t.Helper()
		eventually(t, func() (bool, any) {
			callTool(t, client, "refresh_workflow_tools", map[string]any{})
			text, _ := os.ReadFile(log)
			return strings.Contains(string(text), line), string(text)
		})
	}

	logged("source in " + home + "\n")
	notice := string(callTool(t, client, "get_workflows", map[string]any{}))
	testkit.Contains(t, notice, "their own reviewer does not run in it")
	beginSession(t, client, "one", "Close it")
	finish := func() (*mcp.CallToolResult, string) {
		r := testkit.Get(client.CallTool(t.Context(), &mcp.CallToolParams{
			Name: "finished_step", Arguments: map[string]any{"outputs": map[string]any{"out": "out.txt"}},
		})).Must(t)
		return r, resultText(r)
	}
	r, text := finish()
	testkit.True(t, r.IsError, "%s", text)
	testkit.ContainsAll(t, text,
		[]string{"This would start the reviewer in it: sh -c", "deepwork trust --path " + root})

	types(t, true, "yes", []string{"deepwork", "trust", "--path", root}, "  source mine: sh -c", "  reviewer: sh -c")
	logged("source in " + root + "\n")
	r, text = finish()
	testkit.True(t, !r.IsError, "%s", text)
	logged("reviewer in " + root + "\n")
	all := string(testkit.Get(os.ReadFile(log)).Must(t))
	before, _, _ := strings.Cut(all, "source in "+root)
	testkit.True(t, !strings.Contains(before, root), "before the approval: %s", before)

	// The reviewer is treated alike if it is an executor.
	mustPrint(t, root, "trust", "--revoke")
	own := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "deepwork", "config.yml")
	must(t, os.WriteFile(own, []byte("executors: {JUDGE: {command: [sh, -c, 'echo judge >> "+log+"']}}\n"+
		"quality_gate: {reviewer_executor: JUDGE}\n"), 0o600))
	beginSession(t, client, "one", "Again")
	r, text = finish()
	testkit.True(t, r.IsError, "%s", text)
	testkit.Contains(t, text, "This would start the reviewer in it: sh -c echo judge")
}

// A start that is refused because the folder is not approved names the command that would run, also of an executor that
// only the project's config has.
func TestARefusedStartNamesItsCommand(t *testing.T) {
	ownUser(t, "")
	root := projectOf(t, jobText("one", "a"), ".deepwork/config.yml",
		"executors:\n  MINE: {command: [./mine.sh, now]}\n  CLAUDE_CODE: {command: [./other.sh]}\n"+
			"run: {executor: MINE}\n")
	inGit(t, root)
	task := strings.TrimSpace(mustPrint(t, root, "board", "add", "x"))
	for executor, command := range map[string]string{
		"": "./mine.sh now", "MINE": "./mine.sh now", "CLAUDE_CODE": "./other.sh",
	} {
		args := []string{"board", "start", task}
		if executor != "" {
			args = append(args, "--executor", executor)
		}
		fails(t, root, args, "This would start a coding agent in it: "+command+". Nothing was run or changed.")
	}
}
