package runner

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/codes"
)

// Merge returns all executors: the known ones in their order, then the configured ones in theirs. A
// configured executor with a known name and a command of its own replaces the known one completely,
// since the other fields belong to its command line; one without a command changes only the fields
// that it sets (prompt, resume, env, and variants by name). The result shares slices and maps with
// its argument; they must not be changed.
func Merge(configured []config.Executor) []config.Executor {
	all := Known()
	for _, c := range configured {
		i := slices.IndexFunc(all, func(e config.Executor) bool { return e.Name == c.Name })
		switch {
		case i < 0:
			all = append(all, c)
		case len(c.Command) > 0:
			all[i] = c
		default:
			e := &all[i]
			v := over(own(*e), own(c))
			e.Prompt, e.Resume, e.Env = v.Prompt, v.Resume, v.Env
			for _, v := range c.Variants {
				switch i := variantOf(e, v.Name); {
				case i < 0:
					e.Variants = append(e.Variants, v)
				case len(v.Command) > 0:
					e.Variants[i] = v
				default:
					e.Variants[i] = over(e.Variants[i], v)
				}
			}
		}
	}
	return all
}

// Names returns the names of executors.
func Names(all []config.Executor) []string {
	names := make([]string, len(all))
	for i, e := range all {
		names[i] = e.Name
	}
	return names
}

func variantOf(e *config.Executor, name string) int {
	return slices.IndexFunc(e.Variants, func(v config.Variant) bool { return v.Name == name })
}

// own returns the fields of an executor without a variant.
func own(e config.Executor) config.Variant {
	return config.Variant{Command: e.Command, Resume: e.Resume, Prompt: e.Prompt, Env: e.Env}
}

// over returns base with the fields that v sets.
func over(base, v config.Variant) config.Variant {
	env := maps.Clone(v.Env)
	if len(base.Env) > 0 {
		env = maps.Clone(base.Env)
		maps.Copy(env, v.Env)
	}
	return config.Variant{Name: base.Name, Command: either(v.Command, base.Command), Resume: either(v.Resume, base.Resume),
		Prompt: cmp.Or(v.Prompt, base.Prompt), Env: env}
}

// either returns the first non-empty command line.
func either(a, b []string) []string {
	if len(a) > 0 {
		return a
	}
	return b
}

// A Recipe is the way to run one executor in one variant.
type Recipe struct {
	Command []string          // the first run of a conversation
	Resume  []string          // a follow-up: in the same conversation, if Continues
	Prompt  config.PromptMode // how both receive the prompt; never ""
	Env     []string          // "KEY=value", sorted by key

	Continues bool // Resume continues the conversation; otherwise it is Command
}

// Reports reports whether package transcript reads what the command prints, so that a run from which
// it read nothing had no conversation.
func (r *Recipe) Reports() bool {
	switch filepath.Base(r.Command[0]) {
	case "claude":
		return slices.Contains(r.Command, "stream-json")
	case "codex":
		return slices.Contains(r.Command, "--json")
	}
	return false
}

// Resolve returns how to run an executor of Merge's list, in a variant or, if that is "", without
// one. A field that a variant does not set is its executor's; the default of resume is the command.
// It fails with a ToolError, unknown_executor, unknown_variant or executor_without_command, that
// lists the available ones.
func Resolve(all []config.Executor, name, variant string) (Recipe, error) {
	i := slices.IndexFunc(all, func(e config.Executor) bool { return e.Name == name })
	if i < 0 {
		names := Names(all)
		return Recipe{}, session.Wrong(codes.UnknownExecutor,
			"There is no executor %q; use one of %s, or add it under 'executors' in .deepwork/config.yml.",
			name, strings.Join(names, ", ")).With("argument", "executor").With("value", name).With("executors", names)
	}
	v := own(all[i])
	if variant != "" {
		j := variantOf(&all[i], variant)
		if j < 0 {
			return Recipe{}, noVariant(all[i], variant)
		}
		v = over(v, all[i].Variants[j])
	}
	if len(v.Command) == 0 {
		return Recipe{}, session.Wrong(codes.ExecutorWithoutCommand,
			"The executor %q has no command; add one under 'executors' in .deepwork/config.yml.", name).
			With("argument", "executor").With("value", name)
	}
	r := Recipe{Command: v.Command, Resume: either(v.Resume, v.Command), Continues: len(v.Resume) > 0, Prompt: cmp.Or(v.Prompt, config.PromptStdin)}
	for _, key := range slices.Sorted(maps.Keys(v.Env)) {
		r.Env = append(r.Env, key+"="+v.Env[key])
	}
	return r, nil
}

func noVariant(e config.Executor, variant string) error {
	names := make([]string, len(e.Variants))
	for i, v := range e.Variants {
		names[i] = v.Name
	}
	there := "it has none: leave 'variant' out"
	if len(names) > 0 {
		there = "name one of " + strings.Join(names, ", ") + ", or leave 'variant' out"
	}
	return session.Wrong(codes.UnknownVariant, "The executor %q has no variant %q; %s.", e.Name, variant, there).
		With("argument", "variant").With("value", variant).With("variants", names)
}

// Known returns the executors that need no configuration: command lines of well-known coding agents
// that read a prompt from standard input, work without asking, print JSON lines, and continue the
// last conversation of their working directory, which is an attempt's own. They are allowed
// everything, since nobody is there to answer; to restrict one, configure an executor of the same
// name. Each call returns new values.
func Known() []config.Executor {
	all := []config.Executor{
		// Streamed JSON in print mode needs --verbose.
		known("CLAUDE_CODE", "claude --print --output-format stream-json --verbose",
			"--dangerously-skip-permissions", "--permission-mode plan", "--continue"),
		// A folder around several worktrees is not a repository. A worktree's git folder is outside
		// of it, so the sandbox would not let the agent commit.
		known("CODEX", "codex exec --json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox", "", "", "resume --last -"),
		known("GEMINI", "gemini --output-format stream-json", "--approval-mode yolo", "--approval-mode plan", "--resume latest"),
		known("CURSOR_AGENT", "cursor-agent --print --output-format stream-json --trust --approve-mcps", "--force", "--mode plan", "--continue"),
		// Without a title, the model is asked for one, and what that costs is not reported.
		known("OPENCODE", "opencode run --format json --auto --title deepwork", "", "--agent plan", "--continue"),
	}
	all[1].Command = append(all[1].Command, "-")
	// It would ask for permission in a folder that is not trusted.
	all[2].Env = map[string]string{"GEMINI_CLI_TRUST_WORKSPACE": "true"}
	return all
}

// known returns an executor whose command line is base and work; its variant PLAN, if any, plans
// without changing anything; a follow-up adds resume.
func known(name, base, work, plan, resume string) config.Executor {
	words := func(parts ...string) []string { return strings.Fields(strings.Join(parts, " ")) }
	e := config.Executor{Name: name, Command: words(base, work), Resume: words(base, work, resume), Prompt: config.PromptStdin}
	if plan != "" {
		e.Variants = []config.Variant{{Name: "PLAN", Command: words(base, plan), Resume: words(base, plan, resume)}}
	}
	return e
}
