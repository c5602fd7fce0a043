package board

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"deepwork/actor/durable"
	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/notify"
	"deepwork/session/state"
)

// The pace of notifications.
const (
	notifyPoll  = 2 * time.Second        // maximum time between two looks, if no change is reported
	notifyPause = 250 * time.Millisecond // minimum time between two looks
	maxNotified = 4 << 20                // bytes of the record of what was sent
	maxWords    = 300                    // characters of words of the work in a notification
)

// A Notification is what the notify command gets on its stdin, as one line of JSON.
type Notification struct {
	Attention
	Project string `json:"project"` // its root, in which a person runs the item's command
	Link    string `json:"link"`    // of its page, which deepwork ui serves
}

// Message returns the notification of an item of the project with this state. text is for people. There is no link if
// the project has no state yet.
func (a *Attention) Message(f *state.Folder, text string) (*notify.Message, error) {
	link := ""
	if port, _, err := f.PagesPort("", "", false); err == nil {
		link = fmt.Sprintf("http://127.0.0.1:%d%s", port, a.Page())
	}
	line, err := json.Marshal(Notification{*a, f.Root, link})
	return &notify.Message{
		Title: "deepwork: " + filepath.Base(f.Root),
		Text:  text,
		Link:  link,
		Item:  append(line, '\n'),
	}, err
}

// A notifier sends each new item that needs a person, oldest first and one at a time, in all ways that the user's own
// config names. Of the project's servers on this machine, only the holder of a lock does so. An item is recorded for
// each way after it was sent, so only a crash sends it twice, and forgotten when it is gone. A notifier belongs to one
// goroutine.
type notifier struct {
	board      *Board
	position   string // in the feed of changes
	lock       *durable.FileLock
	known      []string // the ways and keys of the items that were sent
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
		if len(notify.Ways(cfg.Notify)) > 0 {
			err = n.look(ctx, cfg.Notify)
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
func (n *notifier) look(ctx context.Context, cfg config.Notify) error {
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
		key := keyOf(&item, r.Items)
		if key == "" {
			continue
		}
		now = append(now, key)
		if err := n.send(ctx, cfg, &item, key); err != nil {
			return err
		}
	}

	kept := slices.DeleteFunc(slices.Clone(n.known), func(known string) bool {
		_, key, _ := strings.Cut(known, " ")
		return !slices.Contains(now, key)
	})
	if r.Truncated || len(kept) == len(n.known) {
		return nil
	}
	return n.record(kept)
}

// keyOf returns what tells an item from others of which a person is notified, or "" for a run that stopped because of a
// step that is an item of its own.
func keyOf(item *Attention, all []Attention) string {
	key := item.Kind + " " + item.ID
	switch {
	case item.Kind == AttentionRun && slices.ContainsFunc(all, func(other Attention) bool {
		return other.Waits != nil && other.Waits.AttemptID == item.ID
	}):
		return ""
	case item.Kind == AttentionSource: // one run may ask several questions
		return key + " " + OrEmpty(item.Since) + " " + item.Title
	case item.Since == nil, item.Kind == AttentionUntrusted, item.Kind == AttentionLimit: // a save or a try is no news
		return key
	}
	return key + " " + *item.Since
}

// send sends an item in all ways at once in which it was not sent yet.
func (n *notifier) send(ctx context.Context, cfg config.Notify, item *Attention, key string) error {
	ways := slices.DeleteFunc(notify.Ways(cfg), func(w notify.Way) bool {
		return slices.Contains(n.known, w.Name+" "+key)
	})
	if len(ways) == 0 {
		return nil
	}

	text := item.Summary()
	if cfg.Content {
		for _, words := range []string{item.Title, OrEmpty(item.Why)} {
			if words = jsontext.Clip(strings.Join(strings.Fields(words), " "), maxWords); words != "" {
				text += "\n" + words
			}
		}
	}
	m, err := item.Message(n.board.State(), text)
	if err != nil {
		return err
	}

	failures := make([]error, len(ways))
	var sending sync.WaitGroup
	for i, w := range ways {
		sending.Go(func() { failures[i] = w.Send(ctx, m) })
	}
	sending.Wait()
	known := slices.Clone(n.known)
	for i, err := range failures {
		if err != nil && ctx.Err() != nil {
			continue // the next server sends it
		}
		if err != nil {
			n.board.Log.Warn("a notification was not sent, and is not sent again", "way", ways[i].Name,
				"kind", item.Kind, "id", item.ID, "error", err)
		}
		known = append(known, ways[i].Name+" "+key)
	}
	return cmp.Or(n.record(known), ctx.Err())
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
