package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"deepwork/actor/process"
)

const (
	// readBlock is how much of a program's output is read at once.
	readBlock = 64 << 10
	// drainFor bounds the wait for what is still in the pipes once the agent and
	// its descendants are dead; only what got away can hold them open.
	drainFor = 2 * time.Second
	// defaultGrace is that of a stop whose request could not be recorded.
	defaultGrace = 5 * time.Second
	// termLook is how often a group that was asked to end is looked at.
	termLook = 10 * time.Millisecond
)

// An agent is a program that has been started. It belongs to the goroutine that
// started it; those that serve its pipes are in wg.
type agent struct {
	cmd   *exec.Cmd
	group *group
	log   *logFile

	pipes []*os.File // our ends
	wg    sync.WaitGroup

	mu    sync.Mutex
	final final // guarded by mu
}

// startAgent starts what a Spec says, or says why it cannot.
func startAgent(spec *specRecord, log *logFile) (a *agent, why string) {
	if info, err := os.Stat(spec.Work); err != nil {
		return nil, fmt.Sprintf("its working directory is not there: %v", err)
	} else if !info.IsDir() {
		return nil, fmt.Sprintf("its working directory %s is not a directory", spec.Work)
	}
	for _, kv := range spec.Env {
		// The program is looked up where it itself would look others up.
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			os.Setenv("PATH", path)
		}
	}
	a = &agent{log: log, cmd: exec.Command(spec.Command[0], spec.Command[1:]...)}
	a.cmd.Dir = spec.Work
	a.cmd.Env = append(append(append(os.Environ(), "PWD="+spec.Work), spec.Env...), markEnv+"="+spec.Mark)
	if err := a.start(spec.Stdin); err != nil {
		return nil, whyNot(spec, err)
	}
	return a, ""
}

// start starts the program and the goroutines that serve its pipes.
func (a *agent) start(stdin []byte) (err error) {
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
		if err != nil {
			a.closePipes()
		}
	}()
	pipe := func(input bool) (ours, child *os.File, err error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		if ours, child = r, w; input {
			ours, child = w, r
		}
		a.pipes, theirs = append(a.pipes, ours), append(theirs, child)
		return ours, child, nil
	}
	out, f, err := pipe(false)
	if err != nil {
		return err
	}
	a.cmd.Stdout = f
	errs, f, err := pipe(false)
	if err != nil {
		return err
	}
	a.cmd.Stderr = f
	var in *os.File
	if len(stdin) > 0 {
		if in, f, err = pipe(true); err != nil {
			return err
		}
		a.cmd.Stdin = f
	}
	if a.group, err = startGroup(a.cmd); err != nil {
		return err
	}
	if in != nil {
		a.wg.Go(func() {
			// An agent that reads less than there is, or exits early, is its own affair.
			in.Write(stdin)
			in.Close()
		})
	}
	a.wg.Go(func() { a.copy(Stdout, out) })
	a.wg.Go(func() { a.copy(Stderr, errs) })
	return nil
}

// copy writes what the agent says to the log, no faster than the disk takes it:
// an agent that is faster waits in its own writes.
func (a *agent) copy(stream string, f *os.File) {
	s := newSplitter(func(lines [][]byte) {
		a.log.write(stream, lines...)
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, line := range lines {
			a.final.line(stream, line)
		}
	})
	for buf := make([]byte, readBlock); ; {
		n, err := f.Read(buf)
		s.Write(buf[:n])
		if err != nil {
			s.end()
			return
		}
	}
}

// watch waits for the end of the agent, or brings it about when somebody asks
// for it or when its start could not be recorded, and leaves nothing of it behind.
func (a *agent) watch(dir string, asked <-chan os.Signal, recorded error) Exit {
	var e Exit
	look := time.NewTicker(stopLook)
	defer look.Stop()
	var kill, empty <-chan time.Time // running once the agent was asked to end
	patience := time.Duration(-1)    // from then on; -1: it was not asked
	begin := func(d time.Duration) {
		patience = d
		kill = time.After(d)
	}
	ask := func() {
		d, found := askedToStop(dir)
		if !found {
			d = defaultGrace
		}
		if patience >= 0 && d >= patience {
			return
		}
		begin(d)
		e.Stopped = true
		a.group.terminate()
	}
	if recorded != nil {
		a.log.system("its start could not be recorded, and so it is ended: %v", recorded)
		begin(0)
	}
	ended := a.group.ended
	for {
		select {
		case end := <-ended:
			e.Code, e.Signal, e.EndedAt = end.code, end.signal, time.Now().UTC()
			ended = nil
			if kill == nil || !a.group.alive() {
				return a.finish(e)
			}
			// Its children have the rest of the grace period.
			ticker := time.NewTicker(termLook)
			defer ticker.Stop()
			empty = ticker.C
		case <-empty:
			if !a.group.alive() {
				return a.finish(e)
			}
		case <-kill:
			if ended == nil {
				return a.finish(e)
			}
			a.group.kill() // its end is told like any other
			kill = nil
		case s := <-asked:
			if s == stopSignal {
				ask()
			}
		case <-look.C:
			if _, found := askedToStop(dir); found {
				ask()
			}
		}
	}
}

// finish ends what the agent has left, and reads what it has said.
func (a *agent) finish(e Exit) Exit {
	a.group.close()
	a.drain()
	a.mu.Lock()
	defer a.mu.Unlock()
	e.FinalMessage = a.final.message()
	return e
}

// drain waits until the pipes are read to their end, or closes them.
func (a *agent) drain() {
	done := make(chan struct{})
	var waiter sync.WaitGroup
	waiter.Go(func() { a.wg.Wait(); close(done) })
	if len(a.pipes) == 3 {
		a.pipes[2].Close() // nobody reads any more; frees the goroutine that feeds
	}
	process.Drain(done, drainFor, a.pipes[:min(2, len(a.pipes))]...)
	a.closePipes()
	waiter.Wait()
}

func (a *agent) closePipes() {
	for _, f := range a.pipes {
		f.Close() // twice is harmless
	}
}

// whyNot says in words for an agent why its program could not be started, and
// what to do.
func whyNot(spec *specRecord, err error) string {
	name := spec.Command[0]
	program := name
	if filepath.Base(name) != name && !filepath.IsAbs(name) {
		program = filepath.Join(spec.Work, name)
	}
	_, statErr := os.Stat(program)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Sprintf("the program %q is not in PATH; install it, or name another command for this executor in the config", name)
	case errors.Is(err, fs.ErrNotExist) && statErr == nil:
		return fmt.Sprintf("the program %q is there, but what its first line names to run it is not", name)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("there is no program %q; name one that is there in the config", program)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("the program %q is not an executable file; make it one (chmod +x)", name)
	}
	return fmt.Sprintf("the program %q cannot be started: %v", name, err)
}
