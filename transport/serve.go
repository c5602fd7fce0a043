package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"deepwork/actor/wait"
	"deepwork/transport/tool"
	"deepwork/transport/wire"
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

// ServeStdio serves one client over in and out, one JSON-RPC message a line, and
// closes both. It blocks until the input ends, with every call answered (nil): with
// its result, or, 10 s after the end, where it waits for a run at a source, with the
// run's id and that it goes on; until ctx ends, with calls in flight given 300 ms to
// be answered (nil); or until out is closed or blocked for good (an error). Nothing
// but messages is written to out. It may return while a read of in, which cannot be
// interrupted on every system, is still blocked.
func (s *Server) ServeStdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	return s.serveStdio(ctx, wire.NewStdio(in, out, s.logger), runGrace)
}

func (s *Server) serveStdio(ctx context.Context, c *wire.Stdio, runGrace time.Duration) (err error) {
	var serving sync.WaitGroup
	defer func() {
		c.Close()
		serving.Go(c.Wait)
		inTime, cancel := context.WithTimeout(context.WithoutCancel(ctx), cutGrace)
		defer cancel()
		if wait.Group(inTime, &serving) != nil {
			s.logger.Debug("standard input or output is still blocked; leaving it")
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if err != nil {
			err = fmt.Errorf("serving stdio: %w", err)
		}
	}()
	ss, err := s.mcp.Connect(context.WithoutCancel(ctx), c, nil)
	if err != nil {
		return err
	}
	conn, err := s.conns.of(ctx, ss)
	if err != nil {
		ss.Close()
		return err
	}
	over := make(chan error, 1)                                           // one value, when no call is in flight any more
	serving.Go(func() { err := ss.Wait(); over <- cmp.Or(c.Err(), err) }) // the SDK does not know of what it did not write
	stop, ended := ctx.Done(), c.Ended
	var deadline, leave <-chan time.Time
	for cut := false; ; {
		select {
		case err := <-over:
			return err
		case <-c.Closed:
			// The client is gone or does not read: the calls in flight have no one
			// to answer to.
			conn.cancel(tool.ErrStopping)
			select {
			case err := <-over:
				return err
			case <-time.After(cutGrace):
				return errors.Join(c.Err(), c.Unanswered())
			}
		case <-stop:
			stop, ended = nil, nil
			s.willStop() // the connection is closed because the program ends
			c.Stop()
			deadline = time.After(stopGrace)
		case <-ended:
			ended = nil
			deadline, leave = time.After(eofGrace), time.After(runGrace)
		case <-leave:
			conn.leave(tool.ErrStopping)
		case <-deadline:
			if cut {
				return c.Unanswered()
			}
			cut = true
			conn.cancel(tool.ErrStopping)
			deadline = time.After(cutGrace)
		}
	}
}
