package process

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"deepwork/actor/wait"
)

const (
	// drainFor limits the wait for output left in the pipes once the group is dead: a process that has left
	// the group may hold them open forever.
	drainFor = 2 * time.Second
	// goneFor limits the wait until killed descendants are gone: if nothing reaps orphans, they stay as
	// zombies.
	goneFor = 250 * time.Millisecond
)

// A Child is a command started by Spawn. The caller waits for Exited and then calls Close, or calls
// Close to kill it.
type Child struct {
	cmd     *exec.Cmd
	group   *group
	pipes   [3]*os.File    // our ends of stdin, stdout and stderr; nil if unused
	readers sync.WaitGroup // the readers of the pipes, and the writer of the input
	owner   sync.WaitGroup // the goroutine that starts and reaps the command
	exited  chan struct{}  // closed once the command itself is reaped
	abandon func()         // called when the pipes are closed; may be nil

	started, ended time.Time // ended, code and signal are valid once exited is closed
	code           int
	signal         string

	mu     sync.Mutex // held while the group is sent a signal
	closed bool       // guarded by mu: the group is gone, and its number may be reused
}

// Spawn starts a command and returns when it runs. Its output is passed to stdout and stderr, each on its own
// goroutine. The command waits while they block, and an error from them ends the reading. StdoutLimit,
// StderrLimit and Grace of the Spec have no effect. On Linux the command, but not its descendants, ends when
// this process is killed; elsewhere its pipes are closed.
func Spawn(spec Spec, stdout, stderr io.Writer) (*Child, error) {
	c, err := start(spec, spec.Stdin != nil)
	if err != nil {
		return nil, startError(&spec, err)
	}

	if in := c.pipes[0]; in != nil {
		c.readers.Go(func() {
			in.Write(spec.Stdin) // a child may read only part of it
			in.Close()
		})
	}

	c.read(c.pipes[1], stdout)
	if !spec.oneOutput {
		c.read(c.pipes[2], stderr)
	}
	return c, nil
}

func (c *Child) read(f *os.File, w io.Writer) {
	c.readers.Go(func() { io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{f}, make([]byte, 64<<10)) })
}

// start starts a command with pipes that nobody reads yet.
func start(spec Spec, input bool) (*Child, error) {
	defer closeAll(spec.Files)
	if spec.Dir != "" {
		// With process attributes set, a missing directory would be reported as a missing program.
		if info, err := os.Stat(spec.Dir); err != nil {
			return nil, err
		} else if !info.IsDir() {
			return nil, &os.PathError{Op: "chdir", Path: spec.Dir, Err: errors.New("not a directory")}
		}
	}

	program := spec.Command[0]
	if Bare(program) {
		var err error
		if program, err = Look(program); err != nil {
			return nil, err
		}
	}
	c := &Child{
		cmd:    exec.Command(program, spec.Command[1:]...),
		group:  &group{all: spec.Descendants, detachedToo: spec.detachedToo, tidy: spec.Tidy},
		exited: make(chan struct{}),
	}
	c.cmd.Args[0] = spec.Command[0]
	c.cmd.Dir, c.cmd.Env, c.cmd.ExtraFiles = spec.Dir, spec.Env, spec.Files
	theirs, err := c.makePipes(input, spec.oneOutput)
	if err == nil {
		begun := make(chan error, 1)
		c.owner.Go(func() { c.runOnThread(begun) })
		err = <-begun
	}

	closeAll(theirs[:])
	if err != nil {
		closeAll(c.pipes[:])
		return nil, err
	}

	return c, nil
}

// makePipes creates the pipes. They belong to us, not to exec, so that the command's end is noticed even if
// descendants hold them open.
func (c *Child) makePipes(input, oneOutput bool) (theirs [3]*os.File, err error) {
	for i := range c.pipes {
		if i == 0 && !input {
			continue
		}
		if i == 2 && oneOutput {
			theirs[2] = theirs[1]
			continue
		}

		r, w, err := os.Pipe()
		if err != nil {
			return theirs, err
		}
		c.pipes[i], theirs[i] = r, w
		if i == 0 {
			c.pipes[i], theirs[i] = w, r
		}
	}
	if input {
		c.cmd.Stdin = theirs[0]
	}
	c.cmd.Stdout, c.cmd.Stderr = theirs[1], theirs[2]
	return theirs, nil
}

// runOnThread starts the command and reaps it, all on one thread: the system regards the thread that starts a
// child as its parent, and ends the child with that thread.
func (c *Child) runOnThread(begun chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c.started = time.Now()
	err := c.group.start(c.cmd)

	begun <- err
	if err != nil {
		return
	}

	c.code, c.signal = c.group.wait(c.cmd)
	c.ended = time.Now()
	close(c.exited)
}

// PID returns the process id of the command.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Exited is closed when the command itself has ended. Its descendants may still run.
func (c *Child) Exited() <-chan struct{} { return c.exited }

// Exit returns the exit code, or -1 and the name of the signal that ended the
// command, such as SIGKILL. It is valid once Exited is closed.
func (c *Child) Exit() (code int, signal string) { return c.code, c.signal }

// Terminate asks the group to end: SIGTERM, or a break on Windows. It returns false if it cannot.
func (c *Child) Terminate() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closed && c.group.terminate() == nil
}

// Kill kills the group, and reports whether any process was left to kill.
func (c *Child) Kill() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closed && c.group.kill()
}

// Alive reports whether any process of the group is alive.
func (c *Child) Alive() bool {
	select {
	case <-c.exited:
		return c.group.alive()
	default:
		return true
	}
}

// stop asks the group to end, and waits until it is gone, but no longer than grace.
func (c *Child) stop(grace time.Duration) {
	if !c.Terminate() {
		return
	}

	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	select {
	case <-c.exited:
		c.waitGone(ctx)
	case <-ctx.Done():
	}
}

// waitGone waits until the group is gone or ctx ends.
func (c *Child) waitGone(ctx context.Context) {
	for pause := (wait.Backoff{Min: time.Millisecond, Max: 20 * time.Millisecond}); c.Alive() &&
		pause.Wait(ctx) == nil; {
	}
}

// Close kills what is left of the group and waits until the command is reaped and its output read. Processes
// that have left the group may survive; they delay it by at most two seconds. It reports whether something is
// known to be left: a process that does not end, or one outside the group that holds the output open. It must
// be called only once.
func (c *Child) Close() (left bool) {
	survivors := c.Kill()
	c.owner.Wait()
	c.mu.Lock()
	// The number of a leader that was just reaped is not reused before the system has used all others, so the
	// kill cannot reach another process.
	c.closed = true
	c.mu.Unlock()

	left = c.group.endDescendants()
	if survivors {
		ctx, cancel := context.WithTimeout(context.Background(), goneFor)
		c.waitGone(ctx)
		cancel()
	}

	if c.pipes[0] != nil {
		c.pipes[0].Close() // ends the goroutine that writes the input
	}

	read := make(chan struct{}) // closed when all output is read
	c.owner.Go(func() {
		c.readers.Wait()
		close(read)
	})
	select {
	case <-read:
	case <-time.After(drainFor):
		left = true
	}

	closeAll(c.pipes[:])
	if c.abandon != nil {
		c.abandon()
	}

	c.owner.Wait()
	c.group.close()
	return left
}

// failure describes the end of a command that did not exit with code 0.
func (c *Child) failure(spec *Spec, stderr *tail) *Error {
	e := &Error{
		Command: spec.Command[0], Kind: Exit, ExitCode: c.code, Signal: c.signal, Limit: spec.StdoutLimit,
		After: c.ended.Sub(c.started), Tail: Tail(stderr.text(), tailSize),
	}
	if c.signal != "" {
		e.Kind = Signal
	}
	return e
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close() // closing twice is harmless
		}
	}
}
