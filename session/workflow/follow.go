package workflow

import (
	"context"
	"sync"
	"time"

	"deepwork/actor/wait"
	"deepwork/session/store"
)

// A follower wakes what waits in this process for transitions of any process. It follows the feed of
// changes once something waits. Nobody relies on it: who waits for a review looks from time to time, too.
type follower struct {
	engine *Engine
	once   sync.Once

	mu      sync.Mutex
	waiting map[string]chan struct{} // closed when the session has changed
}

// start follows the feed until the engine closes.
func (f *follower) start() {
	f.once.Do(func() { f.engine.aside(func() { f.run(f.engine.ctx) }) })
}

func (f *follower) run(ctx context.Context) {
	changes := f.engine.Stores.Database.Changes()
	position := ""
	for ctx.Err() == nil {
		news, err := changes.Since(ctx, position)
		if err != nil {
			_ = wait.For(ctx, time.Second) // the store is away
			continue
		}
		position = news.Next
		moved := news.Reset
		if news.Reset {
			f.wakeAll()
		}
		for _, c := range news.Changes {
			if c.Kind == store.SessionChanged {
				moved = true
				f.wake(c.ID)
			}
		}
		if moved {
			f.engine.notifyMoved()
		}
		if err := changes.Wait(ctx, position); err != nil {
			_ = wait.For(ctx, time.Second)
		}
	}
}

// changed returns a channel that is closed when a session has changed. Ask for it before looking.
func (f *follower) changed(id string) <-chan struct{} {
	f.start()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting == nil {
		f.waiting = map[string]chan struct{}{}
	}
	if f.waiting[id] == nil {
		f.waiting[id] = make(chan struct{})
	}
	return f.waiting[id]
}

func (f *follower) wake(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ch := f.waiting[id]; ch != nil {
		close(ch)
		delete(f.waiting, id)
	}
}

func (f *follower) wakeAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, ch := range f.waiting {
		close(ch)
		delete(f.waiting, id)
	}
}

// notifyMoved calls Options.Moved for a durable transition.
func (e *Engine) notifyMoved() {
	if e.Moved != nil {
		e.Moved()
	}
}
