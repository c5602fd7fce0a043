package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"deepwork/actor/wait"
	"deepwork/actor/xslices"
)

// A Gate runs reviews in a pool of limited size. All sessions share the pool and take turns. Its methods may
// be called from any goroutine.
type Gate struct {
	options Options
	ctx     context.Context // ends when the gate is closed
	cancel  context.CancelFunc
	wg      sync.WaitGroup // the dispatcher, the batches and the reviews
	wake    wait.Signal    // there may be a review to start

	// This is a lock instead of messages because session actors call Run, which must not wait for anything,
	// not even a dispatcher that reads the settings.
	mu      sync.Mutex
	closed  bool
	queue   queue
	running map[*review]struct{}
	open    map[*batch]struct{} // batches with undelivered verdicts
	stats   Stats               // Gate.Stats sets Running and Queued
}

// Stats describes the load of a Gate.
type Stats struct {
	Running  int // reviews that are running
	Queued   int // reviews that are waiting
	Done     int // reviews that ended with a verdict, since Open
	Passed   int // reviews whose verdict was that the work passes
	Failed   int // reviews that ended without a verdict, including cancelled ones
	Capacity int // maximum number of concurrent reviews, as last read; 0 before the first review
}

// Add adds the figures of another gate.
func (s *Stats) Add(other Stats) {
	s.Running += other.Running
	s.Queued += other.Queued
	s.Done += other.Done
	s.Passed += other.Passed
	s.Failed += other.Failed
	s.Capacity += other.Capacity
}

// A batch is the tasks of one Run.
type batch struct {
	ctx     context.Context // ends with the caller's context, when the gate closes, and when all is delivered
	cancel  context.CancelCauseFunc
	session string
	sub     Submission
	each    func(Verdict)

	delivery sync.Mutex // held while each is called; guards the fields below
	left     int        // verdicts still to be delivered
}

// A review is one task of a batch.
type review struct {
	batch *batch
	task  Task
}

// lookAgain is the interval at which the settings are read while reviews wait, so that an enlarged
// pool is used before one of its reviews ends.
const lookAgain = time.Second

// Open starts a gate; Close ends it. It does not read the settings yet.
func Open(o Options) *Gate {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	g := &Gate{
		options: o,
		wake:    wait.NewSignal(),
		running: make(map[*review]struct{}),
		open:    make(map[*batch]struct{}),
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.wg.Go(g.dispatch)
	return g
}

// Run queues the planned tasks of a step's submission. each is called once for every task, when its review
// ends, on a goroutine of the gate, one call at a time for this Run; it may block for long, but must not call
// Close. When ctx ends, waiting reviews are dropped and running ones are killed with their process groups;
// each is still called for every task, with a Verdict whose Error has the code Cancelled. session is the key
// by which sessions take turns.
//
// Run does not block. It returns an error, and never calls each, if the gate is closed (ErrClosed) or its
// queue is full (ErrBusy).
func (g *Gate) Run(ctx context.Context, session string, s Submission, tasks []Task, each func(Verdict)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return fmt.Errorf("queueing the reviews of step '%s': %w", s.Step.ID, ErrClosed)
	}
	if n := g.queue.size; n > 0 && n+len(tasks) > queueLimit {
		return fmt.Errorf("queueing the %d reviews of step '%s': %w: %d, and %d run; there is room for %d. Call "+
			"again in a while",
			len(tasks), s.Step.ID, ErrBusy, n, len(g.running), queueLimit)
	}
	if len(tasks) == 0 {
		return nil
	}

	b := &batch{session: session, sub: s, each: each, left: len(tasks)}
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	reviews := xslices.Map(tasks, func(t Task) *review { return &review{b, t} })
	g.open[b] = struct{}{}
	g.queue.push(session, reviews...)
	g.wg.Go(func() {
		<-b.ctx.Done()
		g.drop(b)
	})
	g.wake.Wake()
	return nil
}

// Stats returns the current load. It does not block.
func (g *Gate) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.stats
	s.Running, s.Queued = len(g.running), g.queue.size
	return s
}

// Close cancels all reviews, kills their process groups, delivers their verdicts and waits for all
// of that. If ctx ends first, the error names what has not stopped. It may be called again to
// continue waiting.
func (g *Gate) Close(ctx context.Context) error {
	g.mu.Lock()
	g.closed = true
	for b := range g.open {
		b.cancel(ErrClosed)
	}
	g.mu.Unlock()
	g.cancel()
	if err := wait.Group(ctx, &g.wg); err != nil {
		return fmt.Errorf("closing the quality gate: %w; not stopped: %s", err, strings.Join(g.stuck(), ", "))
	}

	return nil
}

// stuck returns the names of what has not stopped.
func (g *Gate) stuck() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var names []string
	busy := make(map[*batch]bool)
	for r := range g.running {
		busy[r.batch] = true
		names = append(names, fmt.Sprintf("the review of %s of session %s", r.task.name(), r.batch.session))
	}
	for b := range g.open {
		if !busy[b] {
			names = append(names, fmt.Sprintf("the delivery of verdicts to session %s", b.session))
		}
	}
	if len(names) == 0 {
		names = append(names, "the reading of the settings")
	}
	slices.Sort(names)
	return names
}

// dispatch starts reviews while any are waiting and the pool has room.
func (g *Gate) dispatch() {
	var again <-chan time.Time
	for {
		select {
		case <-g.ctx.Done():
			return
		case <-g.wake:
		case <-again:
		}
		again = nil
		if g.Stats().Queued == 0 {
			continue
		}

		settings := g.options.Settings()
		settings.MaxConcurrent = max(1, settings.MaxConcurrent)
		for r := g.next(settings.MaxConcurrent); r != nil; r = g.next(settings.MaxConcurrent) {
			g.wg.Go(func() {
				v := g.review(r.batch.ctx, r, settings.With(r.batch.sub.Reviewer))
				g.log(r, v)
				g.ended(r, v)
			})
		}

		if g.Stats().Queued > 0 {
			again = time.After(lookAgain)
		}
	}
}

// next removes a review from the queue if another one may run.
func (g *Gate) next(capacity int) *review {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stats.Capacity = capacity
	if len(g.running) >= capacity {
		return nil
	}

	r := g.queue.pop()
	if r != nil {
		g.running[r] = struct{}{}
	}
	return r
}

// ended counts a review, makes room for the next one and delivers its verdict. Run's caller may block for
// long, and may panic.
func (g *Gate) ended(r *review, v Verdict) {
	g.mu.Lock()
	delete(g.running, r)
	if v.Err == nil {
		g.stats.Done++
		if v.Passed {
			g.stats.Passed++
		}
	} else {
		g.stats.Failed++
	}
	g.mu.Unlock()
	g.wake.Wake()
	b := r.batch

	b.delivery.Lock()
	defer b.delivery.Unlock()
	defer func() {
		if p := recover(); p != nil {
			g.options.Logger.Error("taking a verdict panicked", "session", b.session, "review", v.Task.Key,
				"panic", p, "trace", string(debug.Stack()))
		}

		b.left--
		if b.left == 0 {
			b.cancel(nil)
			g.mu.Lock()
			delete(g.open, b)
			g.mu.Unlock()
		}
	}()
	b.each(v)
}

func (g *Gate) log(r *review, v Verdict) {
	attrs := []any{"session", r.batch.session, "step", r.batch.sub.Step.ID, "review", r.task.Key,
		"reviewer", v.Reviewer, "took_ms", v.EndedAt.Sub(v.StartedAt).Milliseconds()}
	switch e, failed := errors.AsType[*Error](v.Err); {
	case r.task.Do != nil:
		g.options.Logger.InfoContext(r.batch.ctx, r.task.Key+" ended",
			append(attrs, "passed", v.Passed, "error", v.Err)...)
	case failed && e.Code == Cancelled:
		g.options.Logger.InfoContext(r.batch.ctx, "review cancelled", append(attrs, "reason", e.What)...)
	case failed:
		g.options.Logger.WarnContext(r.batch.ctx, "review without a verdict",
			append(attrs, "code", e.Code, "error", e.What, "tail", e.Tail)...)
	default:
		g.options.Logger.InfoContext(r.batch.ctx, "review ended", append(attrs, "passed", v.Passed)...)
	}
}

// drop ends the waiting reviews of a batch.
func (g *Gate) drop(b *batch) {
	g.mu.Lock()
	removed := g.queue.remove(b)
	g.mu.Unlock()
	if len(removed) > 0 {
		g.options.Logger.InfoContext(b.ctx, "reviews cancelled before they began", "session", b.session, "step",
			b.sub.Step.ID, "reviews", len(removed))
	}
	for _, r := range removed {
		now := time.Now().UTC()
		g.ended(r, Verdict{Task: r.task, StartedAt: now, EndedAt: now, Err: cancelled(b.ctx, r)})
	}
}

// A queue holds the waiting reviews, and lets the sessions take turns: a session with forty files
// does not starve one with a single file. It is not safe for concurrent use.
type queue struct {
	lanes [][]*review // one per session, none of them empty, in the order of their turns
	size  int
}

// push appends the reviews of a session.
func (q *queue) push(session string, reviews ...*review) {
	at := slices.IndexFunc(q.lanes, func(lane []*review) bool { return lane[0].batch.session == session })
	if at < 0 {
		q.lanes = append(q.lanes, reviews)
	} else {
		q.lanes[at] = append(q.lanes[at], reviews...)
	}
	q.size += len(reviews)
}

// pop removes and returns the next review, or nil if none waits.
func (q *queue) pop() *review {
	if q.size == 0 {
		return nil
	}

	lane := q.lanes[0]
	q.lanes = slices.Delete(q.lanes, 0, 1)
	if len(lane) > 1 {
		q.lanes = append(q.lanes, lane[1:])
	}
	q.size--
	return lane[0]
}

// remove removes and returns all reviews of a batch.
func (q *queue) remove(b *batch) (removed []*review) {
	for i, lane := range q.lanes {
		q.lanes[i] = slices.DeleteFunc(lane, func(r *review) bool {
			if r.batch == b {
				removed = append(removed, r)
			}
			return r.batch == b
		})
	}
	q.lanes = slices.DeleteFunc(q.lanes, func(lane []*review) bool { return len(lane) == 0 })
	q.size -= len(removed)
	return removed
}
