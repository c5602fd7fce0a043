package work

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"deepwork/actor/wait"
	"deepwork/actor/xslices"
	"deepwork/session/store"
)

const (
	lockEvery   = 500 * time.Millisecond // between two looks at whether other runners of this place live
	lookEvery   = 5 * time.Second        // at most, between two looks at the clock
	claimAtOnce = 100                    // rows of a kind without a limit
	maxPause    = time.Minute            // after a handler has failed
	releaseTime = time.Second            // to release rows, even if the time to close is over
)

// Options configure a Loop. Stores are required.
type Options struct {
	Stores *store.Stores
	Logger *slog.Logger // default: discards
	// Life is how long a row stays its runner's without a renewal; the runner renews it three times as often.
	// Default: 15 s
	Life time.Duration
}

// A Loop does the work of one process. Its methods may be called from any goroutine.
type Loop struct {
	o     Options
	rows  store.Work
	place string // the key of this place; "" in a store of one machine

	ctx     context.Context // of serve; ends with Close
	cancel  context.CancelFunc
	serving sync.WaitGroup
	wake    wait.Signal // it may be time for a look

	mu    sync.Mutex           // guards the following fields
	kinds map[string]*group    // by their names
	tasks map[string]*Task     // by the ids of their rows
	left  map[string]time.Time // until when rows are left to others, by the ids of the rows
	away  time.Time            // when the store was last seen not to answer
	err   error                // of the last look

	// Owned by serve.
	looked  time.Time // when the clock was last looked at
	overdue bool      // what this process does is renewed at the next look
	watched []string  // the members of this place that do something, without this process
}

// A group is a kind that is registered.
type group struct {
	Kind
	ctx    context.Context // parent of the handlers' contexts; Leave ends it with ErrClosing
	cancel context.CancelCauseFunc
}

// New returns a loop, which does nothing before Start. When ctx ends, it stops as if the process was killed: only
// Close hands over what it does.
func New(ctx context.Context, o Options) *Loop {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Life = cmp.Or(o.Life, 15*time.Second)
	l := &Loop{
		o:     o,
		rows:  o.Stores.Database.Work(),
		wake:  wait.NewSignal(),
		kinds: map[string]*group{},
		tasks: map[string]*Task{},
		left:  map[string]time.Time{},
	}
	if o.Stores.Place != nil {
		l.place = o.Stores.Place.Key()
	}
	l.ctx, l.cancel = context.WithCancel(ctx)
	return l
}

// Register makes the loop do work of a kind until Leave or Close. It may be called before or after Start.
func (l *Loop) Register(k Kind) {
	g := &group{Kind: k}
	g.ctx, g.cancel = context.WithCancelCause(l.ctx)
	l.mu.Lock()
	l.kinds[k.Name] = g
	l.mu.Unlock()
	l.wake.Wake()
}

// Start begins to look for work.
func (l *Loop) Start() {
	l.serving.Go(l.serve)
	l.serving.Go(l.follow)
}

// Close is Leave for all kinds, and ends the loop.
func (l *Loop) Close(ctx context.Context) (stuck []string) {
	l.mu.Lock()
	kinds := slices.Sorted(maps.Keys(l.kinds))
	l.mu.Unlock()
	for _, kind := range kinds {
		stuck = append(stuck, l.Leave(ctx, kind)...)
	}
	l.cancel()
	if wait.Group(ctx, &l.serving) != nil { // a read may hang on a dead disk
		stuck = append(stuck, "looking for work")
	}
	return stuck
}

// Leave ends the handlers of a kind, waits for them until ctx ends, and lets other processes go on with their work.
// The loop then does no such work any more. It returns the rows whose handlers did not end in time.
func (l *Loop) Leave(ctx context.Context, kind string) (stuck []string) {
	l.mu.Lock()
	g := l.kinds[kind]
	delete(l.kinds, kind)
	l.mu.Unlock()
	if g == nil {
		return nil
	}

	g.cancel(ErrClosing)
	for _, t := range l.all(kind) {
		if wait.Done(ctx, t.done) != nil {
			stuck = append(stuck, t.ID())
		}
	}

	left := l.all(kind)
	if len(left) == 0 {
		return stuck
	}
	for _, t := range left {
		l.drop(t)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	runners := xslices.Map(left, func(t *Task) string { return t.Runner })
	if err := l.rows.Release(ctx, runners); err != nil {
		l.o.Logger.Warn("others go on with the work of this server only when its time is over", "error", err)
	}
	return stuck
}

// Claimed returns a row that is claimed by this loop from the moment in which the caller writes it. The caller
// must have entered the members. When the row is written, Run begins the work.
func (l *Loop) Claimed(kind, key string, about json.RawMessage) store.WorkRow {
	return store.WorkRow{
		Kind: kind, Key: key, About: about, Claims: 1,
		Runner: l.runner(), RunnerPlace: l.place, Life: l.o.Life,
	}
}

// Err returns why work cannot be renewed and begun now, or nil.
func (l *Loop) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// runner names a new claim of this process.
func (l *Loop) runner() string {
	var b [6]byte
	rand.Read(b[:]) // never fails
	return l.o.Stores.Members.ID() + "-" + hex.EncodeToString(b[:])
}

// memberOf returns the id of the member that made a claim.
func memberOf(runner string) string {
	return runner[:max(strings.LastIndexByte(runner, '-'), 0)]
}

// Run begins a row that this loop has claimed. What this process did for an earlier claim of the row ends
// first. It reports false if the loop does no such work.
func (l *Loop) Run(row store.WorkRow) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.kinds[row.Kind]
	if g == nil {
		return false
	}
	earlier := l.tasks[row.ID()]
	if earlier != nil && earlier.Runner == row.Runner {
		return true
	}

	ctx, cancel := context.WithCancelCause(g.ctx)
	t := &Task{WorkRow: row, of: g, cancel: cancel, done: make(chan struct{}), renewed: time.Now()}
	l.tasks[row.ID()] = t
	if row.Stop {
		cancel(ErrStopped)
	}
	go func() {
		defer close(t.done)
		defer cancel(nil)
		if earlier != nil {
			earlier.cancel(ErrTaken)
			<-earlier.done
		}
		l.do(ctx, t)
	}()
	return true
}

// do calls the handler of a task, and stores what becomes of its row.
func (l *Loop) do(ctx context.Context, t *Task) {
	outcome, err := call(ctx, t)
	cause := context.Cause(ctx)
	switch {
	case errors.Is(err, ErrEnded), errors.Is(err, ErrTaken), errors.Is(cause, ErrTaken):
		l.drop(t)
		return
	case err != nil && t.of.ctx.Err() != nil:
		return // Leave releases it
	case err != nil && errors.Is(cause, ErrStopped):
		outcome = store.Outcome{}
	case err != nil:
		outcome = store.Outcome{Again: min(time.Second<<min(t.Claims-1, 6), maxPause), Failed: true}
		l.o.Logger.Warn("work has failed and is tried again", "work", t.ID(), "claims", t.Claims, "again_in",
			outcome.Again, "error", err)
	}

	if outcome.Yield {
		l.mu.Lock()
		l.left[t.ID()] = time.Now().Add(outcome.Again)
		l.mu.Unlock()
		outcome.Again = time.Millisecond
	}
	for {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.o.Life/3)
		_, err := l.rows.End(bounded, &t.WorkRow, outcome)
		cancel()
		if err == nil {
			l.drop(t)
			return
		}
		l.o.Logger.Warn("the end of work cannot be stored now; trying again", "work", t.ID(), "error", err)
		if wait.For(t.of.ctx, time.Second) != nil {
			return // Leave releases it
		}
	}
}

func call(ctx context.Context, t *Task) (o store.Outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the handler panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return t.of.Do(ctx, t)
}

// drop forgets a task whose row is not this process's any more.
func (l *Loop) drop(t *Task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tasks[t.ID()] == t {
		delete(l.tasks, t.ID())
	}
	if t.of.Limit > 0 {
		l.wake.Wake()
	}
}

// all returns what this process does of a kind, or of all if that is "".
func (l *Loop) all(kind string) (tasks []*Task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.tasks {
		if kind == "" || t.Kind == kind {
			tasks = append(tasks, t)
		}
	}
	return tasks
}
