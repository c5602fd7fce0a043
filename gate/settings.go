package gate

import (
	"log/slog"
	"time"

	"deepwork/actor/process"
)

// Settings say how reviews are run. They are read again for each review, so that
// an edited config takes effect for what has not been started (DESIGN
// "Configuration").
type Settings struct {
	// Command is any reviewer: a program and its arguments, which gets all of the
	// task on its standard input and answers with a verdict as JSON. With nil, and
	// Claude false, there is no external runner.
	Command []string
	// Program is the path of Command's program; "" finds it in PATH.
	Program string
	// Secrets are the names of environment variables that the reviewer does not get.
	Secrets []string
	// Claude is the claude command line (seed 000, 001.1.6); it wins over Command.
	Claude bool
	// ClaudeCommand is the program that Claude runs; default "claude".
	ClaudeCommand string
	// Timeout is the time one review may take; 0 is 120 s for up to five files and
	// 30 s more for each further one.
	Timeout time.Duration
	// MaxConcurrent is how many reviews run at once; less than 1 is 1.
	MaxConcurrent int
	// MaxInlineFiles is up to how many files a reviewer is shown; of more it is
	// given the paths (seed 000, 001.1.7). 0 shows none.
	MaxInlineFiles int
}

// External reports whether there is an external runner; otherwise steps get self-review.
func (s Settings) External() bool { return s.Claude || len(s.Command) > 0 }

// Reviewer returns the name of the reviewer: "claude", or the command's words.
func (s Settings) Reviewer() string {
	if s.Claude {
		return "claude"
	}
	return words(s.Command)
}

// timeout is the time for a review of n files.
func (s Settings) timeout(n int) time.Duration {
	if s.Timeout > 0 {
		return s.Timeout
	}
	return 120*time.Second + time.Duration(max(0, n-5))*30*time.Second
}

// Options configure a Gate.
type Options struct {
	// Root is the project root, absolute: where reviewers run.
	Root string
	// Logger gets an entry for each review that ends; nil discards.
	Logger *slog.Logger
	// Settings is called before each review, by one goroutine at a time. While it
	// blocks, no review starts; Run does not wait for it.
	Settings func() Settings
}

// queueLimit is how many reviews may wait. A submission that comes when none waits
// is accepted regardless of its size.
const queueLimit = 1000

// grace is the time a reviewer that is cancelled or too late has to end before it is
// killed.
const grace = time.Second

// What a reviewer may write: a verdict is a few kilobytes, and what claude prints
// around it not much more.
const (
	stdoutLimit = 4 << 20
	stderrLimit = process.DefaultStderrLimit
)
