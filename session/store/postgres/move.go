package postgres

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"deepwork/catalog/task"
	"deepwork/session/store"
	"deepwork/session/store/sqlstore"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

const moveText = `CALL @move_session(NULL, ROW($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23)::@workflow_sessions_all,
	$24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42)`

// refusals are what move_session raises, by their codes.
var refusals = map[string]error{"DW001": store.ErrReviewTaken, "DW002": store.ErrRequested}

// MoveSession implements sqlstore.Mover. The statement is a transaction of its own: it
// names the revision that it replaces. If its reply is lost, the row itself says whether it was made.
func (d database) MoveSession(ctx context.Context, w *store.SessionWrite, now time.Time) (written bool, err error) {
	ctx, cancel := d.deadline(ctx)
	defer cancel()
	scope, err := d.connect(ctx)
	if err != nil {
		return false, err
	}
	args := moveArgs(scope, w, now)
	err = d.again(ctx, func() error {
		c, err := d.pool.Conn(ctx)
		if err != nil {
			return &notSent{err}
		}
		defer c.Close()
		err = c.Raw(func(driver any) error {
			return driver.(*stdlib.Conn).Conn().QueryRow(ctx, d.text(moveText), args...).Scan(&written)
		})
		if err != nil && !sure(err) {
			err = fmt.Errorf("%w: the database did not confirm the change: %w", store.ErrPending, err)
		}
		return err
	})
	if said, refused := errors.AsType[*pgconn.PgError](err); refused && refusals[said.Code] != nil {
		err = refusals[said.Code]
	}
	switch {
	case err != nil:
		return false, err
	case !written && w.Before < 0:
		return false, store.ErrExists
	case written:
		d.hint()
	}
	return written, nil
}

// moveArgs returns the arguments of moveText.
func moveArgs(scope int64, w *store.SessionWrite, now time.Time) []any {
	var put struct {
		kinds, keys, bodies []string
		positions           []int64
	}
	for _, p := range w.Put {
		put.kinds, put.keys, put.bodies = append(put.kinds, p.Kind), append(put.keys, plainText(p.Key)), append(put.bodies, plainText(p.Body))
		put.positions = append(put.positions, p.Position)
	}
	var gone struct{ kinds, keys []string }
	for _, p := range w.Gone {
		gone.kinds, gone.keys = append(gone.kinds, p.Kind), append(gone.keys, plainText(p.Key))
	}
	var request, hash, data, began, runner, total, life, verdict, judge any
	if w.Request != nil {
		request = hex.EncodeToString(w.Request[:])
	}
	if d := w.Define; d != nil {
		hash, data = d.Hash, string(d.Data)
	}
	if r := w.Began; r != nil {
		began, runner, total, life = r.Step, r.Runner, r.Total, r.Life.Seconds()
	}
	if r := w.Verdict; r != nil {
		verdict, judge = r.Step, r.Runner
	}
	var reviewed []string
	for _, step := range w.Reviewed {
		reviewed = append(reviewed, plainText(step))
	}
	row := append([]any{scope}, sqlstore.Values(&w.Session)...) // in the order of the table's columns
	return plain(append(row, w.Frame, w.Before, task.FormatTime(now), put.kinds, put.keys, put.positions, put.bodies, gone.kinds, gone.keys,
		request, hash, data, sqlstore.Fresh(now), began, runner, total, life, verdict, judge, reviewed))
}
