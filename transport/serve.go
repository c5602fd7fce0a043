package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/workflow"
	"deepwork/transport/tool"
	"deepwork/transport/wire"
)

const (
	// stopGrace is how long calls in flight may continue after the program is asked to stop. A
	// transition takes milliseconds; a review takes minutes and is cancelled, since clients kill a
	// server after 2 s, and its reviewers must have ended by then.
	stopGrace = 300 * time.Millisecond
	// eofGrace is the same after the client closed its end; longer than the reply of a review
	// takes.
	eofGrace = 2 * time.Minute
	// runGrace is the same for calls that only wait for a remote run. That
	// continues at its source, and the next server follows it.
	runGrace = 10 * time.Second
	// cutGrace is how long cancelled calls have to answer.
	cutGrace = 2 * time.Second
)

// ServeStdio serves one client over in and out, one JSON-RPC message per line, and closes both. It
// blocks until the input ends and every call is answered (nil), with its result or, 10 s after the
// end, with the id of the execution that it waits for; until ctx ends, with 300 ms for the calls in
// flight to be answered (nil); or until out is closed or permanently blocked (an error). Only
// messages are written to out. ServeStdio may return while a read of in, which some systems cannot
// interrupt, still blocks.
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
			s.logger.Debug("standard output is still blocked; leaving it")
		}

		if errors.Is(err, io.EOF) {
			err = nil
		}
		if err != nil {
			err = fmt.Errorf("serving stdio: %w", err)
		}
	}()

	who := s.local
	who.Channel = session.ChannelStdio
	calling := session.WithCaller(ctx, who)
	ss, err := s.mcp.Connect(context.WithoutCancel(calling), c, nil)
	if err != nil {
		return err
	}
	conn, err := s.conns.get(calling, ss)
	if errors.Is(err, errIdle) { // the input has ended, and all calls are answered
		return cmp.Or(c.Err(), ss.Wait())
	}
	if err != nil {
		ss.Close()
		return err
	}

	over := make(chan error, 1) // one value, when no call is in flight
	serving.Go(func() {
		err := ss.Wait()
		over <- cmp.Or(c.Err(), err)
	}) // the SDK does not know what was not written

	stop, ended := ctx.Done(), c.Ended
	var deadline, leave <-chan time.Time
	for cut := false; ; {
		select {
		case err := <-over:
			return err
		case <-c.Closed:
			// The client is gone or does not read: nobody receives the replies of the calls in
			// flight.
			conn.cancel(tool.ErrStopping)

			select {
			case err := <-over:
				return err
			case <-time.After(cutGrace):
				return errors.Join(c.Err(), c.Unanswered())
			}
		case <-stop:
			stop, ended = nil, nil
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

// pruneInterval is the time between two looks for sessions to remove.
const pruneInterval = time.Hour

// A pruner removes the sessions that ended longer ago than sessions.keep_ended.
type pruner struct {
	engine   *workflow.Engine
	settings func(context.Context) (*config.Config, error)
	logger   *slog.Logger
}

// follow exports the spans of ended sessions that a killed process may not have sent, and prunes at once and then at
// intervals until ctx ends.
func (p *pruner) follow(ctx context.Context) {
	p.engine.ExportEnded(ctx)
	for {
		p.prune(ctx, time.Now())
		if wait.For(ctx, pruneInterval) != nil {
			return
		}
	}
}

// prune removes what is too old at a time.
func (p *pruner) prune(ctx context.Context, now time.Time) {
	c, err := p.settings(ctx)
	if err != nil || c.Sessions.KeepEnded == 0 {
		return // the config's errors are logged elsewhere
	}

	ids, definitions, err := p.engine.Prune(ctx, now.Add(-c.Sessions.KeepEnded), false)
	if err != nil && ctx.Err() == nil {
		p.logger.Warn("old sessions could not all be removed; trying again in an hour", "removed", len(ids),
			"error", err)
	} else if len(ids)+definitions > 0 {
		p.logger.Info("sessions removed that ended longer ago than sessions.keep_ended", "sessions", len(ids),
			"definitions", definitions)
	}
}
