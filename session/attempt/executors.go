package attempt

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/runner"
)

// An agent is an executor as one run uses it. Its command comes from the config
// or the program, never from a tool's arguments.
type agent struct {
	runner.Recipe
	name    string
	variant *string
	root    string
}

// agent resolves an executor and its variant, or says which there are.
func (e *Engine) agent(cfg *config.Config, executor string, variant *string) (*agent, error) {
	executor = strings.TrimSpace(executor)
	all := runner.Merge(cfg.Executors)
	if executor == "" {
		names := make([]string, len(all))
		for i, x := range all {
			names[i] = x.Name
		}
		return nil, session.Wrong("missing_executor", "executor is blank. Use one of %s; list_executors tells more.", some(names, "none")).With("argument", "executor")
	}
	if variant != nil && strings.TrimSpace(*variant) == "" {
		variant = nil
	}
	name := ""
	if variant != nil {
		name = strings.TrimSpace(*variant)
		variant = &name
	}
	recipe, err := runner.Resolve(all, clip(executor), clip(name))
	if err != nil {
		return nil, err
	}
	return &agent{Recipe: recipe, name: executor, variant: variant, root: e.o.Root}, nil
}

// agentOf is the agent of an execution: a follow-up without a variant of its own
// has its session's, which is its attempt's.
func (e *Engine) agentOf(cfg *config.Config, a *task.Attempt, x task.Execution) (*agent, error) {
	variant := x.Variant
	if variant == nil {
		variant = a.Variant
	}
	return e.agent(cfg, a.Executor, variant)
}

// maxArgument is how long a prompt may be, in bytes, that is given as an argument:
// what the system takes, with room for the rest of the command line.
func maxArgument() int {
	if runtime.GOOS == "windows" {
		return 30_000
	}
	return 120_000
}

// check refuses what cannot be run, before anything is made for it.
func (a *agent) check(prompt string) error {
	program := a.program(a.Command)
	if !installed(program) {
		return session.Wrong("executor_unavailable", "The program of executor %s was not found: %s. Install it, see that it is in the PATH of the deepwork server, or correct executors in .deepwork/config.yml; list_executors tells which are available.",
			a.name, program).With("argument", "executor").With("value", a.name)
	}
	if a.Prompt == config.PromptArgument && len(prompt) > maxArgument() {
		return session.Wrong("too_long", "Executor %s takes its prompt as an argument, and title, description and prompt together have %d bytes; it may be %d. Shorten them, or put what is long into a file and name that.",
			a.name, len(prompt), maxArgument()).With("argument", "prompt").With("value", len(prompt)).With("max", maxArgument())
	}
	return nil
}

// give is the command line of a run and what it reads.
func (a *agent) give(prompt string, followUp bool) (command []string, stdin []byte) {
	if a.Prompt == config.PromptArgument {
		prompt = asArgument(prompt)
	}
	command, stdin = a.Run(prompt, followUp)
	command[0] = a.program(command)
	return command, stdin
}

// program is what a command line runs: a relative one with a slash is relative to
// the project root, for the agent works elsewhere.
func (a *agent) program(command []string) string {
	name := filepath.FromSlash(command[0])
	if strings.ContainsRune(name, filepath.Separator) && !filepath.IsAbs(name) {
		return filepath.Join(a.root, name)
	}
	return command[0]
}

// installed tells whether there is such a program.
func installed(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// ListExecutors lists the coding agents that attempts can run: the well-known
// ones and those of the config.
func (e *Engine) ListExecutors(ctx context.Context, identity string) (*ExecutorsReply, error) {
	cfg, err := e.config(ctx)
	if err != nil {
		return nil, err
	}
	r := &ExecutorsReply{Executors: []ExecutorInfo{}}
	for _, x := range runner.Merge(cfg.Executors) {
		v := ExecutorInfo{Name: x.Name, Variants: []string{}, CanContinue: len(x.Resume) > 0}
		for _, variant := range x.Variants {
			v.Variants = append(v.Variants, variant.Name)
		}
		if a, err := e.agent(cfg, x.Name, nil); err == nil {
			v.Program = a.program(a.Command)
			v.Available = installed(v.Program)
		}
		r.Executors = append(r.Executors, v)
	}
	slices.SortStableFunc(r.Executors, func(a, b ExecutorInfo) int {
		switch {
		case a.Available == b.Available:
			return 0
		case a.Available:
			return -1
		}
		return 1
	})
	r.Count = len(r.Executors)
	return r, nil
}

// environment is what an attempt's programs get beside the server's own: the
// executor's, and then what leads a deepwork there back to this board.
func (e *Engine) environment(attempt string, own []string) []string {
	jobs := os.Getenv(config.JobsFoldersEnv)
	var env []string
	for _, kv := range own {
		if v, is := strings.CutPrefix(kv, config.JobsFoldersEnv+"="); is {
			jobs = v
			continue
		}
		env = append(env, kv)
	}
	folders := filepath.Join(e.home, "jobs")
	if jobs != "" {
		folders += string(os.PathListSeparator) + jobs
	}
	return append(env, config.AttemptEnv+"="+attempt, config.BoardEnv+"="+e.boardPath(), config.JobsFoldersEnv+"="+folders)
}
