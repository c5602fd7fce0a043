package postgres

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"deepwork/catalog/task"
	"deepwork/session/store"
	"deepwork/session/store/sqlstore"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

const moveText = `CALL @move_sessions(NULL, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`

// refusals are the errors that move_sessions raises, by code.
var refusals = map[string]error{
	"DW001": store.ErrWorkTaken,
	"DW002": store.ErrRequested,
}

// MoveSession implements sqlstore.Mover. The statement is a transaction of its own, or part of a group's, and
// names the revision that it replaces. If its reply is lost, the row itself shows whether it was carried out.
func (d database) MoveSession(ctx context.Context, w *store.SessionWrite, now time.Time) (written bool, err error) {
	ctx, cancel := d.deadline(ctx)
	defer cancel()
	made, err := d.inGroup(ctx, w, now)
	if made == nil && err == nil {
		var all []*bool
		if all, err = d.move(ctx, now, w); err == nil {
			made = all[0]
		}
	}

	if said, refused := errors.AsType[*pgconn.PgError](err); refused && refusals[said.Code] != nil {
		err = refusals[said.Code]
	}
	switch {
	case err != nil:
		return false, err
	case !*made && w.Before < 0:
		return false, store.ErrExists
	case *made:
		d.hint()
	}

	return *made, nil
}

// move makes transitions in one transaction. In a group, the result is nil for a transition that must be
// tried alone.
func (d database) move(ctx context.Context, now time.Time, writes ...*store.SessionWrite) (made []*bool, err error) {
	scope, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	args := moveArgs(scope, now, writes)
	err = d.retry(ctx, func() error {
		c, err := d.pool.Conn(ctx)
		if err != nil {
			return &notSent{err}
		}
		defer c.Close()
		err = c.Raw(func(driver any) error {
			return driver.(*stdlib.Conn).Conn().QueryRow(ctx, d.text(moveText), args...).Scan(&made)
		})
		if err != nil && !notApplied(err) {
			err = fmt.Errorf("%w: the database did not confirm the change: %w", store.ErrPending, err)
		}
		return err
	})
	return made, err
}

// moveArgs returns the arguments of moveText.
func moveArgs(scope int64, now time.Time, writes []*store.SessionWrite) []any {
	var ids, sessions []string
	var options []*string
	var befores []int64
	var put struct {
		kinds, keys, bodies []string
		positions, ends     []int64
	}
	var gone struct {
		kinds, keys []string
		ends        []int64
	}
	for _, w := range writes {
		ids, befores = append(ids, w.ID), append(befores, w.Before)
		for _, v := range plain(sqlstore.Values(&w.Session)) { // in the order of the table's columns
			sessions = append(sessions, fmt.Sprint(v))
		}
		sessions = append(sessions, plainText(w.Frame))
		options = append(options, optionsOf(w)...)
		for _, p := range w.Put {
			put.kinds, put.keys, put.bodies = append(put.kinds, p.Kind), append(put.keys, plainText(p.Key)),
				append(put.bodies, plainText(p.Body))
			put.positions = append(put.positions, int64(p.Position))
		}
		put.ends = append(put.ends, int64(len(put.keys)))
		for _, p := range w.Gone {
			gone.kinds, gone.keys = append(gone.kinds, p.Kind), append(gone.keys, plainText(p.Key))
		}
		gone.ends = append(gone.ends, int64(len(gone.keys)))
	}
	return []any{scope, task.FormatTime(now), sqlstore.Fresh(now), ids, befores, sessions, options, put.ends, put.kinds,
		put.keys, put.positions, put.bodies, gone.ends, gone.kinds, gone.keys}
}

// optionsOf returns the parts that not every transition has: request, definition and work.
func optionsOf(w *store.SessionWrite) []*string {
	all := make([]*string, 4)
	if w.Request != nil {
		all[0] = new(hex.EncodeToString(w.Request[:]))
	}
	if d := w.Define; d != nil {
		all[1], all[2] = &d.Hash, new(plainText(string(d.Data)))
	}
	all[3] = workOf(w)
	return all
}

// workOf returns the changes of work that a transition makes, for change_work, or nil.
func workOf(w *store.SessionWrite) *string {
	type change struct {
		Removed     bool    `json:"removed"`
		Kind        string  `json:"kind"`
		Key         string  `json:"key"`
		About       *string `json:"about"`
		Place       string  `json:"place"`
		In          float64 `json:"in"`
		Runner      string  `json:"runner"`
		RunnerPlace string  `json:"runner_place"`
		Life        float64 `json:"life"`
	}

	var all []change
	for _, r := range w.EndWork {
		all = append(all, change{Removed: true, Kind: r.Kind, Key: plainText(r.Key), Runner: r.Runner})
	}
	for _, r := range w.PutWork {
		c := change{
			Kind: r.Kind, Key: plainText(r.Key), Place: r.Place, In: r.In.Seconds(),
			Runner: r.Runner, RunnerPlace: r.RunnerPlace, Life: r.Life.Seconds(),
		}
		if r.About != nil {
			c.About = new(plainText(string(r.About)))
		}
		all = append(all, c)
	}
	if all == nil {
		return nil
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // it has texts and numbers only
	}
	return new(string(text))
}
