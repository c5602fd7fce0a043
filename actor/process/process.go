// Package process starts operating system commands. Each runs in a process group
// of its own (on Windows a job object) that is killed as a whole.
//
//   - [Run] feeds a command its input, waits for its end and returns its output.
//   - [Serve] starts a long-lived command that is spoken to over pipes.
//   - [Spawn] starts a command whose output is handled while it runs.
//   - [Contain] runs a command of which nothing is left afterwards.
//   - [Detach] starts a command that outlives this process.
//   - [EndGroup] ends the group of a command whose parent was killed.
package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// The defaults of a Spec.
const (
	DefaultStdoutLimit = 1 << 20         // bytes
	DefaultStderrLimit = 16 << 10        // bytes
	DefaultGrace       = 2 * time.Second // from SIGTERM to SIGKILL
)

// A Spec describes a command to run. The zero value of a field means its default.
type Spec struct {
	// Command is the program and its arguments; no shell is involved. A program without a slash is looked up
	// in PATH; a relative path with a slash is relative to Dir.
	Command []string
	// Dir is the working directory; "" is this process's own.
	Dir string
	// Env is the whole environment, in the form of os.Environ; the last value of a key counts. nil
	// means this process's own.
	Env []string
	// Stdin is the whole standard input. The child need not read all of it. It is not written to and must not change
	// before Run returns. nil is the null device.
	Stdin []byte
	// StdoutLimit is the number of bytes that the child may write to its standard output; one more
	// kills it (ErrTooMuchOutput). Default DefaultStdoutLimit.
	StdoutLimit int
	// Stdout gets the standard output in the place of Result.Stdout; an error of it kills the child.
	Stdout io.Writer
	// StderrLimit is the number of bytes kept from the end of standard error; more isn't an error. Default
	// DefaultStderrLimit.
	StderrLimit int
	// Grace is the time from SIGTERM, when the context ends, to SIGKILL. Default
	// DefaultGrace.
	Grace time.Duration
	// Descendants includes, on Linux, processes that have left the group for a session of their own, except
	// those started by Detach. This process then adopts and reaps every orphan, so it must have no other
	// child. On Windows, members may leave the job object if they ask to, as Detach does.
	Descendants bool
	// Tidy ends the child with SIGTERM instead of SIGKILL, on Linux, when this process is killed, so that it
	// can remove its lock files. It is only for programs that SIGTERM ends.
	Tidy bool
	// Files are more files that the child inherits, from number 3 on. They are closed once it was started, or could
	// not be.
	Files []*os.File

	detachedToo bool // with Descendants: include those started by Detach
	oneOutput   bool // standard error goes where standard output goes, in order
}

func (s *Spec) withDefaults() (Spec, error) {
	d := *s
	d.StdoutLimit = cmp.Or(max(d.StdoutLimit, 0), DefaultStdoutLimit)
	d.StderrLimit = cmp.Or(max(d.StderrLimit, 0), DefaultStderrLimit)
	d.Grace = cmp.Or(max(d.Grace, 0), DefaultGrace)
	if len(d.Command) == 0 || d.Command[0] == "" {
		return d, &Error{Kind: Start, ExitCode: -1, Err: errors.New("no program is named")}
	}
	return d, nil
}

// A Result is the result of a child that was started.
type Result struct {
	ExitCode int    // -1 if a signal ended it
	Signal   string // "SIGKILL" and the like, "" if it exited
	Stdout   []byte // at most Spec.StdoutLimit bytes
	Stderr   string // the last whole lines, at most Spec.StderrLimit bytes
	Left     bool   // see Child.Close
}

// Run starts the command, writes its input and waits until its whole process group is gone. When
// ctx ends, or the output exceeds its limit, the group is killed: SIGTERM and, Spec.Grace later,
// SIGKILL; excess output gets SIGKILL at once. SIGKILL is also sent after a normal exit, so that
// only descendants that left the group (setsid) survive. Run leaves no goroutine behind. Any end
// other than exit code 0 is an *Error, returned with the Result as far as it is known.
func Run(ctx context.Context, spec Spec) (Result, error) {
	spec, err := spec.withDefaults()
	if err != nil {
		return Result{ExitCode: -1}, err
	}
	if ctx.Err() != nil {
		return Result{ExitCode: -1}, ended(ctx, &spec, 0)
	}

	stdout, stderr := newCapture(spec.StdoutLimit, spec.Stdout), &tail{limit: spec.StderrLimit}
	c, err := Spawn(spec, stdout, stderr)
	if err != nil {
		return Result{ExitCode: -1}, err
	}

	var reason *Error // why it was killed; nil if it was not
	select {
	case <-c.Exited():
	case <-stdout.flooded:
	case <-ctx.Done():
		select {
		case <-c.Exited(): // it ended in time
		default:
			reason = ended(ctx, &spec, time.Since(c.started))
			c.stop(spec.Grace)
		}
	}

	left := c.Close()
	if reason == nil && stdout.failed != nil {
		reason = &Error{Kind: Start, Err: fmt.Errorf("its output cannot be written: %w", stdout.failed)}
	}
	if reason == nil && stdout.over {
		reason = &Error{Kind: TooMuchOutput, Err: ErrTooMuchOutput}
	}
	r := Result{
		ExitCode: c.code, Signal: c.signal, Stdout: stdout.data, Stderr: stderr.text(), Left: left,
	}
	if reason == nil && r.ExitCode == 0 && r.Signal == "" {
		return r, nil
	}

	e := c.failure(&spec, stderr)
	if reason != nil {
		e.Kind, e.Err = reason.Kind, reason.Err
	}
	if e.Tail == "" {
		e.Tail = Tail(string(lastBytes(r.Stdout, 4*tailSize)), tailSize)
	}
	return r, e
}

// avoided has the folders given to Avoid.
var avoided struct {
	sync.Mutex
	folders []string
}

// Avoid makes every later start of a program that is given by name only skip entries of PATH inside a folder,
// where somebody else may have put a program of that name. Call it at the start of a command: it applies to
// the whole process, and cannot be undone.
func Avoid(folder string) {
	avoided.Lock()
	defer avoided.Unlock()
	if !slices.Contains(avoided.folders, folder) {
		avoided.folders = append(slices.Clip(avoided.folders), folder)
	}
}

// Look returns the path of a program that is given by name only. It ignores entries of PATH that are
// relative, or inside one of these folders or Avoid's. The error is an *exec.Error.
func Look(program string, outside ...string) (string, error) {
	avoided.Lock()
	outside = append(outside, avoided.folders...)
	avoided.Unlock()
	unsafe := func(path string) bool {
		return slices.ContainsFunc(outside, func(folder string) bool { return Inside(folder, path) })
	}

	err := exec.ErrNotFound
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if !filepath.IsAbs(dir) || unsafe(dir) {
			continue
		}

		path, lerr := exec.LookPath(filepath.Join(dir, program))
		if lerr == nil && !unsafe(path) {
			return path, nil
		}
		if errors.Is(lerr, fs.ErrPermission) {
			err = fs.ErrPermission
		}
	}

	return "", &exec.Error{Name: program, Err: err}
}

// InShell returns a word, such as a path, a step's id or a branch name, in the form to type at a shell.
func InShell(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:+,=@%"
	switch {
	case strings.Trim(word, plain+string(filepath.Separator)) == "":
		return word
	case filepath.Separator == '\\': // on Windows, where file names have no quotation marks
		return `"` + word + `"`
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Bare reports whether a program is given by name only, without a path.
func Bare(program string) bool {
	return !strings.ContainsRune(program, '/') && !strings.ContainsRune(program, filepath.Separator)
}

// Inside reports whether a path is a folder or lies in it, before or after links are resolved.
func Inside(folder, path string) bool {
	for _, p := range []string{path, Resolved(path)} {
		for _, f := range []string{folder, Resolved(folder)} {
			if rel, err := filepath.Rel(f, p); err == nil && filepath.IsLocal(rel) {
				return true
			}
		}
	}
	return false
}

// Resolved returns a path with its links resolved, or just cleaned if that fails.
func Resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}

// A Kind is the reason why a run failed.
type Kind string

// The kinds of an Error.
const (
	NotFound      Kind = "not_found"       // the program does not exist
	Start         Kind = "start"           // it could not be started
	Exit          Kind = "exit"            // it exited with a nonzero code
	Signal        Kind = "signal"          // it was ended by a signal that we did not send
	Timeout       Kind = "timeout"         // the context's deadline passed
	Cancelled     Kind = "cancelled"       // the context was cancelled
	TooMuchOutput Kind = "too_much_output" // more than Spec.StdoutLimit
)

// ErrTooMuchOutput is in the chain of an Error of kind TooMuchOutput.
var ErrTooMuchOutput = errors.New("too much output")

// An Error is the reason why a run did not end with exit code 0. Whether it timed out or was
// cancelled is decided by its context, never by how the child then died.
type Error struct {
	Command  string        // the program, as the Spec names it
	Kind     Kind          // what happened
	ExitCode int           // -1 if unknown
	Signal   string        // such as "SIGSEGV", or ""
	Limit    int           // Spec.StdoutLimit in bytes
	After    time.Duration // how long the child ran
	Tail     string        // the last lines of its standard error, else of its output; at most 2,000 bytes
	Err      error         // the cause: the context's, the system's, ErrTooMuchOutput; may be nil
}

// Error names the program, what happened to it and its last lines.
func (e *Error) Error() string {
	what, after := fmt.Sprintf("it cannot be started: %v", e.Err), e.After.Round(time.Millisecond)
	switch e.Kind {
	case NotFound:
		what = fmt.Sprintf("there is no such program: %v", e.Err)
	case Exit:
		what = fmt.Sprintf("it ended with exit code %d after %v", e.ExitCode, after)
	case Signal:
		what = fmt.Sprintf("%s ended it after %v", e.Signal, after)
	case Timeout:
		what = fmt.Sprintf("it did not end in time and was killed after %v", after)
	case Cancelled:
		what = fmt.Sprintf("cancelled after %v: %v", after, e.Err)
	case TooMuchOutput:
		what = fmt.Sprintf("it wrote more than %d bytes and was killed", e.Limit)
	}
	if e.Tail != "" {
		what += "; its last lines:\n" + e.Tail
	}
	return fmt.Sprintf("running %q: %s", e.Command, what)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ended distinguishes a timeout from a cancellation.
func ended(ctx context.Context, spec *Spec, after time.Duration) *Error {
	e := &Error{Command: spec.Command[0], Kind: Cancelled, ExitCode: -1, After: after, Err: context.Cause(ctx)}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		e.Kind = Timeout
	}
	return e
}

// startError describes why a start failed, without repeating what the message already says.
func startError(spec *Spec, err error) *Error {
	e := &Error{Command: spec.Command[0], Kind: Start, ExitCode: -1, Err: err}
	if lookup, ok := errors.AsType[*exec.Error](err); ok {
		e.Err = lookup.Err
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			e.Kind = NotFound
		}
		return e
	}

	path, ok := errors.AsType[*fs.PathError](err)
	if !ok {
		return e
	}
	switch {
	case path.Path == spec.Dir && spec.Dir != "":
		e.Err = fmt.Errorf("working directory: %w", err)
	case errors.Is(err, fs.ErrNotExist) && exists(spec):
		e.Err = fmt.Errorf("it is there, but what its first line names to run it is not: %w", path.Err)
	case errors.Is(err, fs.ErrNotExist):
		e.Kind, e.Err = NotFound, path.Err
	case errors.Is(err, fs.ErrPermission):
		e.Err = fmt.Errorf("it is not an executable file: %w", path.Err)
	default:
		e.Err = path.Err
	}

	return e
}

// exists reports whether the Spec's program exists, in PATH or at its path.
func exists(spec *Spec) bool {
	name := spec.Command[0]
	if !filepath.IsAbs(name) {
		name = filepath.Join(spec.Dir, name)
	}
	_, err := os.Stat(name)
	return err == nil || filepath.Base(name) == spec.Command[0]
}

// With returns a copy of an environment with changes: NAME=value sets a variable, and NAME alone
// removes it.
func With(env []string, changes ...string) []string {
	var gone, more []string
	for _, c := range changes {
		if strings.Contains(c, "=") {
			more = append(more, c)
		} else {
			gone = append(gone, c)
		}
	}
	return append(Without(env, gone...), more...)
}

// Without returns a copy of an environment without some variables, whatever their case.
func Without(env []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
	})
}
