package runner

import (
	"slices"

	"deepwork/catalog/config"
)

// Known returns the executors that need no configuration: the command lines by
// which well-known coding agents take a prompt on standard input, work without
// asking anybody, print what they do as JSON lines, and go on with the last
// conversation of their working directory, which is an attempt's own. What they
// are allowed is everything, since nobody is there to be asked; whoever wants
// less configures an executor of the same name (issue "Executors"). Each call
// returns new values.
func Known() []config.Executor {
	return []config.Executor{
		claudeCode(), codex(), gemini(), cursorAgent(), opencode(),
	}
}

func claudeCode() config.Executor {
	// Streamed JSON in print mode needs --verbose.
	print := []string{"claude", "--print", "--output-format", "stream-json", "--verbose"}
	e := known("CLAUDE_CODE", with(print, "--dangerously-skip-permissions"), "--continue")
	e.Variants = []config.Variant{planned(with(print, "--permission-mode", "plan"), "--continue")}
	return e
}

func codex() config.Executor {
	// A folder around several worktrees is no repository. A worktree's git folder
	// lies outside of it, so that the sandbox would not let the agent commit.
	exec := []string{"codex", "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"}
	return config.Executor{
		Name: "CODEX", Command: with(exec, "-"), Prompt: config.PromptStdin,
		Resume: with(exec, "resume", "--last", "-"),
	}
}

func gemini() config.Executor {
	base := []string{"gemini", "--output-format", "stream-json"}
	e := known("GEMINI", with(base, "--approval-mode", "yolo"), "--resume", "latest")
	// Without trust in the folder it would fall back to asking.
	e.Env = map[string]string{"GEMINI_CLI_TRUST_WORKSPACE": "true"}
	e.Variants = []config.Variant{planned(with(base, "--approval-mode", "plan"), "--resume", "latest")}
	return e
}

func cursorAgent() config.Executor {
	base := []string{"cursor-agent", "--print", "--output-format", "stream-json", "--trust", "--approve-mcps"}
	e := known("CURSOR_AGENT", with(base, "--force"), "--continue")
	e.Variants = []config.Variant{planned(with(base, "--mode", "plan"), "--continue")}
	return e
}

func opencode() config.Executor {
	base := []string{"opencode", "run", "--format", "json", "--auto"}
	e := known("OPENCODE", base, "--continue")
	e.Variants = []config.Variant{planned(with(base, "--agent", "plan"), "--continue")}
	return e
}

func known(name string, command []string, resume ...string) config.Executor {
	return config.Executor{
		Name: name, Command: command, Prompt: config.PromptStdin, Resume: with(command, resume...),
	}
}

// planned is the variant in which the program plans and changes nothing.
func planned(command []string, resume ...string) config.Variant {
	return config.Variant{Name: "PLAN", Command: command, Resume: with(command, resume...)}
}

func with(command []string, more ...string) []string { return slices.Concat(command, more) }
