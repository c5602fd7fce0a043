package board

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"time"

	"deepwork/actor/durable"
	"deepwork/actor/process"
	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/session"
)

// The pace of notifications.
const (
	notifyPoll  = 2 * time.Second        // between two looks, if no change of the board is reported
	notifyPause = 250 * time.Millisecond // at least between two looks
	notifyTime  = 30 * time.Second       // for one run of the command
	maxNotified = 4 << 20                // bytes of what was notified
)

// A Notification is what the command of notify gets on its stdin, as one line of JSON.
type Notification struct {
	Attention
	Project string `json:"project"` // its root, in which a person runs the command of the item
}

// A notifier has the command of the user's own config notify of each new item that needs a person,
// the oldest first, one at a time. Of the servers of a project on this machine, the one that holds a
// lock does so. An item is recorded after the command has run, so that only a crash repeats it, and
// forgotten when it is gone. It belongs to one goroutine.
type notifier struct {
	board      *Board
	position   string // in the feed of changes
	lock       *durable.FileLock
	known      []string // the keys of the items that were notified
	lastLogged string   // the last error that was logged
}

// Notify notifies until ctx ends.
func (b *Board) Notify(ctx context.Context) {
	n := &notifier{board: b}
	for ; ctx.Err() == nil; n.wait(ctx) {
		cfg, err := b.Config(ctx)
		if err != nil {
			continue // the config's errors are logged elsewhere
		}
		if len(cfg.Notify) > 0 {
			err = n.look(ctx, cfg)
		}
		if err != nil && ctx.Err() == nil && err.Error() != n.lastLogged {
			n.lastLogged = err.Error()
			b.Log.Warn("looking for what to notify of", "error", err)
		}
	}
	if n.lock != nil {
		_ = n.lock.Unlock() // it ends with this process
	}
}

// wait waits for a change, or until it is time to look again: some items change without one.
func (n *notifier) wait(ctx context.Context) {
	if wait.For(ctx, notifyPause) != nil {
		return
	}
	if n.lock == nil {
		_ = wait.For(ctx, notifyPoll)
		return
	}

	ctx, cancel := context.WithTimeout(ctx, notifyPoll-notifyPause)
	defer cancel()
	if n.board.Database.Changes().Wait(ctx, n.position) != nil {
		<-ctx.Done() // the feed is a hint
	}
}

// look notifies of what is new, if no other server does.
func (n *notifier) look(ctx context.Context, cfg *config.Config) error {
	b := n.board
	if n.lock == nil {
		if err := n.begin(); err != nil || n.lock == nil {
			return err
		}
	}
	if news, err := b.Database.Changes().Since(ctx, n.position); err == nil {
		n.position = news.Next
	}

	r, err := b.NeedsAttention(ctx, session.LocalCaller(""))
	if err != nil {
		return err
	}

	var now []string
	for _, item := range slices.Backward(r.Items) {
		key := item.Kind + " " + item.ID
		if item.Since != nil {
			key += " " + *item.Since
		}
		if item.Kind == AttentionSource { // a run may ask several questions
			key += " " + item.Title
		}
		now = append(now, key)
		if slices.Contains(n.known, key) {
			continue
		}
		err := n.run(ctx, cfg.Notify, item)
		if err != nil && ctx.Err() != nil {
			return ctx.Err() // the next server repeats it
		}
		if err != nil {
			b.Log.Warn("the command of notify failed; this item is not notified of again", "kind", item.Kind, "id",
				item.ID, "error", err)
		}

		if err := n.record(append(slices.Clone(n.known), key)); err != nil {
			return err
		}
	}
	if r.Truncated || !slices.ContainsFunc(n.known, func(key string) bool { return !slices.Contains(now, key) }) {
		return nil
	}
	return n.record(now)
}

// begin takes the lock and reads what was notified, unless another server has the lock.
func (n *notifier) begin() error {
	f := n.board.State()
	if err := f.Make(); err != nil {
		return err
	}
	lock, err := durable.TryLock(f.Notified() + ".lock")
	if lock == nil || err != nil {
		return err
	}
	data, _, err := durable.Read(f.Notified(), maxNotified)
	if err == nil {
		err = json.Unmarshal(data, &n.known)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.board.Log.Warn("what was notified cannot be read: everything that needs a person is notified of again",
			"file", f.Notified(), "error", err)
		n.known = nil
	}
	n.lock = lock
	return nil
}

func (n *notifier) record(known []string) error {
	data, err := json.Marshal(known)
	if err == nil {
		err = durable.Disk{}.Put(n.board.State().Notified(), append(data, '\n'), durable.PutOptions{})
	}
	n.known = known // not again, even if the disk is full
	return err
}

// run runs the command, in the user's home folder: nothing in the project may have a say in it.
func (n *notifier) run(ctx context.Context, command []string, item Attention) error {
	ctx, cancel := context.WithTimeout(ctx, notifyTime)
	defer cancel()
	line, err := json.Marshal(Notification{item, n.board.Root()})
	if err != nil {
		return err
	}
	_, err = process.Run(ctx, process.Spec{Command: command, Dir: process.Home(), Stdin: append(line, '\n')})
	return err
}
