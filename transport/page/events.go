package page

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/catalog/source"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/codes"
)

const (
	// heartbeat shows a browser, and proxies, that a stream is alive.
	heartbeat = 20 * time.Second
	// eventTimeout is how long one write to a stream may take.
	eventTimeout = 10 * time.Second
)

// events is the stream of a page: GET /events?at=NUMBER&on=TOPIC,… It sends the event "news" when one
// of the topics has changed after the number, so that a page that was cut off catches up.
func (s *Site) events(w http.ResponseWriter, r *http.Request) {
	on := topics(r.URL.Query().Get("on"))
	at, err := strconv.ParseUint(r.URL.Query().Get("at"), 10, 64)
	if err != nil {
		http.Error(w, "at must be the number of the page", http.StatusBadRequest)
		return
	}
	if seen, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64); err == nil {
		at = max(at, seen)
	}
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	write := func(format string, args ...any) bool {
		_ = out.SetWriteDeadline(time.Now().Add(eventTimeout)) // net/http offers it
		_, err := fmt.Fprintf(w, format, args...)
		return err == nil && out.Flush() == nil
	}
	if !write("retry: 500\n\n") {
		return
	}
	s.edits.streams.Add(1)
	defer s.edits.streams.Add(-1)
	s.readSessions(r.Context()) // what began while no page was open is news for the page of its parent
	alive := time.NewTicker(heartbeat)
	defer alive.Stop()
	defer s.followOutputs(r.Context(), session.CallerOf(r.Context()), on)()
	for {
		last, more := s.feed.changed(on)
		if last > at {
			at = last
			if !write("event: news\nid: %d\ndata: \n\n", at) {
				return
			}
		}
		select {
		case <-r.Context().Done():
			return
		case <-more:
		case <-alive.C:
			if !write(": alive\n\n") {
				return
			}
		}
	}
}

// edits are the config, the jobs and what sources offer, as pages last saw them. They are not in the feed
// of the stores. The zero value has seen none.
type edits struct {
	streams atomic.Int64 // open
	config  atomic.Pointer[config.Config]
	jobs    atomic.Pointer[catalog.Snapshot]
	offer   atomic.Pointer[source.Snapshot]
}

// lookEvery is the time between two looks while a page is open.
const lookEvery = time.Second

// look touches the topics of what has changed since the last look, and that of the sources while
// executions run. It costs a few stats.
func (s *Site) look(ctx context.Context) {
	if now, err := s.Config(ctx); err == nil && s.edits.config.Swap(now) != now {
		s.Touch(configTopic)
	}
	if now := s.Jobs(ctx); s.edits.jobs.Swap(now) != now {
		s.Touch(jobsTopic)
	}
	if s.Sources != nil {
		if now, _ := s.Sources.Offer(ctx); s.edits.offer.Swap(now) != now || s.Sources.Runs.Going() {
			s.Touch(sourcesTopic)
		}
	}
}

// followEdits looks while pages are open, until ctx ends.
func (s *Site) followEdits(ctx context.Context) {
	for wait.For(ctx, lookEvery) == nil {
		if s.edits.streams.Load() > 0 {
			s.look(ctx)
		}
	}
}

// outputTopic is the topic of what the agent of an attempt prints, which the feed of the stores does
// not have: output:ATTEMPT.
const outputTopic = "output"

// outputWait is how long one look at an agent's output lasts, in seconds.
const outputWait = 10.0

// followOutputs follows the agent that is among the topics of a page, if one is, until release is called,
// which waits. A caller that does not see the attempt is told nothing.
func (s *Site) followOutputs(ctx context.Context, who session.Caller, topics []string) (release func()) {
	ctx, stop := context.WithCancel(ctx)
	var following sync.WaitGroup
	for _, t := range topics {
		if id, is := strings.CutPrefix(t, outputTopic+":"); is && s.Board != nil {
			following.Go(func() { s.followOutput(ctx, who, id, nil) })
			following.Go(func() { s.followAgents(ctx, who, id, &following) })
			break // a page shows one
		}
	}
	return func() { stop(); following.Wait() }
}

// followOutput touches the topic of an attempt whenever its agent has printed something. Of a run, it
// follows the leader, or the agent with an execution, until that ends.
func (s *Site) followOutput(ctx context.Context, who session.Caller, id string, execution *string) {
	of := board.Target{AttemptID: &id}
	var after *int64
	for ctx.Err() == nil {
		r, err := s.Board.TailAttempt(ctx, who, attempt.TailArgs{Target: of, ExecutionID: execution, AfterIndex: after, Limit: new(1000), Wait: new(outputWait), Raw: new(true), Newest: true})
		if err != nil {
			_ = wait.For(ctx, time.Second)
			continue
		}
		// A page may have been made just before the first look, without what the agent had printed then.
		if after == nil && r.NextIndex > 0 || after != nil && r.NextIndex > *after {
			s.Touch(outputTopic + ":" + id)
		}
		after = &r.NextIndex
		if r.State.Open() {
			continue
		}
		if execution != nil {
			return
		}
		_ = wait.For(ctx, time.Second) // until a follow-up
	}
}

// followAgents follows the agents of a run, in goroutines of all. It returns at once if the attempt is none.
func (s *Site) followAgents(ctx context.Context, who session.Caller, id string, all *sync.WaitGroup) {
	known := map[string]bool{}
	for ctx.Err() == nil {
		r, err := s.Board.GetRun(ctx, who, board.RunArgs{RunID: id})
		if session.CodeOf(err) == codes.UnknownRun {
			return
		}
		if err == nil {
			for _, x := range r.Steps {
				if x.StartedAt != nil && x.EndedAt == nil && !known[x.ExecutionID] {
					known[x.ExecutionID] = true
					all.Go(func() { s.followOutput(ctx, who, id, &x.ExecutionID) })
				}
			}
		}
		_ = wait.For(ctx, time.Second)
	}
}
