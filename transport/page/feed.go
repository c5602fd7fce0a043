package page

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
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
	"deepwork/session/store"
)

// A feed tells pages of the changes of a project. It numbers batches of changes; a page knows the number at which it
// was rendered.
//
// Open pages are told of changes all at once. The first change is told at once; the next ones after a
// pause, which is longer the more time the pages take.
type feed struct {
	changes store.Changes
	reading sync.Mutex // held while changes are read
	began   bool       // they were read before
	cursor  string     // the position after what was read

	work atomic.Int64 // nanoseconds that pages took since the last telling

	kept  sync.Map // what was read, by keys: asOf
	reads atomic.Int64

	mu        sync.Mutex
	number    uint64            // of the last batch
	last      map[string]uint64 // the batch in which a topic changed last
	reset     uint64            // the last batch after which anything may have changed
	toldAt    time.Time         // when open pages were told last
	scheduled bool              // there will be another telling
	nextBatch chan struct{}     // closed by the next telling
}

const (
	// minPause and maxPause bound the time between two tellings: a change is on all open pages within a second.
	minPause = 100 * time.Millisecond
	maxPause = 800 * time.Millisecond
	// share is the part of the processors that open pages may take, as a divisor.
	share = 20
	// requestTime is what a request takes in addition to the rendering, about. It is not measured: when
	// many come at once, they wait for each other.
	requestTime = 200 * time.Microsecond
	// retry is how long follow waits after changes could not be read.
	retry = time.Second
)

func newFeed(changes store.Changes) *feed {
	// The number is about a time, so that a page of an earlier process is older than any of this one.
	n := uint64(time.Now().UnixMicro())
	return &feed{changes: changes, number: n, reset: n, last: make(map[string]uint64), nextBatch: make(chan struct{})}
}

// follow reads the changes until ctx ends, and calls seen after some were read.
func (f *feed) follow(ctx context.Context, log *slog.Logger, seen func()) {
	for failed := false; ctx.Err() == nil; {
		err := f.catchUp(ctx)
		if err != nil {
			if !failed && ctx.Err() == nil {
				log.Warn("the changes of the project cannot be read; pages are not updated until they can",
					"error", err)
			}
			failed = true
			_ = wait.For(ctx, retry)
			continue
		}
		failed = false

		seen()
		f.reading.Lock()
		place := f.cursor
		f.reading.Unlock()
		if err := f.changes.Wait(ctx, place); err != nil && ctx.Err() == nil {
			_ = wait.For(ctx, retry)
		}
	}
}

// catchUp reads the changes made before the call. If that fails, anything may have changed; if ctx has ended, the next
// call reads them.
func (f *feed) catchUp(ctx context.Context) error {
	f.reading.Lock()
	defer f.reading.Unlock()
	for {
		news, err := f.changes.Since(ctx, f.cursor)
		if err != nil {
			if ctx.Err() == nil {
				f.batch(nil, true)
			}
			return err
		}

		first := !f.began
		f.began = true
		if f.cursor == news.Next {
			return nil
		}
		f.cursor = news.Next
		f.batch(news.Changes, news.Reset && !first) // at the first call there is nothing older to replace
	}
}

// maxTopics bounds what feed.last keeps; beyond it, all pages are told.
const maxTopics = 10_000

func (f *feed) batch(changes []store.Change, reset bool) {
	if len(changes) == 0 && !reset {
		return
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	f.number++
	if reset || len(f.last) > maxTopics {
		f.reset = f.number
		clear(f.last)
	}
	for _, c := range changes {
		f.last[c.Kind] = f.number
		f.last[c.Kind+":"+c.ID] = f.number
	}
	f.tell()
}

// tell tells open pages of changes, now or after the pause. f.mu is held.
func (f *feed) tell() {
	if f.scheduled {
		return
	}

	needed := time.Duration(f.work.Load()) * share / time.Duration(runtime.GOMAXPROCS(0))
	if left := min(max(needed, minPause), maxPause) - time.Since(f.toldAt); left > 0 {
		f.scheduled = true
		time.AfterFunc(left, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.scheduled = false
			f.tell()
		})
		return
	}
	f.toldAt = time.Now()
	f.work.Store(0)
	close(f.nextBatch)
	f.nextBatch = make(chan struct{})
}

// worked notes the time that a page took.
func (f *feed) worked(took time.Duration) { f.work.Add(int64(took)) }

// Touch reports a change that is not in the feed of the stores, by its topic.
func (s *Site) Touch(topic string) { s.feed.batch([]store.Change{{Kind: topic}}, false) }

// position returns the number of the last batch.
func (f *feed) position() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.number
}

// changed returns the number of the last batch with a change of one of the topics, and a channel that
// is closed when open pages are told of changes.
func (f *feed) changed(topics []string) (last uint64, more <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last = f.reset
	for _, t := range topics {
		last = max(last, f.last[t])
	}
	return last, f.nextBatch
}

// An asOf is a value that was read from the stores, as of a number of the feed.
type asOf struct {
	number uint64
	value  any
}

// maxKept is how many values a feed keeps, at most.
const maxKept = 100

// remember returns what read returned last for a key, or calls it again if one of the topics has changed since. Nobody
// changes the value.
func remember[T any](f *feed, key any, topics []string, read func() (T, error)) (T, error) {
	number, _ := f.changed(topics)
	if last, ok := f.kept.Load(key); ok && last.(asOf).number == number {
		return last.(asOf).value.(T), nil
	}

	value, err := read()
	if f.reads.Add(1)%maxKept == 0 {
		f.kept.Clear()
	}
	if err == nil {
		f.kept.Store(key, asOf{number, value})
	}
	return value, err
}

// maxFollows is how many topics one stream follows: more than any page has.
const maxFollows = 500

// since returns the ids of a kind that changed after a batch; all means that any may have.
func (f *feed) since(number uint64, kind string) (ids []string, all bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reset > number {
		return nil, true
	}
	for topic, n := range f.last {
		if k, id, _ := strings.Cut(topic, ":"); k == kind && id != "" && n > number {
			ids = append(ids, id)
		}
	}
	return ids, false
}

const (
	// heartbeat shows a browser, and proxies, that a stream is alive.
	heartbeat = 20 * time.Second
	// eventTimeout is how long one write to a stream may take.
	eventTimeout = 10 * time.Second
)

// events is the stream of a page: GET /events?at=NUMBER&on=TOPIC,… It sends the event "news" when one
// of the topics has changed after the number, so that a page that was cut off catches up.
func (s *Site) events(w http.ResponseWriter, r *http.Request) {
	on := strings.SplitN(r.URL.Query().Get("on"), ",", maxFollows+1)
	on = slices.DeleteFunc(on[:min(len(on), maxFollows)], func(t string) bool { return t == "" || len(t) > 100 })
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
	follow := s.followOutputs
	if s.Chooser != nil {
		follow = s.followProjects
	}
	defer follow(r.Context(), session.CallerOf(r.Context()), on)()
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

// edits remembers the config, the jobs and the sources' offers as pages last saw them, since the stores' feed does not
// have them. The zero value has seen none.
type edits struct {
	streams atomic.Int64 // open
	config  atomic.Pointer[config.Config]
	jobs    atomic.Pointer[catalog.Snapshot]
	offer   atomic.Pointer[source.Snapshot]
}

// lookEvery is the time between two looks while a page is open.
const lookEvery = time.Second

// look touches the topics of what has changed since the last look, and the sources' topic while executions run. It
// costs a few stats, and a look at each server that moved an active session.
func (s *Site) look(ctx context.Context) {
	if now, err := s.Config(ctx); err == nil && s.edits.config.Swap(now) != now {
		s.Touch(configTopic)
	}
	if now := s.Jobs(ctx); s.edits.jobs.Swap(now) != now {
		s.Touch(jobsTopic)
	}
	s.lookAtServers(ctx)
	if s.Sources != nil {
		if now, _ := s.Sources.Offer(ctx); s.edits.offer.Swap(now) != now || s.Sources.Runs.Going() {
			s.Touch(sourcesTopic)
		}
	}
}

// lookAtServers reports the active sessions whose servers have ended, or are back, since they were read.
func (s *Site) lookAtServers(ctx context.Context) {
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	inUse := s.Engine.Stores.InUse(ctx)
	var changes []store.Change
	for id, i := range s.index.all {
		if i.Status == "active" && inUse(&i.Session) != i.InUse {
			changes = append(changes, store.Change{Kind: store.SessionChanged, ID: id})
		}
	}
	s.feed.batch(changes, false)
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
		if id, ok := strings.CutPrefix(t, outputTopic+":"); ok && s.Board != nil {
			following.Go(func() { s.followOutput(ctx, who, id, nil) })
			following.Go(func() { s.followAgents(ctx, who, id, &following) })
			break // a page shows one
		}
	}
	return func() {
		stop()
		following.Wait()
	}
}

// followOutput touches the topic of an attempt whenever its agent prints something. In a run it follows the leader, or
// the agent of an execution, until that ends.
func (s *Site) followOutput(ctx context.Context, who session.Caller, id string, execution *string) {
	of := board.Target{AttemptID: &id}
	var after *int64
	for ctx.Err() == nil {
		r, err := s.Board.TailAttempt(ctx, who, attempt.TailArgs{
			Target:      of,
			ExecutionID: execution,
			AfterIndex:  after,
			Limit:       new(1000),
			Wait:        new(outputWait),
			Raw:         new(true),
			Newest:      true,
		})
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

// followAgents follows the agents of a run in goroutines of all. For an attempt that is no run it does nothing.
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
