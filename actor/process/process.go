// Package process runs an operating system command as a supervised child: in a
// process group of its own that is killed whole, with its output bounded, its
// standard input fed and nothing of it left when [Run] returns.
//
// The package knows nothing of any domain and imports nothing of the project.
package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// The defaults of a Spec.
const (
	DefaultStdoutLimit = 1 << 20         // bytes
	DefaultStderrLimit = 16 << 10        // bytes
	DefaultGrace       = 2 * time.Second // from SIGTERM to SIGKILL
)

const (
	// drainFor bounds the wait for what is still in the pipes once the group is
	// dead: whoever left the group (setsid) may hold them open for ever.
	drainFor = time.Second
	// goneFor bounds the wait for killed descendants to be gone: where nothing
	// reaps orphans they stay as zombies.
	goneFor = 250 * time.Millisecond
)

// A Spec says what to run. The zero value of a field is its default.
type Spec struct {
	// Command is the program and its arguments; no shell is involved. A program
	// without a slash is looked up in PATH; a relative one with a slash is
	// relative to Dir.
	Command []string
	// Dir is the working directory; "" is this process's own.
	Dir string
	// Env is the whole environment, as os.Environ gives it, the last value of a
	// key counting; nil is this process's own.
	Env []string
	// Stdin is what the child reads, then the end of the file. A child that does
	// not read it, or not all, is no error. It is not written to and must not
	// change before Run returns. nil is the null device.
	Stdin []byte
	// StdoutLimit is how many bytes the child may write to its standard output:
	// one more kills it (ErrTooMuchOutput). Default DefaultStdoutLimit.
	StdoutLimit int
	// StderrLimit is how many of the last bytes of standard error are kept; more
	// is no error. Default DefaultStderrLimit.
	StderrLimit int
	// Grace is the time from SIGTERM, when the context ends, to SIGKILL. Default
	// DefaultGrace.
	Grace time.Duration
}

// A Result is what came of a child that was started.
type Result struct {
	ExitCode int           // -1 where a signal ended it
	Signal   string        // "SIGKILL" and the like, "" where it exited
	Stdout   []byte        // at most Spec.StdoutLimit bytes
	Stderr   string        // the last whole lines, at most Spec.StderrLimit bytes
	Started  time.Time     // when it was started
	Duration time.Duration // until the child itself had ended
}

// Run starts the command, feeds it and waits until it and all that it started in
// its process group is gone. When ctx ends, or too much is written, the group is
// killed: SIGTERM and, Spec.Grace later, SIGKILL; a flood gets SIGKILL at once.
// SIGKILL is also sent after a normal exit, so that descendants neither survive
// their parent nor hold its pipes open. Only what left the group (setsid) can
// outlive it, and does not delay Run by more than a second.
//
// Run blocks for that long and leaves no goroutine behind. Whatever is not an
// exit with code 0 is an *Error, with the Result beside it as far as there is
// one.
func Run(ctx context.Context, spec Spec) (Result, error) {
	if spec.StdoutLimit <= 0 {
		spec.StdoutLimit = DefaultStdoutLimit
	}
	if spec.StderrLimit <= 0 {
		spec.StderrLimit = DefaultStderrLimit
	}
	if spec.Grace <= 0 {
		spec.Grace = DefaultGrace
	}
	if len(spec.Command) == 0 || spec.Command[0] == "" {
		return Result{ExitCode: -1}, &Error{Kind: Start, ExitCode: -1, Err: errors.New("no program is named")}
	}
	if ctx.Err() != nil {
		return Result{ExitCode: -1}, ended(ctx, &spec, 0)
	}
	// Where the child is to end with this process, even if that is killed, the
	// system takes the thread that started it for the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, err := start(&spec)
	if err != nil {
		return Result{ExitCode: -1}, err
	}
	return c.supervise(ctx)
}

// A child is one that has been started. All its goroutines are in wg.
type child struct {
	spec    *Spec
	cmd     *exec.Cmd
	group   *group
	started time.Time

	stdout *capture
	stderr *tail
	pipes  []*os.File     // our ends
	wg     sync.WaitGroup // feeds and reads the pipes
	exited chan struct{}  // closed by the waiter once the child is reaped
	ended  time.Time      // valid once exited is closed
}

// start starts the child and the goroutines that serve its pipes.
func start(spec *Spec) (*child, error) {
	if spec.Dir != "" {
		// With process attributes set, a missing directory would be reported as a
		// missing program.
		if info, err := os.Stat(spec.Dir); err != nil {
			return nil, startError(spec, err)
		} else if !info.IsDir() {
			return nil, startError(spec, &os.PathError{Op: "chdir", Path: spec.Dir, Err: errors.New("not a directory")})
		}
	}
	c := &child{
		spec:   spec,
		cmd:    exec.Command(spec.Command[0], spec.Command[1:]...),
		stdout: newCapture(spec.StdoutLimit),
		stderr: newTail(spec.StderrLimit),
		exited: make(chan struct{}),
	}
	c.cmd.Dir, c.cmd.Env = spec.Dir, spec.Env
	isolate(c.cmd)

	// The pipes are ours, not exec's, so that Wait waits for the child alone: the
	// group is to be killed as soon as its leader is gone, whoever holds them.
	var theirs []*os.File
	pipe := func(input bool) (ours, child *os.File, err error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		if ours, child = r, w; input {
			ours, child = w, r
		}
		c.pipes, theirs = append(c.pipes, ours), append(theirs, child)
		return ours, child, nil
	}
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	var in, out, errs *os.File
	if err := func() (err error) {
		var f *os.File
		if spec.Stdin != nil {
			if in, f, err = pipe(true); err != nil {
				return err
			}
			c.cmd.Stdin = f
		}
		if out, f, err = pipe(false); err != nil {
			return err
		}
		c.cmd.Stdout = f
		if errs, f, err = pipe(false); err != nil {
			return err
		}
		c.cmd.Stderr = f
		c.started = time.Now()
		if err := c.cmd.Start(); err != nil {
			return err
		}
		if c.group, err = adopt(c.cmd.Process); err != nil {
			c.cmd.Process.Kill()
			c.cmd.Wait()
		}
		return err
	}(); err != nil {
		c.closePipes()
		return nil, startError(spec, err)
	}

	if in != nil {
		c.wg.Go(func() {
			// A child that reads less than there is, or exits early, is its own affair.
			in.Write(spec.Stdin)
			in.Close()
		})
	}
	c.wg.Go(func() { c.stdout.readFrom(out) })
	c.wg.Go(func() { c.stderr.readFrom(errs) })
	return c, nil
}

// supervise waits for the end, or brings it about.
func (c *child) supervise(ctx context.Context) (Result, error) {
	var waiter sync.WaitGroup
	waiter.Go(func() {
		c.cmd.Wait() // what it says is in ProcessState too
		c.ended = time.Now()
		close(c.exited)
	})

	var ourDoing *Error // why it was killed; nil: it ended by itself
	select {
	case <-c.exited:
	case <-c.stdout.flooded:
		ourDoing = &Error{Kind: TooMuchOutput, Err: ErrTooMuchOutput}
	case <-ctx.Done():
		select {
		case <-c.exited: // it was in time
		default:
			ourDoing = ended(ctx, c.spec, time.Since(c.started))
			c.terminate()
		}
	}
	// The leader may have been reaped just now: its number is not given out again
	// before the system has gone round all others, so this reaches nobody else.
	survivors := c.group.kill()
	waiter.Wait()
	if survivors {
		c.group.waitGone(goneFor)
	}
	c.drain()
	c.group.close()
	if ourDoing == nil && c.stdout.over {
		// Both happened at once, or the child wrote its last words and was gone.
		ourDoing = &Error{Kind: TooMuchOutput, Err: ErrTooMuchOutput}
	}
	return c.result(ourDoing)
}

// terminate asks the group to end and gives it the grace period to do so. It
// returns early once nothing of the group is left.
func (c *child) terminate() {
	if err := c.group.terminate(); err != nil {
		return
	}
	grace := time.NewTimer(c.spec.Grace)
	defer grace.Stop()
	select {
	case <-c.exited:
	case <-grace.C:
		return
	}
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for c.group.alive() {
		select {
		case <-look.C:
		case <-grace.C:
			return
		}
	}
}

// drain waits until the pipes are read to their end, or closes them.
func (c *child) drain() {
	done := make(chan struct{})
	var waiter sync.WaitGroup
	waiter.Go(func() { c.wg.Wait(); close(done) })
	read := c.pipes
	if len(c.pipes) == 3 {
		c.pipes[0].Close() // nobody reads any more; frees the goroutine that feeds
		read = c.pipes[1:]
	}
	Drain(done, drainFor, read...)
	c.closePipes()
	waiter.Wait()
}

func (c *child) closePipes() {
	for _, f := range c.pipes {
		f.Close() // twice is harmless
	}
}

// result puts together what is known, and judges it.
func (c *child) result(ourDoing *Error) (Result, error) {
	r := Result{
		ExitCode: c.cmd.ProcessState.ExitCode(),
		Signal:   signalName(c.cmd.ProcessState),
		Stdout:   c.stdout.data,
		Stderr:   c.stderr.text(),
		Started:  c.started,
		Duration: c.ended.Sub(c.started),
	}
	e := ourDoing
	switch {
	case e != nil:
	case r.Signal != "":
		e = &Error{Kind: Signal}
	case r.ExitCode != 0:
		e = &Error{Kind: Exit}
	default:
		return r, nil
	}
	e.Command, e.ExitCode, e.Signal = c.spec.Command[0], r.ExitCode, r.Signal
	e.Limit, e.After = c.spec.StdoutLimit, r.Duration
	if e.Tail = Tail(r.Stderr, tailSize); e.Tail == "" {
		e.Tail = Tail(string(lastBytes(r.Stdout, 4*tailSize)), tailSize)
	}
	return r, e
}
