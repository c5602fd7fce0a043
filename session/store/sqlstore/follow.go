package sqlstore

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"deepwork/session/store"
)

// among is the condition for ids in a text of ids, which all have the same length.
const among = `instr(?1, id) > 0`

func textOfIDs(ids []string) string { return strings.Join(ids, " ") }

func (e executions) Renew(ctx context.Context, owner string, life time.Duration, following map[string]json.RawMessage) ([]string, error) {
	ids := textOfIDs(slices.Collect(maps.Keys(following)))
	return transact(ctx, e.Store, "renewing executions", Unsynced, func(t Tx) ([]string, error) {
		held, err := List[string](t, `UPDATE workflow_executions SET until = `+dbTime+` + ?2 WHERE owner = ?3 AND `+isOpen+` AND `+among+` RETURNING id`, ids, life.Seconds(), owner)
		for _, id := range held {
			if progress := following[id]; progress != nil && err == nil {
				_, err = t.Exec(`UPDATE workflow_executions SET progress = ? WHERE id = ? AND owner = ? AND `+isOpen, string(progress), id, owner)
				t.changed(store.ExecutionChanged, id)
			}
		}
		return held, err
	})
}

func (e executions) Release(ctx context.Context, owner string) error {
	_, err := statement(ctx, e.Store, "leaving executions to other servers", Unsynced, `UPDATE workflow_executions SET until = `+dbTime+` WHERE owner = ? AND `+isOpen, owner)
	return err
}

func (e executions) Due(ctx context.Context, following []string) (in time.Duration, found bool, err error) {
	seconds, err := read(ctx, e.Store, "looking for executions of other servers", func(t Tx) (s *float64, err error) {
		_, err = t.First(`SELECT min(until) - `+dbTime+` FROM workflow_executions WHERE `+isOpen+` AND NOT `+among, []any{textOfIDs(following)}, &s)
		return s, err
	})
	if seconds == nil {
		return 0, false, err
	}
	return time.Duration(*seconds * float64(time.Second)), true, nil
}

func (e executions) TakeUp(ctx context.Context, owner string, life time.Duration, following []string) ([]store.Execution, error) {
	return write(ctx, e.Store, "taking up executions", func(t Tx) ([]store.Execution, error) {
		all, err := List[store.Execution](t, `UPDATE workflow_executions SET owner = ?2, until = `+dbTime+` + ?3,
			ended_at = CASE state WHEN 'running' THEN NULL ELSE max(?4, started_at) END,
			progress = CASE state WHEN 'running' THEN progress END,
			error = CASE state WHEN 'waiting' THEN ?5 WHEN 'starting' THEN ?6 ELSE error END,
			state = CASE state WHEN 'waiting' THEN 'failed' WHEN 'starting' THEN 'unknown' ELSE state END
			WHERE `+isOpen+` AND `+isLapsed+` AND NOT `+among+` RETURNING `+executionColumns,
			textOfIDs(following), owner, life.Seconds(), e.stamp(), store.NeverStarted, store.LostSight)
		for _, x := range all {
			t.changed(store.ExecutionChanged, x.ID)
		}
		return all, err
	})
}

func (e executions) AskCancel(ctx context.Context, id string) error {
	return change(ctx, e.Store, "asking to cancel an execution", func(t Tx) error {
		t.changed(store.ExecutionChanged, id)
		_, err := t.Exec(`UPDATE workflow_executions SET cancel_asked = coalesce(cancel_asked, ?) WHERE id = ? AND `+isOpen, t.Now, id)
		return err
	})
}

func (e executions) Asked(ctx context.Context, owner string) ([]string, error) {
	return read(ctx, e.Store, "looking for executions to cancel", func(t Tx) ([]string, error) {
		return List[string](t, `SELECT id FROM workflow_executions WHERE owner = ? AND cancel_asked IS NOT NULL AND `+isOpen, owner)
	})
}

func (e executions) Watch(ctx context.Context, look func() (done bool, err error)) error {
	return e.watch(ctx, e.o.Poll, e.o.Feed.Version, look)
}
