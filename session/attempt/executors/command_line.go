package executors

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
	"deepwork/catalog/jsontext"
	"deepwork/catalog/trust"
	"deepwork/session"
	"deepwork/session/attempt/runner"
	"deepwork/session/codes"
	"deepwork/session/contain"
)

// A CommandLine is the Executor for a name in the config, or for a well-known one: its agents are processes
// of this machine.
type CommandLine struct {
	Local      // where its records are
	Name       string
	Root       string // of the project, absolute
	State      string // the folder of its state, which has the homes and caches of contained agents
	Config     func(context.Context) (*config.Config, error)
	Registered []string // the names of other kinds of executors, which errors also list
}

// Describe implements Executor.
func (c CommandLine) Describe(ctx context.Context, variant *string) (a Abilities, err error) {
	cfg, err := c.Config(ctx)
	if err != nil {
		return a, err
	}
	all := Merge(cfg.Executors)
	if i := slices.IndexFunc(all, func(x config.Executor) bool { return x.Name == c.Name }); i >= 0 {
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
	a.Continues = r.Continues
	if c := cfg.Contained(c.Name, true); c.Mode == config.ContainRequired && c.Home == config.HomeNew {
		a.Continues = false // its conversations are gone with its home
	}
	a.Names = a.Continues && r.Names(c.Name)
	a.Reports = r.Reports()
	if r.Prompt == config.PromptArgument {
		a.MaxPrompt = MaxArgument()
	}
	return a, nil
}

// Check implements Executor.
func (c CommandLine) Check(ctx context.Context, w Work) error {
	_, err := c.ready(ctx, w)
	return err
}

// ready returns the recipe for a work that can be done now.
func (c CommandLine) ready(ctx context.Context, w Work) (*recipe, error) {
	cfg, err := c.Config(ctx)
	if err != nil {
		return nil, err
	}
	r, err := c.recipe(cfg, w.Variant)
	if err != nil {
		return nil, err
	}
	if w.MCP != nil {
		r.Recipe = r.ForStep(c.Name, *w.MCP, w.Conversation)
		if w.Model != "" && !r.With(c.Name, w.Model) {
			return nil, session.Wrong(codes.ExecutorUnavailable,
				"The step names the model %s, and the executor %s is not one of those whose options deepwork knows "+
					"(%s). Remove model from the step, or give it one of these executors with its own command.",
				w.Model, c.Name, strings.Join(config.KnownExecutors, ", "))
		}
	}
	if err := r.check(w.Prompt); err != nil {
		return nil, err
	}
	if err := c.checkContained(ctx, cfg, w); err != nil {
		return nil, err
	}
	if w.OfProject && w.Workspace != "" { // a branch may contain other scripts than the approved ones
		return r, r.allowed(w.Workspace, w.resumes())
	}
	return r, nil
}

// Start implements Executor.
func (c CommandLine) Start(ctx context.Context, w Work) (Process, error) {
	r, err := c.ready(ctx, w)
	if err != nil {
		return nil, err
	}
	cfg, err := c.Config(ctx)
	if err != nil {
		return nil, err
	}

	if cfg.Contained(c.Name, w.MCP != nil).Mode == config.ContainRequired {
		// The workspace is made ready only for an agent that was not started yet.
		if p, err := c.Local.Find(ctx, w.Log, w.Execution); !errors.Is(err, ErrNoRun) {
			return p, err
		}
	}
	spec := runner.Spec{Work: w.Workspace}
	spec.Command, spec.Stdin = r.give(w.Prompt, w.resumes())
	if spec.Contain, err = c.contained(ctx, cfg, r, w); err != nil {
		return nil, err
	}
	if spec.Contain != nil {
		spec.Contained = spec.Contain.String()
		spec.Command[0] = spec.Contain.Program(spec.Command[0])
		return c.Local.Start(ctx, w.Log, w.Execution, spec)
	}

	if cfg.Contained(c.Name, w.MCP != nil).Mode == config.ContainOuter {
		spec.Contained = contain.Outer
	}
	env := w.Env
	if r.Telemetry {
		env = telemetry.WithReceiver(env)
	}
	spec.Env = append(process.Without(r.Env, config.JobsFoldersEnv), env...)
	for _, kv := range r.Env {
		if jobs, ok := strings.CutPrefix(kv, config.JobsFoldersEnv+"="); ok {
			spec.Env = append(spec.Env, JobsFolders(c.Root, jobs))
		}
	}
	return c.Local.Start(ctx, w.Log, w.Execution, spec)
}

// A recipe is a command line for one execution. It comes from the config or the program, never from a tool's
// arguments.
type recipe struct {
	Recipe
	name string
	root string

	approval *config.Approval
}

// maxName is how many characters of a name an error shows.
const maxName = 201

// recipe resolves the command line of a variant. Its error lists the available variants.
func (c CommandLine) recipe(cfg *config.Config, variant *string) (*recipe, error) {
	cfg, approval := cmp.Or(cfg.Wanted, cfg), cfg.Approval // so that the error for an unapproved one shows its command
	all := Merge(cfg.Executors)
	for _, name := range AllNames(cfg, c.Registered)[len(all):] { // only for the error
		all = append(all, config.Executor{Name: name})
	}

	of := ""
	if variant != nil {
		of = *variant
	}
	r, err := Resolve(all, jsontext.Clip(c.Name, maxName), jsontext.Clip(of, maxName))
	if err != nil {
		// The project may name the executor without the user's approval.
		return nil, cmp.Or(session.Untrusted(c.Root, approval, config.AgentsKey), err)
	}
	return &recipe{Recipe: r, name: c.Name, root: c.Root, approval: approval}, nil
}

// MaxArgument is the maximum length of a prompt that is passed as an argument, in bytes: the system's limit,
// minus room for the rest of the command line.
func MaxArgument() int {
	if runtime.GOOS == "windows" {
		return 30_000
	}
	return 120_000
}

// check returns an error for what cannot be run, before anything is created.
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
		return session.Wrong(codes.ExecutorUnavailable,
			"The program of executor %s is not executable: %s. Make it so with chmod +x, or correct executors in "+
				".deepwork/config.yml.",
			r.name, r.program(r.Command)).With("argument", "executor").With("value", r.name)
	}
	if err != nil {
		return session.Wrong(codes.ExecutorUnavailable,
			"The program of executor %s was not found: %s. Install it, add it to the PATH of the deepwork server, or "+
				"correct executors in .deepwork/config.yml.",
			r.name, r.program(r.Command)).Next("see the available ones", "list_executors").
			With("argument", "executor").With("value", r.name)
	}
	if r.Prompt == config.PromptArgument && len(prompt) > MaxArgument() {
		return session.Wrong(codes.TooLong,
			"Executor %s takes its prompt as an argument, and title, description and prompt together have %d bytes; "+
				"at most %d are allowed. Shorten them, or put long text in a file and name that file.",
			r.name, len(prompt), MaxArgument()).With("argument", "prompt").With("value", len(prompt)).With("max",
			MaxArgument())
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

// allowed returns an error if scripts in the agent's working folder differ from the approved ones.
func (r *recipe) allowed(dir string, followUp bool) error {
	arguments := slices.Clone(r.line(followUp))
	arguments[0] = "" // the program is not from that folder
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
		program = r.program(line) // if this is wrong, starting the program reports it
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

// program resolves the program of a command line. A relative path with a slash is relative to the project
// root, since the agent works elsewhere.
func (r *recipe) program(command []string) string {
	name := filepath.FromSlash(command[0])
	if strings.ContainsRune(name, filepath.Separator) && !filepath.IsAbs(name) {
		return filepath.Join(r.root, name)
	}
	return command[0]
}

// JobsFolders returns the variable with the folders of jobs: the project's own, if it exists, then others.
func JobsFolders(root, others string) string {
	folders := config.QuoteFolder(filepath.Join(root, ".deepwork", "jobs"))
	if _, err := os.Stat(filepath.Join(root, ".deepwork", "jobs")); err != nil {
		folders = ""
	}
	if folders != "" && others != "" {
		folders += string(os.PathListSeparator)
	}
	return config.JobsFoldersEnv + "=" + folders + others
}

// WithoutProxy returns variables with which programs reach servers on this machine without a proxy.
func WithoutProxy() (env []string) {
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		hosts := cmp.Or(os.Getenv(name), os.Getenv("NO_PROXY"), os.Getenv("no_proxy"))
		if hosts != "*" {
			hosts = strings.TrimPrefix(hosts+",127.0.0.1,localhost,::1", ",")
		}
		env = append(env, name+"="+hosts)
	}
	return env
}

// Local runs command lines on this machine. Each log has its own folder, <logs>/attempts/<id>: the output in
// log, and each execution in runs/<execution>.
type Local struct {
	runner.Runner
	Logs string
}

// check returns an error if an id of the board is malformed, or if a folder of the attempt is a link.
func (l Local) check(attempt, execution string) error {
	for _, id := range []string{attempt, execution} {
		if id != "" && uuid.Validate(id) != nil {
			return fmt.Errorf("%q is not the id of an attempt or an execution", id)
		}
	}

	for _, dir := range []string{filepath.Dir(l.Records(attempt)), l.Records(attempt), l.Run(attempt, ""),
		l.Run(attempt, execution)} {
		if err := runner.OwnFolder(dir); err != nil {
			return err
		}
	}

	return nil
}

func (l Local) Records(attempt string) string {
	return filepath.Join(l.Logs, "attempts", attempt)
}

func (l Local) Log(attempt string) string { return filepath.Join(l.Records(attempt), "log") }

func (l Local) Run(attempt, execution string) string {
	return filepath.Join(l.Records(attempt), "runs", execution)
}

func (l Local) Start(ctx context.Context, attempt, execution string, spec runner.Spec) (Process, error) {
	spec.Dir, spec.Log = l.Run(attempt, execution), l.Log(attempt)
	if err := l.check(attempt, execution); err != nil {
		return nil, err
	}
	return l.Runner.Start(ctx, spec)
}

func (l Local) Find(ctx context.Context, attempt, execution string) (Process, error) {
	if err := l.check(attempt, execution); err != nil {
		return nil, err
	}
	return l.Runner.Find(ctx, l.Run(attempt, execution))
}

// Alive reports whether any agent of an attempt is running. It changes nothing.
func (l Local) Alive(attempt string) (bool, error) {
	if err := l.check(attempt, ""); err != nil {
		return false, err
	}
	runs, err := os.ReadDir(l.Run(attempt, ""))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	for _, run := range runs {
		var alive bool
		alive, err = runner.Alive(l.Run(attempt, run.Name()))
		if alive || err != nil {
			return alive, err
		}
	}

	return false, err
}

func (l Local) Tail(
	ctx context.Context, attempt string, after *int64, limit int, wait time.Duration,
) ([]runner.Entry, int64, error) {
	if err := l.check(attempt, ""); err != nil {
		return nil, 0, err
	}
	return runner.Tail(ctx, l.Log(attempt), after, limit, wait)
}

func (l Local) Note(attempt, text string) error {
	return cmp.Or(l.check(attempt, ""), runner.Note(l.Log(attempt), text))
}

func (l Local) Remove(attempt string) error {
	return cmp.Or(l.check(attempt, ""), os.RemoveAll(l.Records(attempt)))
}
