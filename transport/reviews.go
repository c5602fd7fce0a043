package transport

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/actor/process"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/trust"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/attempt/executors"
	"deepwork/session/attempt/transcript"
	"deepwork/session/check"
	"deepwork/session/codes"
	"deepwork/session/contain"
	"deepwork/session/pin"
	"deepwork/transport/tool"
)

// reviewing decides how steps are reviewed: not at all, by the reviewer of the options, by that of
// the config, or by the agents themselves, in that order (seed 000, 001.1.3 to 001.1.9; seed 001
// "Quality Gates"). The config is read each time.
type reviewing struct {
	flags   gate.Settings // set by the options
	root    string        // of the project
	work    string        // where reviewers run: the project, or a workspace of it
	o       Options
	current func(context.Context) (*config.Config, error)
	// approved returns the approval of a command that the config had under a key before.
	approved func(key string, command []string) (*config.Approval, error)
	own      func() *config.User // the user's own config
}

func newReviewing(
	o Options, root, work string, current func(context.Context) (*config.Config, error),
) (*reviewing, error) {
	r := &reviewing{o: o, root: root, work: work, current: current}
	r.flags.Claude = o.ExternalRunner == "claude"
	if o.QualityGateCommand != "" {
		words, err := config.SplitCommand(o.QualityGateCommand)
		if err != nil {
			return nil, fmt.Errorf("quality gate command %q: %w", o.QualityGateCommand, err)
		}
		r.flags.Command = words
	}
	return r, nil
}

func (r *reviewing) merge(c *config.Config) gate.Settings {
	q := c.QualityGate
	s := r.flags
	switch {
	case s.External():
		executor := ""
		if s.Claude {
			executor = claudeExecutor
		}
		s.Run = r.contained(executor, nil)
		s.From = func() string { return "the flags of deepwork serve" }
	case len(q.AgentReviewCommand) > 0:
		s.Command = q.AgentReviewCommand
		s.Program, _ = trust.Find(r.root, s.Command[0]) // if it is missing, the review says so
		s.Run = r.contained("", nil)
		s.Allowed, s.From = func() error { return r.refused(c) }, r.from
	case q.ReviewerExecutor != "":
		s = s.With(r.executor(c, q.ReviewerExecutor))
	}

	s.Secrets = append(c.Secrets(), config.StoreEnv) // which may have a password
	s.Timeout = q.DefaultTimeout
	if r.o.QualityGateTimeout > 0 {
		s.Timeout = r.o.QualityGateTimeout
	}
	s.MaxConcurrent, s.MaxInlineFiles = q.MaxConcurrentReviews, q.MaxInlineFiles
	return s
}

// from returns the file that has the reviewer: the user's own config takes precedence.
func (r *reviewing) from() string {
	if own := r.own().Over(config.Default()).QualityGate; own.AgentReviewCommand != nil || own.ReviewerExecutor != "" {
		return config.UserFile()
	}
	return filepath.Join(r.root, ".deepwork", config.FileName)
}

// now is called by the engine at each call.
func (r *reviewing) now(ctx context.Context) (pin.Reviewing, error) {
	c, err := r.current(ctx)
	if err != nil {
		return pin.Reviewing{}, tool.BadConfig(err)
	}

	s := r.merge(c)
	how := pin.Reviewing{
		External:    s.External(),
		MaxTries:    c.QualityGate.DefaultMaxAttempts,
		ReplyWithin: c.QualityGate.ReplyWithin,
		Override:    cmp.Or(r.o.Override, c.QualityGate.Override),
		Pin:         r.o.Pin || c.QualityGate.Pin,
		Earlier:     r.earlier,
	}
	if !r.flags.External() {
		how.Refused = r.refused(c)
	}
	switch {
	case s.Claude:
		how.Reviewer = pin.ReviewerClaude
	case s.External() && s.Name != "":
		how.Reviewer, err = jsonText(pinnedExecutor{c.QualityGate.ReviewerExecutor, s.Command})
	case s.External():
		how.Reviewer, err = jsonText(s.Command)
	case how.Refused != nil:
		how.Reviewer = pin.ReviewerWithheld
	}
	if r.o.QualityGateMaxAttempts > 0 {
		how.MaxTries = r.o.QualityGateMaxAttempts
	}
	return how, err
}

func jsonText(v any) (string, error) {
	data, err := json.Marshal(v)
	return string(data), err
}

// refused returns why the reviewer of the config may not run, or nil.
func (r *reviewing) refused(c *config.Config) error {
	command := c.QualityGate.AgentReviewCommand
	var err error
	if name := c.QualityGate.ReviewerExecutor; name != "" {
		var recipe executors.Recipe
		recipe, err = resolve(c, name)
		command = recipe.Command
	}
	if len(command) == 0 && err == nil {
		return cmp.Or(session.Untrusted(r.root, c.Approval, "quality_gate.agent_review_command"),
			session.Untrusted(r.root, c.Approval, "quality_gate.reviewer_executor"))
	}
	// One of the user's own config needs the files, and programs such as claude --print obey what lies beside them.
	if err := cmp.Or(session.Untrusted(r.root, c.Approval, config.ReviewerKey, command...), err); err != nil {
		return err
	}
	for _, root := range []string{r.root, r.work} { // a workspace has its branch's own files
		if err := trust.Check(root, c.Approval, command); err != nil {
			return session.Changed(r.root, err)
		}
	}

	return nil
}

// A pinnedExecutor is an executor that reviews, in the form of machine.Pinned.
type pinnedExecutor struct {
	Executor string   `json:"executor"`
	Command  []string `json:"command"`
}

// resolve returns how to run the executor of quality_gate.reviewer_executor.
func resolve(c *config.Config, of string) (executors.Recipe, error) {
	name, variant, _ := strings.Cut(of, ":")
	recipe, err := executors.Resolve(executors.Merge(c.Executors), name, variant)
	if err != nil {
		err = session.NotNow(codes.ReviewerUnavailable,
			"quality_gate.reviewer_executor is %s, which cannot review: %v Tell the user to correct it in "+
				".deepwork/config.yml, or in their own config.", of, err).Because(err)
	}
	return recipe, err
}

// executor returns an executor as the reviewer. If it cannot run, its Allowed says why.
func (r *reviewing) executor(c *config.Config, name string) *gate.Reviewer {
	use := &gate.Reviewer{
		Name:    "executor " + name,
		Command: []string{name},
		Answer:  transcript.Answer,
		From:    r.from,
		Allowed: func() error { return r.refused(c) },
	}
	if r.o.reviewed != nil {
		use.Ended = func(stdout []byte) error { return r.o.reviewed(name, stdout) }
	}
	if recipe, err := resolve(c, name); err == nil {
		executor, _, _ := strings.Cut(name, ":")
		use.Run = r.contained(executor, recipe.Env)
		use.Command = recipe.Command
		use.Env = recipe.Env
		use.Argument = recipe.Prompt == config.PromptArgument
		use.Program, _ = trust.Find(r.root, recipe.Command[0]) // if it is missing, the review says so
	}
	return use
}

// claudeExecutor is the executor whose hosts and home the reviewer claude has.
const claudeExecutor = "CLAUDE_CODE"

// contained returns how the reviewer of an executor, or of none, for "", is run: contained, where its run's agents are.
// env is added to its environment.
func (r *reviewing) contained(
	executor string, env []string,
) func(context.Context, process.Spec) (process.Result, error) {
	if r.o.judge == nil {
		return nil
	}
	return func(ctx context.Context, spec process.Spec) (process.Result, error) {
		j, err := r.o.judge(ctx, spec.Dir, &executor)
		if err != nil {
			return process.Result{ExitCode: -1},
				&process.Error{Command: spec.Command[0], Kind: process.Start, ExitCode: -1, Err: err}
		}
		if j == nil {
			return process.Run(ctx, spec)
		}
		defer j.End()
		program := spec.Command[0]
		if process.Bare(program) {
			if program, err = process.Look(program, r.root); err != nil {
				program = spec.Command[0] // starting it says so
			}
		}
		spec.Command = append([]string{j.Program(program)}, spec.Command[1:]...)
		j.Env = process.With(j.Env, append(env, gate.ReviewEnv+"=1")...)
		return j.Run(ctx, spec, j.Refused)
	}
}

// earlier returns the reviewer that a session began with, if the user approved it.
func (r *reviewing) earlier(name string) (*gate.Reviewer, error) {
	if name == pin.ReviewerClaude {
		return &gate.Reviewer{Claude: true, Run: r.contained(claudeExecutor, nil)}, nil
	}

	var x pinnedExecutor
	if json.Unmarshal([]byte(name), &x) == nil && x.Executor != "" {
		c, err := r.current(context.Background())
		if err != nil {
			return nil, err
		}

		was := *c
		was.QualityGate.AgentReviewCommand, was.QualityGate.ReviewerExecutor = nil, x.Executor
		use := r.executor(&was, x.Executor)
		err = r.refused(&was)
		if err == nil && !slices.Equal(use.Command, x.Command) {
			err = fmt.Errorf("the executor %s has another command now", x.Executor)
		}
		return use, err
	}

	var command []string
	if json.Unmarshal([]byte(name), &command) != nil || len(command) == 0 {
		return nil, errors.New("it was never approved")
	}
	program := func() (string, error) {
		approval, err := r.approved("quality_gate.agent_review_command", command)
		if err != nil {
			return "", err
		}
		if err := trust.Check(r.work, approval, command); err != nil { // a workspace has its branch's own files
			return "", err
		}
		return trust.Program(r.root, approval, command)
	}
	path, err := program()
	return &gate.Reviewer{Command: command, Program: path, Run: r.contained("", nil), Allowed: func() error {
		_, err := program()
		return err
	}}, err
}

// enabled reports whether steps are reviewed at all (seed 000, 001.1.9).
func (r *reviewing) enabled() bool { return r.o.EnableQualityGate == nil || *r.o.EnableQualityGate }

// openChecks opens the pool of checks. Only approved ones run, in attempts as in the project: their scripts are
// compared as they are in the folder where the session works.
func (p *opening) openChecks() {
	pool := gate.Open(gate.Options{Root: p.root, Logger: p.logger, Settings: func() gate.Settings {
		return gate.Settings{MaxConcurrent: p.config().Checks.MaxConcurrent}
	}})
	p.opened.add("checks that did not stop", pool.Close)
	p.checks = &check.Runner{
		Pool:    pool,
		Contain: p.containCheck,
		Program: func(name string) (string, error) { return trust.Find(p.root, name) },
		Secrets: func() []string { return append(p.config().Secrets(), config.StoreEnv) }, // which may have a password
		Allowed: p.checkAllowed,
	}
}

// containCheck implements Runner.Contain.
func (p *opening) containCheck(
	ctx context.Context, s *check.Subject,
) (*contain.Plan, func(contain.Refusal), func(), error) {
	if p.options.judge == nil {
		return nil, nil, nil, nil
	}
	j, err := p.options.judge(ctx, s.Root, nil)
	if j == nil || err != nil {
		return nil, nil, nil, err
	}
	return j.Plan, j.Refused, j.End, nil
}

// checkAllowed returns why a check may not run, or nil.
func (p *opening) checkAllowed(ctx context.Context, s *check.Subject, c *job.StepCheck) error {
	user, err := p.settings.Own(ctx)
	if err != nil {
		return err
	}

	root, err := filepath.EvalSymlinks(s.Root)
	if err != nil {
		return err
	}

	step, _, _ := job.SplitItem(s.Step) // what is approved is the same for all items
	e, err := trust.CheckOf(root, s.Job, step, c)
	if err != nil {
		return err
	}

	err = p.policy.Ledger.ApprovesCheck(e, user.TrustedFolders)
	if err == nil {
		return nil
	}

	what := fmt.Sprintf("%v", err)
	remedy := fmt.Sprintf("Ask the user to run `deepwork trust --path %s` in a terminal, then make the same call "+
		"again.", session.InShell(p.projectState.Root))
	switch {
	case err == trust.ErrUnapproved && s.Root != p.projectState.Root:
		what += " as it is here, with this command, folder, limit and script"
	case errors.Is(err, trust.ErrDenied):
		remedy = fmt.Sprintf("They can change that with `deepwork trust --path %s` in a terminal.",
			session.InShell(p.projectState.Root))
	}
	return session.NotNow(codes.Untrusted,
		"Step '%s' cannot be finished: it has the check '%s' (%s), and %s. Nothing was run and nothing has moved. %s",
		s.Step, c.Name, strings.Join(c.Run, " "), what, remedy).With("key", e.Key).With("step_id", s.Step).Because(err)
}
