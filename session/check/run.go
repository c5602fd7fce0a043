package check

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepwork/actor/process"
	"deepwork/actor/telemetry"
	"deepwork/catalog/job"
	"deepwork/catalog/trust"
	"deepwork/gate"
	"deepwork/session/contain"
	"deepwork/session/judging"
)

// A Runner runs checks.
type Runner struct {
	// Pool limits how many steps are checked at once.
	Pool *gate.Gate
	// Allowed returns why a check may not run, or nil. It is called right before each start.
	Allowed func(ctx context.Context, s *Subject, c *job.StepCheck) error
	// Program returns the path of a program that is given by name only.
	Program func(name string) (string, error)
	// Contain returns what a check of a subject gets if it is to be contained, and a function that is called when the
	// check has ended; a nil plan means that it is not. nil contains none.
	Contain func(
		ctx context.Context, s *Subject,
	) (p *contain.Plan, refused func(contain.Refusal), end func(), err error)
	// Secrets returns the environment variables that checks do not get.
	Secrets func() []string
}

// A Round runs the checks of a step that have no result for its content.
type Round struct {
	Subject *Subject
	Before  *Content           // when the round begins
	Known   []*judging.Verdict // for each check: its result for Before, or nil
	Over    []bool             // for each check: a person passes over it
	Done    func(n int)        // called with the number of results so far

	// The results. All checks have a result for After, unless Undecided names files.
	Verdicts  []*judging.Verdict // for each check; nil if a person passes over it
	After     *Content
	Undecided []string // files that kept changing
}

// Run runs the checks in order. If a check's content has changed after it, the check runs once more. The
// error says which check could not be run, and why.
func (r *Runner) Run(ctx context.Context, round *Round) error {
	n := len(round.Subject.Checks)
	now, all := round.Before, slices.Clone(round.Known)
	// what each result judges, and what changed while the check ran
	about, changed := slices.Repeat([]*Content{now}, n), make([][]string, n)
	for range 2 {
		for i := range round.Subject.Checks {
			if round.Over[i] || all[i] != nil && all[i].Digest == now.Digest(i) {
				continue
			}
			v, err := r.one(ctx, now, i)
			if err != nil {
				return err
			}

			after := now
			if !v.Check.NotRun {
				if after, err = round.Subject.Look(ctx); err != nil {
					return &Error{Check: round.Subject.Checks[i].Name, Err: err}
				}
			}
			if changed[i] = after.differs(i, now); changed[i] != nil {
				v.Digest = "" // judges nothing
			}
			all[i], about[i], now = v, now, after
			round.Done(n - len(slices.DeleteFunc(slices.Clone(all), func(v *judging.Verdict) bool { return v != nil })))
		}
	}
	round.Verdicts, round.After = all, now
	for i, v := range all {
		if v != nil && v.Digest != now.Digest(i) {
			round.Undecided = slices.Concat(round.Undecided, changed[i], now.differs(i, about[i]))
		}
	}
	slices.Sort(round.Undecided)
	round.Undecided = slices.Compact(round.Undecided)
	return nil
}

// An Error says that a check could not be run: it has no result, and nothing passes.
type Error struct {
	Check string
	Err   error
}

// Error names the check.
func (e *Error) Error() string { return fmt.Sprintf("check '%s' could not be run: %v", e.Check, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

const (
	keptOutput = 16 << 10 // bytes of a check's output
	shownLines = 4000     // bytes of that output that are stored and shown
)

// one runs a check on a content. It returns an error if the program cannot be started.
func (r *Runner) one(ctx context.Context, c *Content, i int) (*judging.Verdict, error) {
	s, k := c.subject, &c.subject.Checks[i]
	v := &judging.Verdict{
		Kind:    judging.ByProgram,
		At:      time.Now().UTC(),
		RunEach: k.Name,
		Key:     Key(k),
		Digest:  c.Digest(i),
		Files:   []judging.FileHash{},
		Check:   &judging.CheckRun{Command: k.Run, Bound: c.BoundTo(i), Ends: k.Ends},
	}
	for _, path := range s.Outputs {
		v.Files = append(v.Files, judging.FileHash{Path: path, SHA256: c.Outputs[path]})
	}
	if faults := c.faults[i]; len(faults) > 0 {
		more := ""
		if n := len(faults) - maxNamed; n > 0 {
			faults, more = faults[:maxNamed], fmt.Sprintf(", and %d more", n)
		}

		v.Check.Code, v.Check.NotRun = -1, true
		v.Feedback = fmt.Sprintf("Files that it protects (%s) are not as they were when the step began: %s%s. "+
			"Restore them as they were.", strings.Join(k.Protect, ", "), strings.Join(faults, ", "), more)
		return v, nil
	}

	o, err := r.start(ctx, s, k)
	if err == nil && o.NotStarted != "" {
		err = fmt.Errorf("its program '%s' cannot be started: %s", k.Run[0], o.NotStarted)
	}
	if err != nil {
		return nil, &Error{Check: k.Name, Err: err}
	}

	v.At = time.Now().UTC()
	v.Seconds = o.After.Seconds()
	v.Passed = o.Passed()
	v.Check.Code = o.Code
	if !v.Passed {
		v.Feedback = explain(k, &o)
		if tail := process.Tail(o.Output, shownLines); tail != "" {
			v.Feedback += judging.LastLines + tail
		}
	}
	return v, nil
}

// explain says how a check failed.
func explain(k *job.StepCheck, o *process.Outcome) string {
	after := o.After.Round(time.Millisecond)
	switch {
	case o.TimedOut:
		return fmt.Sprintf("It did not end within its limit of %v and was ended.", k.Limit())
	case o.Signal != "":
		return fmt.Sprintf("It was ended by %s after %v.", o.Signal, after)
	case o.Code != 0:
		return fmt.Sprintf("It ended with exit code %d after %v.", o.Code, after)
	case o.Surviving:
		return fmt.Sprintf("It ended with exit code 0 after %v, but something that it started does not end, or holds "+
			"its output open.", after)
	}
	return fmt.Sprintf("It ended with exit code 0 after %v, but left processes running, which were ended: it must "+
		"wait for all that it starts.", after)
}

// start runs the program of a check.
func (r *Runner) start(ctx context.Context, s *Subject, k *job.StepCheck) (o process.Outcome, err error) {
	root, err := filepath.EvalSymlinks(s.Root)
	if err != nil {
		return o, err
	}
	dir, err := trust.CheckDir(root, k)
	if err != nil {
		return o, err
	}
	if err := r.Allowed(ctx, s, k); err != nil {
		return o, err
	}

	command := slices.Clone(k.Run)
	switch {
	case process.Bare(command[0]):
		if command[0], err = r.Program(command[0]); err != nil {
			return o, fmt.Errorf("its program '%s' cannot be started: %w", k.Run[0], err)
		}
	case !filepath.IsAbs(command[0]):
		command[0] = filepath.Join(dir, command[0])
	}
	withheld := slices.DeleteFunc(slices.Clone(r.Secrets()), func(name string) bool {
		return slices.Contains(k.PassEnv, name)
	})
	what := process.Contained{
		Command: command,
		Dir:     dir,
		Env:     append(gate.Environment(dir, withheld), telemetry.Environment(telemetry.Current(ctx))...),
		Timeout: k.Limit(),
		Output:  keptOutput,
	}
	contained := false
	if r.Contain != nil {
		p, refused, end, failed := r.Contain(ctx, s)
		if failed != nil {
			return o, failed
		}
		if contained = p != nil; contained {
			defer end()
			p.Dir = dir
			p.Env = append(p.Env, gate.ReviewEnv+"=1")
			p.Env = process.With(p.Env, contain.Passed(k.PassEnv)...)
			what.Command[0] = p.Program(command[0])
			o, err = p.Try(ctx, what, refused)
		}
	}
	if !contained {
		o, err = process.Contain(ctx, what)
	}
	if err != nil && ctx.Err() != nil {
		return o, context.Cause(ctx)
	}
	return o, err
}
