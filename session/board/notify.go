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
	notifyPoll  = 2 * time.Second        // maximum time between two looks, if no change is reported
	notifyPause = 250 * time.Millisecond // minimum time between two looks
	notifyTime  = 30 * time.Second       // for one run of the command
	maxNotified = 4 << 20                // bytes of the record of notified items
)

// A Notification is what the notify command gets on its stdin, as one line of JSON.
type Notification struct {
	Attention
	Project string `json:"project"` // its root, in which a person runs the item's command
}

// A notifier runs the command in the user's own config for each new item that needs a person, oldest first
// and one at a time. Of the project's servers on this machine, only the holder of a lock does so. An item is
// recorded after the command has run, so only a crash makes it run twice, and forgotten when it is gone. A
// notifier belongs to one goroutine.
type notifier struct {
	board      *Board
	position   string // in the feed of changes
	lock       *durable.FileLock
	known      []string // the keys of the notified items
	lastLogged string   // the last error logged
}

// Notify notifies until ctx ends.
func (b *Board) Notify(ctx context.Context) {
	n := &notifier{board: b}
	for ; ctx.Err() == nil; n.wait(ctx) {
		cfg, err := b.Config(ctx)
		if err != nil {
			continue // config errors are logged elsewhere
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
		_ = n.lock.Unlock() // ends with this process anyway
	}
}

// wait waits for a change, or until the next look is due: some items change without one.
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
		<-ctx.Done() // the feed is only a hint
	}
}

// look notifies of new items, unless another server does so.
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
		if item.Kind == AttentionSource { // one run may ask several questions
			key += " " + item.Title
		}
		now = append(now, key)
		if slices.Contains(n.known, key) {
			continue
		}
		err := n.run(ctx, cfg.Notify, item)
		if err != nil && ctx.Err() != nil {
			return ctx.Err() // the next server notifies again
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
	n.known = known // do not notify again even if the disk is full
	return err
}

// run runs the command in the user's home folder, so that nothing in the project can influence it.
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
