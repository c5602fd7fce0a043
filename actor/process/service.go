package process

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"sync"

	"deepwork/actor/wait"
)

// lineSize limits the part of a line of standard error that is passed to the listener, in bytes; the rest is
// dropped.
const lineSize = 4000

// A Service is a long-lived child, in its own process group, that communicates over its standard
// input and output. Its methods may be called from any goroutine.
type Service struct {
	// Stdin is our end of the child's standard input. Stop closes it.
	Stdin *os.File
	// Stdout is our end of the child's standard output. It ends when the child and every other
	// holder of the pipe is gone, at most two seconds after the child.
	Stdout io.ReadCloser

	spec  Spec
	child *Child
	done  chan struct{} // closed once the child and its group are gone
	err   error         // valid once done is closed
}

// Serve starts the command and returns when it runs. listen, which may be nil, is called with each nonblank
// line of its standard error, cut after 4,000 bytes, on a separate goroutine, until Done is closed. Stdin and
// StdoutLimit of the Spec have no effect. The error is an *Error. Every caller must call Stop. When the child
// ends, so does its group. On Linux it also ends when this process is killed; elsewhere its standard input is
// closed.
func Serve(spec Spec, listen func(line string)) (*Service, error) {
	spec, err := spec.withDefaults()
	if err != nil {
		return nil, err
	}
	child, err := start(spec, true)
	if err != nil {
		return nil, startError(&spec, err)
	}
	out := &watched{file: child.pipes[1]}
	child.readers.Add(1)
	out.end = sync.OnceFunc(child.readers.Done)
	child.abandon = out.end
	stderr := &tail{limit: spec.StderrLimit}

	lines := NewLines(lineSize, func(lines [][]byte) {
		for _, line := range lines {
			if text := bytes.TrimRight(line, "\r"); listen != nil && len(text) > 0 {
				listen(strings.ToValidUTF8(string(text), "\uFFFD"))
			}
		}
	})
	lines.cut = true
	child.read(child.pipes[2], io.MultiWriter(stderr, lines))
	s := &Service{Stdin: child.pipes[0], Stdout: out, spec: spec, child: child, done: make(chan struct{})}
	go func() { // runs until the child ends
		<-child.Exited()
		child.Close()
		lines.End()
		if child.code != 0 || child.signal != "" {
			s.err = child.failure(&spec, stderr)
		}
		close(s.done)
	}()

	return s, nil
}

// Done is closed when the child and its group are gone.
func (s *Service) Done() <-chan struct{} { return s.done }

// Err returns how the child ended, once Done is closed: an *Error with its last output, or nil for
// an exit with code 0. Before that it returns nil.
func (s *Service) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Stop ends the child as MCP specifies: its standard input is closed; Spec.Grace later it gets
// SIGTERM, and Spec.Grace after that its group gets SIGKILL. When ctx ends, SIGKILL is sent at
// once. Stop returns when Done is closed, at most a few seconds after SIGKILL. It may be called
// again, and concurrently.
func (s *Service) Stop(ctx context.Context) {
	s.Stdin.Close()
	if s.exited(ctx) != nil {
		s.child.Terminate()
		if s.exited(ctx) != nil {
			s.child.Kill()
		}
	}

	<-s.done
}

// exited waits for the end of the child, at most for the grace period.
func (s *Service) exited(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.spec.Grace)
	defer cancel()
	return wait.Done(ctx, s.child.Exited())
}

// A watched pipe reports when its reader has reached the end.
type watched struct {
	file *os.File
	end  func() // called by Close, and when a read has failed
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.file.Read(p)
	if err != nil {
		w.end()
		err = io.EOF // also if it was closed meanwhile
	}
	return n, err
}

// Close implements io.Closer. Closing twice is not an error.
func (w *watched) Close() error {
	w.end()
	w.file.Close()
	return nil
}
