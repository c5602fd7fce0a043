package attempt

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"deepwork/actor/process"
	"deepwork/catalog/config"
	"deepwork/catalog/trust"
	"deepwork/session"
	"deepwork/session/attempt/runner"
	"deepwork/session/codes"
)

// A recipe is an executor as one execution uses it. Its command comes from the config or the
// program, never from a tool's arguments.
type recipe struct {
	runner.Recipe
	name    string
	variant *string
	root    string

	approval *config.Approval
}

// recipe resolves an executor and its variant; its error lists the available ones.
func (e *Engine) recipe(cfg *config.Config, executor string, variant *string) (*recipe, error) {
	executor = strings.TrimSpace(executor)
	all := runner.Merge(cfg.Executors)
	if executor == "" {
		return nil, session.Wrong(codes.MissingExecutor, "executor is blank. Use one of %s; list_executors describes them.", some(runner.Names(all), "none")).With("argument", "executor")
	}
	name := ""
	if variant != nil {
		name = strings.TrimSpace(*variant)
	}
	r, err := runner.Resolve(all, clip(executor), clip(name))
	if err != nil {
		// It may be one that the project names and the user has not approved.
		return nil, cmp.Or(session.Untrusted(e.o.Root, cfg.Approval, config.AgentsKey), err)
	}
	return &recipe{Recipe: r, name: executor, variant: orNull(name), root: e.o.Root, approval: cfg.Approval}, nil
}

// maxArgument is the longest prompt, in bytes, that is passed as an argument: the system's limit,
// less room for the rest of the command line.
func maxArgument() int {
	if runtime.GOOS == "windows" {
		return 30_000
	}
	return 120_000
}

// check refuses what cannot be run, before anything is created for it.
func (r *recipe) check(prompt string) error {
	if err := session.Untrusted(r.root, r.approval, config.AgentsKey); err != nil {
		return err
	}
	_, err := trust.Program(r.root, r.approval, r.Command)
	if err == nil && len(r.Resume) > 0 {
		err = trust.Check(r.root, r.approval, r.Resume)
	}
	if errors.Is(err, trust.ErrChanged) {
		return session.Changed(r.root, err)
	}
	if err != nil {
		return session.Wrong(codes.ExecutorUnavailable, "The program of executor %s was not found: %s. Install it, add it to the PATH of the deepwork server, or correct executors in .deepwork/config.yml; list_executors lists the available ones.",
			r.name, r.program(r.Command)).With("argument", "executor").With("value", r.name)
	}
	if r.Prompt == config.PromptArgument && len(prompt) > maxArgument() {
		return session.Wrong(codes.TooLong, "Executor %s takes its prompt as an argument, and title, description and prompt together have %d bytes; at most %d are allowed. Shorten them, or put long text in a file and name that file.",
			r.name, len(prompt), maxArgument()).With("argument", "prompt").With("value", len(prompt)).With("max", maxArgument())
	}
	return nil
}

// elsewhere reports whether an error of check is about this machine alone, so that another one that
// shares the store may run the executor.
func (e *Engine) elsewhere(err error) bool {
	return e.shared != nil && session.CodeOf(err) == codes.ExecutorUnavailable
}

// line returns the command of an execution without its prompt.
func (r *recipe) line(followUp bool) []string {
	if followUp {
		return r.Resume
	}
	return r.Command
}

// allowed refuses scripts in the folder in which the agent works that differ from the approved ones.
func (r *recipe) allowed(dir string, followUp bool) error {
	arguments := slices.Clone(r.line(followUp))
	arguments[0] = "" // the program is not from there
	if err := trust.Check(dir, r.approval, arguments); err != nil {
		return session.Changed(r.root, err)
	}
	return nil
}

// give returns the command line of an execution and its standard input.
func (r *recipe) give(prompt string, followUp bool) (command []string, stdin []byte) {
	line := r.line(followUp)
	program, err := trust.Find(r.root, line[0])
	if err != nil {
		program = r.program(line) // starting it reports what is wrong
	}
	command = append([]string{program}, line[1:]...)
	if r.Prompt != config.PromptArgument {
		return command, []byte(prompt)
	}
	if strings.HasPrefix(prompt, "-") {
		prompt = " " + prompt // otherwise it would be taken for an option
	}
	return append(command, prompt), nil
}

// program resolves the program of a command line: a relative path with a slash is relative to the
// project root, since the agent works elsewhere.
func (r *recipe) program(command []string) string {
	name := filepath.FromSlash(command[0])
	if strings.ContainsRune(name, filepath.Separator) && !filepath.IsAbs(name) {
		return filepath.Join(r.root, name)
	}
	return command[0]
}

// ListExecutors lists the coding agents that attempts can run: the well-known
// ones and those of the config.
func (e *Engine) ListExecutors(ctx context.Context, who session.Caller) (*ExecutorsReply, error) {
	cfg, err := e.config(ctx)
	if err != nil {
		return nil, err
	}
	all := make(map[bool][]ExecutorInfo) // by Available
	for _, x := range runner.Merge(cfg.Executors) {
		v := ExecutorInfo{Name: x.Name, Variants: []string{}, CanContinue: len(x.Resume) > 0}
		for _, variant := range x.Variants {
			v.Variants = append(v.Variants, variant.Name)
		}
		if c, err := e.recipe(cfg, x.Name, nil); err == nil {
			v.Program = c.program(c.Command)
			_, err := trust.Find(e.o.Root, c.Command[0])
			v.Available = err == nil
		}
		all[v.Available] = append(all[v.Available], v)
	}
	r := &ExecutorsReply{Executors: list(append(all[true], all[false]...))}
	r.Count = len(r.Executors)
	return r, nil
}

// environment is added to the server's own for an attempt's programs: the executor's variables,
// then those that lead a deepwork there back to this board.
func (e *Engine) environment(cfg *config.Config, attempt string, own []string) []string {
	jobs := os.Getenv(config.JobsFoldersEnv)
	for _, kv := range own {
		if v, is := strings.CutPrefix(kv, config.JobsFoldersEnv+"="); is {
			jobs = v
		}
	}
	env := append(cfg.Secrets(), process.Without(own, config.JobsFoldersEnv)...)
	folders := filepath.Join(e.home, "jobs")
	if jobs != "" {
		folders += string(os.PathListSeparator) + jobs
	}
	if e.shared != nil {
		env = append(env, e.shared.Env...)
	}
	return append(env, config.AttemptEnv+"="+attempt, config.BoardEnv+"="+e.boardPath(), config.JobsFoldersEnv+"="+folders)
}
