package attempt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"deepwork/actor/process"
	"deepwork/actor/telemetry"
	"deepwork/catalog/config"
	"deepwork/catalog/trust"
	"deepwork/session"
	"deepwork/session/attempt/executors"
	"deepwork/session/attempt/runner"
	"deepwork/session/board"
	"deepwork/session/codes"
)

// A commandLine is the Executor of a name in the config, or of a well-known one: its agents are processes of
// this machine.
type commandLine struct {
	local  // its records
	engine *Engine
	name   string
}

// Describe implements Executor.
func (c commandLine) Describe(ctx context.Context, variant *string) (a Abilities, err error) {
	cfg, err := c.engine.Config(ctx)
	if err != nil {
		return a, err
	}
	all := executors.Merge(cfg.Executors)
	if i := slices.IndexFunc(all, func(x config.Executor) bool { return x.Name == c.name }); i >= 0 {
		for _, v := range all[i].Variants {
			a.Variants = append(a.Variants, v.Name)
		}
	}
	r, err := c.recipe(cfg, variant)
	if err != nil {
		return a, err
	}
	_, missing := trust.Find(r.root, r.Command[0])
	a.Program, a.Available = r.program(r.Command), missing == nil
	a.Continues, a.Names, a.Reports = r.Continues, r.Continues && r.Names(c.name), r.Reports()
	if r.Prompt == config.PromptArgument {
		a.MaxPrompt = maxArgument()
	}
	return a, nil
}

// Check implements Executor.
func (c commandLine) Check(ctx context.Context, w Work) error {
	_, err := c.ready(ctx, w)
	return err
}

// ready returns the recipe for a work that can be done.
func (c commandLine) ready(ctx context.Context, w Work) (*recipe, error) {
	cfg, err := c.engine.Config(ctx)
	if err != nil {
		return nil, err
	}
	r, err := c.recipe(cfg, w.Variant)
	if err != nil {
		return nil, err
	}
	if w.MCP != nil {
		r.Recipe = r.ForStep(c.name, *w.MCP, w.Conversation)
		if w.Model != "" && !r.With(c.name, w.Model) {
			return nil, session.Wrong(codes.ExecutorUnavailable, "The step names the model %s, and the executor %s is not one of those whose options deepwork knows (%s). Remove model from the step, or give it one of these executors with its own command.",
				w.Model, c.name, strings.Join(config.KnownExecutors, ", "))
		}
	}
	if err := r.check(w.Prompt); err != nil {
		return nil, err
	}
	if w.OfProject && w.Workspace != "" { // a branch may have other scripts than those that were approved
		return r, r.allowed(w.Workspace, w.resumes())
	}
	return r, nil
}

// resumes reports whether a work goes on with a conversation.
func (w *Work) resumes() bool { return w.Continue || w.Conversation != "" }

// Start implements Executor.
func (c commandLine) Start(ctx context.Context, w Work) (Process, error) {
	r, err := c.ready(ctx, w)
	if err != nil {
		return nil, err
	}
	env := w.Env
	if r.Telemetry {
		env = telemetry.WithReceiver(env)
	}
	spec := runner.Spec{Work: w.Workspace, Env: append(process.Without(r.Env, config.JobsFoldersEnv), env...)}
	for _, kv := range r.Env {
		if jobs, is := strings.CutPrefix(kv, config.JobsFoldersEnv+"="); is {
			spec.Env = append(spec.Env, c.engine.jobsFolders(jobs))
		}
	}
	spec.Command, spec.Stdin = r.give(w.Prompt, w.resumes())
	return c.local.Start(ctx, w.Log, w.Execution, spec)
}

// A recipe is a command line as one execution uses it. It comes from the config or the program, never from a
// tool's arguments.
type recipe struct {
	executors.Recipe
	name string
	root string

	approval *config.Approval
}

// recipe resolves the command line in a variant; its error lists the available ones.
func (c commandLine) recipe(cfg *config.Config, variant *string) (*recipe, error) {
	all := executors.Merge(cfg.Executors)
	for _, name := range c.engine.executorNames(cfg)[len(all):] { // for the error
		all = append(all, config.Executor{Name: name})
	}
	root := c.engine.Root()
	r, err := executors.Resolve(all, board.Clip(c.name), board.Clip(board.OrEmpty(variant)))
	if err != nil {
		// It may be one that the project names and the user has not approved.
		return nil, cmp.Or(session.Untrusted(root, cfg.Approval, config.AgentsKey), err)
	}
	return &recipe{Recipe: r, name: c.name, root: root, approval: cfg.Approval}, nil
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
	if err := session.Untrusted(r.root, r.approval, config.AgentsKey, r.Command...); err != nil {
		return err
	}
	_, err := trust.Program(r.root, r.approval, r.Command)
	if err == nil && len(r.Resume) > 0 {
		err = trust.Check(r.root, r.approval, r.Resume)
	}
	if errors.Is(err, trust.ErrChanged) {
		return session.Changed(r.root, err)
	}
	if errors.Is(err, fs.ErrPermission) {
		return session.Wrong(codes.ExecutorUnavailable, "The program of executor %s is not executable: %s. Make it so with chmod +x, or correct executors in .deepwork/config.yml.",
			r.name, r.program(r.Command)).With("argument", "executor").With("value", r.name)
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

// environment is added to the server's own for an attempt's programs: it leads a deepwork there back to this
// board. CLAUDECODE is left out: a server started within Claude Code inherits it, and claude refuses to start with it.
func (e *Engine) environment(cfg *config.Config, attempt string) []string {
	env := append(cfg.Secrets(), "CLAUDECODE")
	if e.Shared != nil {
		env = append(env, e.Shared.Env...)
	}
	return append(env, config.AttemptEnv+"="+attempt, config.BoardEnv+"="+e.boardPath(), e.jobsFolders(os.Getenv(config.JobsFoldersEnv)))
}

// jobsFolders puts the project's own folder of jobs, if there is one, before others.
func (e *Engine) jobsFolders(others string) string {
	folders := filepath.Join(e.Root(), ".deepwork", "jobs")
	if _, err := os.Stat(folders); err != nil {
		folders = ""
	}
	if folders != "" && others != "" {
		folders += string(os.PathListSeparator)
	}
	return config.JobsFoldersEnv + "=" + folders + others
}

// local runs command lines on this machine. It stores each log in its own folder, <logs>/attempts/<id>: the
// output in log, and each execution in runs/<execution>.
type local struct {
	runner.Runner
	logs string
}

// check returns an error if an id of the board is malformed, or if a folder of the attempt is a
// link.
func (l local) check(attempt, execution string) error {
	for _, id := range []string{attempt, execution} {
		if id != "" && uuid.Validate(id) != nil {
			return fmt.Errorf("%q is not the id of an attempt or an execution", id)
		}
	}
	for _, dir := range []string{filepath.Dir(l.records(attempt)), l.records(attempt), l.run(attempt, ""), l.run(attempt, execution)} {
		if err := runner.OwnFolder(dir); err != nil {
			return err
		}
	}
	return nil
}

func (l local) records(attempt string) string {
	return filepath.Join(l.logs, "attempts", attempt)
}

func (l local) log(attempt string) string { return filepath.Join(l.records(attempt), "log") }

func (l local) run(attempt, execution string) string {
	return filepath.Join(l.records(attempt), "runs", execution)
}

func (l local) Start(ctx context.Context, attempt, execution string, spec runner.Spec) (Process, error) {
	spec.Dir, spec.Log = l.run(attempt, execution), l.log(attempt)
	if err := l.check(attempt, execution); err != nil {
		return nil, err
	}
	return l.Runner.Start(ctx, spec)
}

func (l local) Find(ctx context.Context, attempt, execution string) (Process, error) {
	if err := l.check(attempt, execution); err != nil {
		return nil, err
	}
	return l.Runner.Find(ctx, l.run(attempt, execution))
}

// Alive reports whether any agent of an attempt runs. It changes nothing.
func (l local) Alive(attempt string) (bool, error) {
	if err := l.check(attempt, ""); err != nil {
		return false, err
	}
	runs, err := os.ReadDir(l.run(attempt, ""))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	for _, run := range runs {
		var alive bool
		if alive, err = runner.Alive(l.run(attempt, run.Name())); alive || err != nil {
			return alive, err
		}
	}
	return false, err
}

func (l local) Tail(ctx context.Context, attempt string, after *int64, limit int, wait time.Duration) ([]runner.Entry, int64, error) {
	if err := l.check(attempt, ""); err != nil {
		return nil, 0, err
	}
	return runner.Tail(ctx, l.log(attempt), after, limit, wait)
}

func (l local) Note(attempt, text string) error {
	return cmp.Or(l.check(attempt, ""), runner.Note(l.log(attempt), text))
}

func (l local) Remove(attempt string) error {
	return cmp.Or(l.check(attempt, ""), os.RemoveAll(l.records(attempt)))
}
