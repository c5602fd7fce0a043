package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"deepwork/actor/process"
	"deepwork/actor/telemetry"
	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
)

// ReviewEnv is the environment variable that is 1 for reviewers and their descendants.
const ReviewEnv = "DEEPWORK_REVIEW"

// review runs one review to its end.
func (g *Gate) review(ctx context.Context, r *review, s Settings) Verdict {
	v := Verdict{Task: r.task, Reviewer: s.Reviewer(), StartedAt: time.Now().UTC()}
	if r.task.Do != nil {
		r.task.Do(ctx, &v)
		v.EndedAt = time.Now().UTC()
		return v
	}

	got, err := g.judge(ctx, r, s)
	if err != nil {
		if s.From != nil {
			err.From = s.From()
		}
		v.Err = err
	} else {
		v.Passed = got.passed
		v.Feedback = got.feedback
		v.Criteria = got.criteria
	}
	v.EndedAt = time.Now().UTC()
	return v
}

// judge runs a reviewer and reads its verdict. It compares the content before and after, since a verdict
// applies only to what was submitted.
func (g *Gate) judge(ctx context.Context, r *review, s Settings) (*reading, *Error) {
	t := &r.task
	if ctx.Err() != nil {
		return nil, cancelled(ctx, r)
	}

	if !s.External() {
		return nil, t.fail(NotStarted, "no reviewer is configured any more", nil)
	}

	root, err := filepath.EvalSymlinks(g.root(r))
	if err != nil {
		return nil, t.fail(NotStarted, fmt.Sprintf("the project root cannot be reached: %v", err), err)
	}
	dir, err := os.OpenRoot(root)
	if err != nil {
		return nil, t.fail(NotStarted, fmt.Sprintf("the project root cannot be opened: %v", err), err)
	}
	defer dir.Close()

	b := builder{sub: &r.batch.sub, task: t, root: root, dir: dir, copies: copiesOf(r.batch.sub.SessionID, newNonce()),
		inline: s.MaxInlineFiles, nonce: newNonce()}
	defer dir.RemoveAll(path.Dir(b.copies)) // else it goes with the session
	p, err := b.build(ctx, s.Claude)
	if err == nil {
		err = b.check(ctx)
	}
	_, changed := errors.AsType[*errChanged](err)
	switch {
	case ctx.Err() != nil:
		return nil, cancelled(ctx, r)
	case changed:
		return nil, t.fail(ContentChanged, err.Error()+", so the review did not begin", err)
	case err != nil:
		return nil, t.fail(NotStarted, err.Error(), err)
	}
	result, failed := g.run(ctx, r, s, p)
	if failed != nil {
		return nil, failed
	}
	got, failed := s.read(result, t)
	if failed != nil {
		return nil, failed
	}

	switch err := b.unchanged(ctx); {
	case ctx.Err() != nil:
		return nil, cancelled(ctx, r)
	case err != nil:
		return nil, t.fail(ContentChanged, err.Error()+": it was changed while it was reviewed", err)
	}
	return got, nil
}

// root returns the folder in which a reviewer runs.
func (g *Gate) root(r *review) string { return filepath.Join(g.options.Root, r.batch.sub.Root) }

// fail returns the error of a review.
func (t *Task) fail(code Code, what string, cause error) *Error {
	return &Error{Code: code, Review: t.name(), What: what, Err: cause}
}

// run runs a reviewer on a prompt and returns what it printed.
func (g *Gate) run(ctx context.Context, r *review, s Settings, p prompt) (process.Result, *Error) {
	t := &r.task
	var none process.Result
	limit := s.timeout(len(t.Files))
	timed, stop := context.WithTimeout(ctx, limit)
	defer stop()

	if s.Allowed != nil {
		if err := s.Allowed(); err != nil {
			return none, t.fail(NotStarted, err.Error(), err)
		}
	}

	stdin := p.stdin
	if s.Argument {
		stdin = nil
	}
	if n := len(p.stdin); s.Argument && n > maxArgument {
		return none, t.fail(NotStarted,
			fmt.Sprintf("the reviewer `%s` takes its task as an argument, and this one has %d bytes; at most %d are "+
				"possible. Set quality_gate.max_inline_files to 0, so that it gets paths alone, or have the executor "+
				"read its prompt from stdin", s.Reviewer(), n, maxArgument), nil)
	}
	run := s.Run
	if run == nil {
		run = process.Run
	}
	result, err := run(timed, process.Spec{
		Command: s.argv(p, t),
		Dir:     g.root(r),
		Env: process.With(append(Environment(g.root(r), s.Secrets),
			telemetry.Environment(telemetry.Current(ctx))...), s.Env...),
		Stdin:       stdin,
		StdoutLimit: stdoutLimit,
		StderrLimit: stderrLimit,
		Grace:       grace,
	})
	if e, failed := errors.AsType[*process.Error](err); s.Ended != nil && (!failed || e.After > 0) { // the reviewer ran
		if err := s.Ended(result.Stdout); err != nil && ctx.Err() == nil {
			return none, t.fail(Crashed,
				fmt.Sprintf("the reviewer `%s` ended, and what it used could not be recorded: %v", s.Reviewer(), err),
				err)
		}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return none, cancelled(ctx, r)
	case err != nil:
		e, _ := errors.AsType[*process.Error](err)
		code, what := explain(e, s, limit)
		failed := t.fail(code, what, err)
		failed.Tail = lastLines(e.Tail)
		return none, failed
	}

	return result, nil
}

// read reads the verdict that a reviewer printed.
func (s Settings) read(result process.Result, t *Task) (*reading, *Error) {
	answer := result.Stdout
	if s.Answer != nil {
		answer = s.Answer(answer)
	}
	got, err := parseVerdict(answer, t.Criteria)
	if err != nil {
		code := NoVerdict
		if m, ok := errors.AsType[*misreading](err); ok {
			code = m.code
		}
		failed := t.fail(code, fmt.Sprintf("the reviewer `%s` ended with exit code 0, but %v", s.Reviewer(), err), err)
		if failed.Tail = lastLines(string(result.Stdout)); failed.Tail == "" {
			failed.Tail = lastLines(result.Stderr)
		}
		return nil, failed
	}
	return got, nil
}

// argv returns the command line of a reviewer. claude gets the job's text as its system prompt and the
// author's text as its input (DESIGN "Reviews").
func (s Settings) argv(p prompt, t *Task) []string {
	if !s.Claude {
		command := slices.Clone(s.Command)
		command[0] = cmp.Or(s.Program, command[0])
		if s.Argument {
			command = append(command, strings.ReplaceAll(string(p.stdin), "\x00", ""))
		}
		return command
	}
	return []string{cmp.Or(s.ClaudeCommand, "claude"), "--print", "--output-format", "json",
		"--system-prompt", strings.ReplaceAll(p.system, "\x00", ""), "--json-schema", verdictSchema(t.Criteria),
		"-p", "--"}
}

// maxArgument is the maximum length in bytes of a task that is passed as an argument: Linux allows 128 KiB.
const maxArgument = 120_000

// Environment returns the server's environment plus ReviewEnv, without its secrets and without variables that
// bind a program to the conversation in which the server was started.
func Environment(root string, secrets []string) []string {
	return append(process.Without(os.Environ(), append(secrets, config.ConversationEnv...)...), ReviewEnv+"=1",
		"PWD="+root)
}

// explain describes for people how a reviewer with a nonzero exit code failed.
func explain(e *process.Error, s Settings, limit time.Duration) (Code, string) {
	name := s.Reviewer()
	after := e.After.Round(time.Millisecond)
	switch e.Kind {
	case process.NotFound:
		return NotStarted, fmt.Sprintf("the reviewer `%s` cannot be started: there is no program '%s' (%v)", name,
			e.Command, e.Err)
	case process.Start:
		return NotStarted, fmt.Sprintf("the reviewer `%s` cannot be started: '%s': %v", name, e.Command, e.Err)
	case process.Timeout:
		return TimedOut, fmt.Sprintf("the reviewer `%s` did not end within its timeout of %v and was killed",
			name, limit)
	case process.TooMuchOutput:
		return Flooded, fmt.Sprintf("the reviewer `%s` wrote more than %d bytes and was killed", name, e.Limit)
	case process.Signal:
		return Crashed, fmt.Sprintf("the reviewer `%s` was ended by signal %s after %v", name, e.Signal, after)
	}

	return Crashed, fmt.Sprintf("the reviewer `%s` ended with exit code %d after %v", name, e.ExitCode, after)
}

// cancelled returns the error of a review whose context has ended.
func cancelled(ctx context.Context, r *review) *Error {
	cause := context.Cause(ctx)
	what := "it was cancelled"
	switch {
	case errors.Is(cause, ErrClosed):
		what = "the server is stopping"
	case cause != nil && !errors.Is(cause, context.Canceled):
		what = fmt.Sprintf("it was cancelled: %v", cause)
	}
	return &Error{Code: Cancelled, Review: r.task.name(), What: what, Err: cause}
}

// name returns the name of a review for people.
func (t *Task) name() string {
	switch {
	case t.Target != nil:
		return fmt.Sprintf("file '%s' (output '%s')", *t.Target, t.RunEach)
	case t.RunEach == "step":
		return "the whole step"
	}
	return fmt.Sprintf("'%s'", t.RunEach)
}

// Settings configures reviews. They are read again for each review, so that an edited config applies to
// reviews that have not started (DESIGN "Configuration").
type Settings struct {
	// Command is any reviewer: a program and its arguments. It reads the whole task from its standard input
	// and writes a verdict as JSON. If it is nil, and Claude is false, there is no external runner.
	Command []string
	// Program is the path of Command's program; "" means the one in PATH.
	Program string
	// Name is the name of Command in messages and verdicts; "" means its words.
	Name string
	// Argument passes the task as the last argument of Command instead of its standard input.
	Argument bool
	// Env has additional variables for Command, as KEY=value.
	Env []string
	// Answer returns the reviewer's answer, given what it wrote to its standard output. nil means all of
	// that.
	Answer func(stdout []byte) []byte
	// Ended is called whenever the reviewer's process has ended, with what it wrote to its standard output,
	// before its verdict counts. An error makes the review void. nil means no call.
	Ended func(stdout []byte) error
	// From says where the reviewer is set, such as a file. It is called if a review has no verdict. nil means
	// where it was set when the session began.
	From func() string
	// Allowed is called right before the reviewer starts; an error says why it must not start. nil allows it.
	Allowed func() error
	// Run runs the reviewer's process in the place of process.Run, such as contained; nil means process.Run.
	Run func(context.Context, process.Spec) (process.Result, error)
	// Secrets are the environment variables withheld from the reviewer.
	Secrets []string
	// Claude selects the claude command line (seed 000, 001.1.6) instead of Command.
	Claude bool
	// ClaudeCommand is the program that Claude runs; default "claude".
	ClaudeCommand string
	// Timeout limits one review; 0 means 120 s for up to five files, and 30 s more for each further file.
	Timeout time.Duration
	// MaxConcurrent is the number of concurrent reviews; less than 1 means 1.
	MaxConcurrent int
	// MaxInlineFiles is the maximum number of files that are inlined; if there are more, only paths are given
	// (seed 000, 001.1.7). 0 inlines none.
	MaxInlineFiles int
}

// With returns the settings with another reviewer, if one is given.
func (s Settings) With(r *Reviewer) Settings {
	if r != nil {
		s.Claude = r.Claude
		s.Command = r.Command
		s.Program = r.Program
		s.Allowed = r.Allowed
		s.From = r.From
		s.Name = r.Name
		s.Argument = r.Argument
		s.Env = r.Env
		s.Answer = r.Answer
		s.Ended = r.Ended
		s.Run = r.Run
	}
	return s
}

// External reports whether there is an external runner; otherwise steps get self-review.
func (s Settings) External() bool { return s.Claude || len(s.Command) > 0 }

// Reviewer returns the name of the reviewer: "claude", Name, or the command's words.
func (s Settings) Reviewer() string {
	if s.Claude {
		return "claude"
	}
	return cmp.Or(s.Name, words(s.Command))
}

// timeout returns the time limit for a review of n files.
func (s Settings) timeout(n int) time.Duration {
	if s.Timeout > 0 {
		return s.Timeout
	}
	return 120*time.Second + time.Duration(max(0, n-5))*30*time.Second
}

// Options configures a Gate.
type Options struct {
	// Root is the absolute path of the project root, where reviewers run.
	Root string
	// Logger gets an entry for each review that ends; nil discards it.
	Logger *slog.Logger
	// Settings is called before each review, by one goroutine at a time. While it blocks, no review starts,
	// but Run does not wait for it.
	Settings func() Settings
}

// queueLimit is how many reviews may wait. If none waits, a submission of any size is accepted.
const queueLimit = 1000

// grace is how long a reviewer may take to end after it was cancelled or has timed out, before it is killed.
const grace = time.Second

// The limits of a reviewer's output: a verdict is a few kilobytes, and claude does not print much more around
// it.
const (
	stdoutLimit = 4 << 20
	stderrLimit = process.DefaultStderrLimit
)

// words formats a command for a message, with quotes around words that need them.
func words(command []string) string {
	quoted := make([]string, len(command))
	for i, w := range command {
		quoted[i] = w
		if w == "" || strings.ContainsAny(w, " \t\n\r\"'\\") {
			quoted[i] = strconv.Quote(w)
		}
	}
	return jsontext.Clip(strings.Join(quoted, " "), 200)
}
