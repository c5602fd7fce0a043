package runner

import (
	"strings"

	"deepwork/catalog/config"
)

// Known returns the executors that need no configuration: the command lines by
// which well-known coding agents take a prompt on standard input, work without
// asking, print what they do as JSON lines, and continue the last conversation of
// their working directory, which is an attempt's own. They are allowed everything,
// since nobody is there to be asked; to restrict one, configure an executor of the
// same name. Each call returns new values.
func Known() []config.Executor {
	all := []config.Executor{
		// Streamed JSON in print mode needs --verbose.
		known("CLAUDE_CODE", "claude --print --output-format stream-json --verbose",
			"--dangerously-skip-permissions", "--permission-mode plan", "--continue"),
		// A folder around several worktrees is no repository. A worktree's git folder
		// lies outside of it, so the sandbox would not let the agent commit.
		known("CODEX", "codex exec --json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox", "", "", "resume --last -"),
		known("GEMINI", "gemini --output-format stream-json", "--approval-mode yolo", "--approval-mode plan", "--resume latest"),
		known("CURSOR_AGENT", "cursor-agent --print --output-format stream-json --trust --approve-mcps", "--force", "--mode plan", "--continue"),
		known("OPENCODE", "opencode run --format json --auto", "", "--agent plan", "--continue"),
	}
	all[1].Command = append(all[1].Command, "-")
	// Without trust in the folder it would fall back to asking.
	all[2].Env = map[string]string{"GEMINI_CLI_TRUST_WORKSPACE": "true"}
	return all
}

// known returns an executor whose command line is base and work; its variant PLAN,
// if there is one, plans and changes nothing; a follow-up adds resume.
func known(name, base, work, plan, resume string) config.Executor {
	words := func(parts ...string) []string { return strings.Fields(strings.Join(parts, " ")) }
	e := config.Executor{Name: name, Command: words(base, work), Resume: words(base, work, resume), Prompt: config.PromptStdin}
	if plan != "" {
		e.Variants = []config.Variant{{Name: "PLAN", Command: words(base, plan), Resume: words(base, plan, resume)}}
	}
	return e
}
