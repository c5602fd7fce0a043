package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// stopGrace is how long calls in flight may go on after the program was told
	// to stop. A transition takes milliseconds; a review, which takes minutes, is
	// cut off, since clients kill a server 2 s after they told it to stop, and the
	// reviewers it runs must have been ended by then.
	stopGrace = 300 * time.Millisecond
	// eofGrace is how long they may after the client closed its end; longer
	// than a review's reply takes.
	eofGrace = 2 * time.Minute
	// runGrace is how long those of them may that do nothing but wait for a run at
	// a source. It goes on there, and is asked about by the next server.
	runGrace = 10 * time.Second
	// cutGrace is how long cancelled calls have to answer.
	cutGrace = 2 * time.Second
)

// Run serves one client over any transport until the client leaves, the server
// is closed, or ctx ends. Calls in flight when ctx ends are cancelled. It
// blocks, and returns ctx's error if that is why it ended.
func (s *Server) Run(ctx context.Context, t mcp.Transport) error {
	ss, err := s.mcp.Connect(context.WithoutCancel(ctx), t, nil)
	if err != nil {
		return fmt.Errorf("connecting a client: %w", err)
	}
	conn, err := s.conns.of(ctx, ss)
	if err != nil {
		return errors.Join(err, ss.Close())
	}
	stop := context.AfterFunc(ctx, func() {
		conn.cancel(errStopping)
		ss.Close()
	})
	err = ss.Wait()
	switch {
	case !stop():
		return ctx.Err()
	case s.conns.isClosed():
		return nil
	}
	return err
}

// ServeStdio serves one client over in and out, one JSON-RPC message a line, and
// closes both. It blocks until the input ends, with every call answered (nil): with
// its result, or, 10 s after the end, where it waits for a run at a source, with the
// run's id and that it goes on; until ctx ends, with calls in flight given 300 ms to
// be answered (nil); or until out is closed or blocked for good (an error). Nothing
// but messages is written to out. It may return while a read of in, which cannot be
// interrupted on every system, is still blocked.
func (s *Server) ServeStdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	return s.serve(ctx, newStdio(in, out, s.logger))
}

func (s *Server) serve(ctx context.Context, c *stdio) error {
	ss, err := s.mcp.Connect(context.WithoutCancel(ctx), c, nil)
	if err != nil {
		return fmt.Errorf("serving stdio: %w", err)
	}
	conn, err := s.conns.of(ctx, ss)
	if err != nil {
		ss.Close()
		return fmt.Errorf("serving stdio: %w", err)
	}
	var wg sync.WaitGroup
	over := make(chan error, 1) // one value, when no call is in flight any more
	wg.Go(func() { over <- ss.Wait() })

	defer func() {
		c.Close()
		if !within(cutGrace, wg.Wait, c.wg.Wait) {
			s.logger.Debug("standard input or output is still blocked; leaving it")
		}
	}()

	stop, ended := ctx.Done(), c.ended
	timer := time.NewTimer(eofGrace)
	defer timer.Stop()
	timer.Stop()
	leave := time.NewTimer(c.leaveAfter)
	defer leave.Stop()
	leave.Stop()
	var stopped, cut bool
	for {
		select {
		case err := <-over:
			if why := c.failure(); why != nil { // the SDK does not know of what it did not write
				err = why
			}
			if err != nil && !errors.Is(err, io.EOF) {
				return fmt.Errorf("serving stdio: %w", err)
			}
			return nil
		case <-c.closed:
			// The client is gone or does not read: what is in flight has no
			// one to answer to.
			conn.cancel(errStopping)
			select {
			case err := <-over:
				if why := c.failure(); why != nil {
					err = why
				}
				if err != nil && !errors.Is(err, io.EOF) {
					return fmt.Errorf("serving stdio: %w", err)
				}
				return nil
			case <-time.After(cutGrace):
				return fmt.Errorf("serving stdio: %w", errors.Join(c.failure(), c.unanswered()))
			}
		case <-stop:
			stop, stopped = nil, true
			s.willStop() // the connection is closed because the program ends
			c.stop()
			timer.Reset(stopGrace)
		case <-ended:
			ended = nil
			if !stopped {
				timer.Reset(eofGrace)
				leave.Reset(c.leaveAfter)
			}
		case <-leave.C:
			conn.leave(errStopping)
		case <-timer.C:
			if cut {
				return fmt.Errorf("serving stdio: %w", c.unanswered())
			}
			cut = true
			conn.cancel(errStopping)
			timer.Reset(cutGrace)
		}
	}
}

// within runs the functions, which return by themselves, and reports whether
// they all did in time.
func within(d time.Duration, fs ...func()) bool {
	done := make(chan struct{})
	go func() {
		for _, f := range fs {
			f()
		}
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}
