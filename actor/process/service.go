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
)

// A Service is a long-lived child that is spoken to over its standard input and
// output, in a process group of its own. Its methods may be called from any
// goroutine.
type Service struct {
	// Stdin is our end of the child's standard input. Stop closes it.
	Stdin *os.File
	// Stdout is our end of the child's standard output. It ends when the child and
	// all that holds the pipe is gone, at the latest a second after the child.
	Stdout io.ReadCloser

	spec    Spec
	cmd     *exec.Cmd
	group   *group
	started time.Time
	out     *watched
	errs    *os.File
	heard   *tail
	exited  chan struct{} // closed once the child is reaped and its group killed
	done    chan struct{} // closed once nothing of it is left
	err     error         // valid once done is closed

	killing sync.Mutex // so that a group whose leader is reaped is not sent signals
	reaped  bool       // under killing
}

// Serve starts the command and returns when it runs. listen, which may be nil,
// is called with each line of its standard error, cut after 4,000 bytes, on a
// goroutine of the Service's own, and not any more once Done is closed. Of the
// Spec, Stdin and StdoutLimit mean nothing here. The error is an *Error.
//
// The child ends when it wants to, or by Stop; whoever serves one is to stop it.
// When it ends, so does its group. On Linux it also ends when this process is
// killed; elsewhere it then sees the end of its standard input.
func Serve(spec Spec, listen func(line string)) (*Service, error) {
	if spec.Grace <= 0 {
		spec.Grace = DefaultGrace
	}
	if spec.StderrLimit <= 0 {
		spec.StderrLimit = DefaultStderrLimit
	}
	if len(spec.Command) == 0 || spec.Command[0] == "" {
		return nil, &Error{Kind: Start, ExitCode: -1, Err: errors.New("no program is named")}
	}
	s := &Service{
		spec: spec, heard: newTail(spec.StderrLimit),
		exited: make(chan struct{}), done: make(chan struct{}),
	}
	begun := make(chan error, 1)
	go s.own(begun, listen)
	if err := <-begun; err != nil {
		return nil, err
	}
	return s, nil
}

// Done is closed when the child has ended and nothing of its group is left.
func (s *Service) Done() <-chan struct{} { return s.done }

// Err says, once Done is closed, how the child ended: an *Error with its last
// words, or nil for an exit with code 0. Before, it is nil.
func (s *Service) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Stop ends the child as MCP asks it of those who start servers: its standard
// input is closed; Spec.Grace later it gets SIGTERM, and Spec.Grace after that
// its group gets SIGKILL. When ctx ends, SIGKILL comes at once. Stop returns when
// Done is closed, a few seconds after the last of these at most. It may be
// called again, and by several at once.
func (s *Service) Stop(ctx context.Context) {
	s.Stdin.Close()
	if !s.wait(ctx) {
		s.signal((*group).terminate)
		if !s.wait(ctx) {
			s.signal(func(g *group) error { g.kill(); return nil })
		}
	}
	<-s.done
}

// wait waits for the grace period; false: the child still runs.
func (s *Service) wait(ctx context.Context) bool {
	grace := time.NewTimer(s.spec.Grace)
	defer grace.Stop()
	select {
	case <-s.exited:
		return true
	case <-ctx.Done():
	case <-grace.C:
	}
	return false
}

// signal sends something to the group, unless its leader is gone: then own has
// killed the group, and its number may be another's.
func (s *Service) signal(send func(*group) error) {
	s.killing.Lock()
	defer s.killing.Unlock()
	if !s.reaped {
		send(s.group)
	}
}

// own starts the child and stays with it to its end, on the one thread that the
// system takes for its parent.
func (s *Service) own(begun chan<- error, listen func(string)) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := s.begin(); err != nil {
		begun <- err
		return
	}
	begun <- nil
	var reader sync.WaitGroup
	heard := make(chan struct{})
	reader.Go(func() { s.heard.follow(s.errs, listen); close(heard) })

	s.cmd.Wait() // what it says is in ProcessState too
	after := time.Since(s.started)
	s.killing.Lock()
	s.reaped = true
	// The number of a leader that was reaped just now is not given out again
	// before the system has gone round all others.
	survivors := s.group.kill()
	s.killing.Unlock()
	close(s.exited)
	if survivors {
		s.group.waitGone(goneFor)
	}
	// Whoever left the group may hold the pipes open for ever.
	Drain(heard, drainFor, s.errs)
	s.errs.Close()
	reader.Wait()
	Drain(s.out.over, drainFor, s.out.file)
	s.out.file.Close()
	s.Stdin.Close()
	s.group.close()
	s.err = s.judge(after)
	close(s.done)
}

// begin starts the child with three pipes.
func (s *Service) begin() error {
	if s.spec.Dir != "" {
		if info, err := os.Stat(s.spec.Dir); err != nil {
			return startError(&s.spec, err)
		} else if !info.IsDir() {
			return startError(&s.spec, &os.PathError{Op: "chdir", Path: s.spec.Dir, Err: errors.New("not a directory")})
		}
	}
	s.cmd = exec.Command(s.spec.Command[0], s.spec.Command[1:]...)
	s.cmd.Dir, s.cmd.Env = s.spec.Dir, s.spec.Env
	isolate(s.cmd)
	var all [6]*os.File
	for i := 0; i < len(all); i += 2 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(all[:]...)
			return startError(&s.spec, err)
		}
		all[i], all[i+1] = r, w
	}
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = all[0], all[3], all[5]
	s.started = time.Now()
	err := s.cmd.Start()
	closeAll(all[0], all[3], all[5])
	if err == nil {
		if s.group, err = adopt(s.cmd.Process); err != nil {
			s.cmd.Process.Kill()
			s.cmd.Wait()
		}
	}
	if err != nil {
		closeAll(all[1], all[2], all[4])
		return startError(&s.spec, err)
	}
	s.Stdin, s.errs = all[1], all[4]
	s.out = &watched{file: all[2], over: make(chan struct{})}
	s.Stdout = s.out
	return nil
}

// judge says how the child ended.
func (s *Service) judge(after time.Duration) error {
	e := &Error{
		Kind: Exit, Command: s.spec.Command[0], After: after,
		ExitCode: s.cmd.ProcessState.ExitCode(), Signal: signalName(s.cmd.ProcessState),
		Tail: Tail(s.heard.text(), tailSize),
	}
	switch {
	case e.Signal != "":
		e.Kind = Signal
	case e.ExitCode == 0:
		return nil
	}
	return e
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}
