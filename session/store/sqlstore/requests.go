package sqlstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"

	"github.com/google/uuid"
)

// The pause between polls for an answer; Options.Poll is that for requests. A poll reads the
// database's version, and more only if that has changed.
const (
	lookForAnswer = 50 * time.Millisecond
	answersKept   = time.Hour
)

// requests is a Store as store.Requests.
type requests struct{ *Store }

// An answer is the stored answer of an owner.
type answer struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
	Kind   session.Kind    `json:"kind,omitempty"` // of a session.Error
	Code   string          `json:"code,omitempty"`
	Detail map[string]any  `json:"details,omitempty"`
}

func (r requests) Ask(ctx context.Context, q store.Request) (json.RawMessage, error) {
	id := uuid.NewString()
	caller, err := json.Marshal(q.Caller)
	if err != nil {
		return nil, err
	}
	err = change(ctx, r.Store, "asking the owner", func(t Tx) error {
		if _, err := t.Exec(`DELETE FROM owner_requests WHERE asked_at < ?`, task.FormatTime(r.o.Now().Add(-answersKept))); err != nil {
			return err
		}
		_, err := t.Exec(`INSERT INTO owner_requests (id, kind, target, action, arguments, caller, channel, state, asked_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, 'asked', ?)`, id, q.Kind, q.Target, q.Action, textOf(q.Arguments), string(caller), q.Caller.Channel, t.Now)
		return err
	})
	if err != nil {
		return nil, err
	}
	patience, cancel := context.WithTimeoutCause(ctx, store.AnswerTime, store.ErrNotAnswered)
	defer cancel()
	var text string
	err = r.watch(patience, lookForAnswer, r.db.Version, func() (done bool, err error) {
		return read(patience, r.Store, "waiting for the answer", func(t Tx) (bool, error) {
			return t.First(`SELECT answer FROM owner_requests WHERE id = ? AND state = 'answered'`, []any{id}, &text)
		})
	})
	if err != nil {
		switch {
		case ctx.Err() != nil: // which a database reports as its own error
			err = context.Cause(ctx)
		case patience.Err() != nil:
			err = store.ErrNotAnswered
		}
		return nil, err
	}
	var a answer
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return nil, fmt.Errorf("reading the answer of the owner: %w", err)
	}
	switch {
	case a.Kind != "":
		return nil, &session.Error{Kind: a.Kind, Code: a.Code, Message: a.Error, Details: a.Detail}
	case a.Error != "":
		return nil, errors.New(a.Error)
	}
	return a.Result, nil
}

// A storedRequest is a row of owner_requests.
type storedRequest struct {
	store.Request
	Caller, Channel string
}

// request returns the request. A caller that cannot be read is nobody.
func (q storedRequest) request() store.Request {
	r := q.Request
	if json.Unmarshal([]byte(q.Caller), &r.Caller) != nil {
		r.Caller = session.Caller{Channel: q.Channel}
	}
	return r
}

func (r requests) Serve(ctx context.Context, kind string, owns func(id string) bool, do func(context.Context, store.Request) (any, error)) {
	var running sync.WaitGroup
	defer running.Wait()
	const doing = "looking for requests"
	logged := ""
	for ctx.Err() == nil {
		err := r.watch(ctx, r.o.Poll, r.db.Version, func() (again bool, err error) {
			if !r.db.Exists() {
				return false, nil
			}
			asked, err := read(ctx, r.Store, doing, func(t Tx) ([]storedRequest, error) {
				return List[storedRequest](t, `SELECT id, kind, target, action, arguments, caller, channel, asked_at FROM owner_requests
					WHERE state = 'asked' AND kind = ? AND asked_at > ?`, kind, task.FormatTime(r.o.Now().Add(-store.RequestLife)))
			})
			for _, q := range asked {
				again = true // one that is not owned here yet may be soon
				if err == nil && owns(q.Target) {
					err = r.take(ctx, &running, q.request(), do)
				}
			}
			return again, err
		})
		said := logged
		if logged = ""; err != nil && ctx.Err() == nil {
			logged = err.Error()
		}
		if logged != said && logged != "" {
			r.o.Logger.Warn("requests of other processes cannot be read now; trying again", "kind", kind, "error", err)
		}
		_ = wait.For(ctx, r.o.Poll)
	}
}

// take claims a request, and carries it out on its own goroutine unless another process was faster.
func (r requests) take(ctx context.Context, running *sync.WaitGroup, q store.Request, do func(context.Context, store.Request) (any, error)) error {
	taken, err := statement(ctx, r.Store, "taking a request", Single, `UPDATE owner_requests SET state = 'taken', taken_at = ? WHERE id = ? AND state = 'asked'`, r.stamp(), q.ID)
	if err != nil || taken == 0 {
		return err
	}
	running.Go(func() {
		var a answer
		result, err := do(ctx, q)
		if err == nil && result != nil {
			a.Result, err = json.Marshal(result)
		}
		if e, is := errors.AsType[*session.Error](store.Refused(err)); is {
			a = answer{Error: e.Message, Kind: e.Kind, Code: e.Code, Detail: e.Details}
		} else if err != nil {
			a = answer{Error: err.Error()}
		}
		text, err := json.Marshal(a)
		if err == nil {
			// Even while the server ends: requests carried out are answered.
			patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.AnswerTime)
			defer cancel()
			_, err = statement(patience, r.Store, "answering", Single, `UPDATE owner_requests SET state = 'answered', answer = ?, answered_at = ? WHERE id = ?`, string(text), r.stamp(), q.ID)
		}
		if err != nil {
			r.o.Logger.Warn("a request of another process cannot be answered", "kind", q.Kind, "target", q.Target, "action", q.Action, "error", err)
		}
	})
	return nil
}
