package gate

import (
	"cmp"
	"log/slog"
	"time"

	"deepwork/actor/process"
)

// Settings configures reviews. They are read again for each review, so that an edited config
// applies to reviews that have not started (DESIGN "Configuration").
type Settings struct {
	// Command is any reviewer: a program and its arguments, which reads the whole task from its
	// standard input and writes a verdict as JSON. If it is nil, and Claude is false, there is no
	// external runner.
	Command []string
	// Program is the path of Command's program; "" means the one in PATH.
	Program string
	// Name is what messages and verdicts call Command; "" means its words.
	Name string
	// Argument passes the task as the last argument of Command, not by its standard input.
	Argument bool
	// Env has variables that Command gets as well, as KEY=value.
	Env []string
	// Answer returns the reviewer's answer in what it wrote to its standard output. nil means all of that.
	Answer func(stdout []byte) []byte
	// Ended is called when the reviewer's process has ended, however it did, with what it wrote to its standard
	// output, before its verdict counts. Its error voids the review. nil means nothing.
	Ended func(stdout []byte) error
	// From says where the reviewer is set, such as a file: it is asked when a review has no verdict. nil means where
	// it was set when the session began.
	From func() string
	// Allowed is called right before the reviewer starts; its error says why it must not. nil allows
	// it.
	Allowed func() error
	// Secrets are the environment variables withheld from the reviewer.
	Secrets []string
	// Claude selects the claude command line (seed 000, 001.1.6) instead of Command.
	Claude bool
	// ClaudeCommand is the program that Claude runs; default "claude".
	ClaudeCommand string
	// Timeout bounds one review; 0 means 120 s for up to five files and 30 s more for each further
	// one.
	Timeout time.Duration
	// MaxConcurrent is the number of concurrent reviews; less than 1 means 1.
	MaxConcurrent int
	// MaxInlineFiles is the number of files up to which they are inlined; if there are more, only
	// paths are given (seed 000, 001.1.7). 0 inlines none.
	MaxInlineFiles int
}

// With returns the settings with another reviewer, if one is given.
func (s Settings) With(r *Reviewer) Settings {
	if r != nil {
		s.Claude, s.Command, s.Program, s.Allowed, s.From = r.Claude, r.Command, r.Program, r.Allowed, r.From
		s.Name, s.Argument, s.Env, s.Answer, s.Ended = r.Name, r.Argument, r.Env, r.Answer, r.Ended
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
	// Root is the project root, absolute: where reviewers run.
	Root string
	// Logger gets an entry for each review that ends; nil discards them.
	Logger *slog.Logger
	// Settings is called before each review, by one goroutine at a time. While it
	// blocks, no review starts; Run does not wait for it.
	Settings func() Settings
}

// queueLimit is the number of reviews that may wait. A submission that arrives when none waits is
// accepted regardless of its size.
const queueLimit = 1000

// grace is the time a reviewer has to end after it is cancelled or times out, before it is killed.
const grace = time.Second

// Bounds of a reviewer's output: a verdict is a few kilobytes, and what claude prints around it not
// much more.
const (
	stdoutLimit = 4 << 20
	stderrLimit = process.DefaultStderrLimit
)
