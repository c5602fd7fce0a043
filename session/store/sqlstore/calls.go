package sqlstore

import (
	"context"
	"encoding/json"
	"strings"

	"deepwork/catalog/task"
	"deepwork/session/store"
)

// calls is a Store in its role as store.LongCalls.
type calls struct{ *Store }

var callColumns = Columns[store.LongCall]()

func (s calls) Add(ctx context.Context, c *store.LongCall) (*store.LongCall, error) {
	return write(ctx, s, "storing a task", func(t Tx) *store.LongCall {
		t.Exec(`INSERT INTO long_calls (`+callColumns+`) VALUES (`+parameters(1+strings.Count(callColumns, ","))+
			`) ON CONFLICT DO NOTHING`, Values(c)...)
		return working(t, c.Identity, c.Key)
	})
}

func working(t Tx, identity, key string) *store.LongCall {
	return firstRow[store.LongCall](t,
		`SELECT `+callColumns+` FROM long_calls c WHERE identity = ? AND key = ? AND ended_at IS NULL`, identity, key)
}

func (s calls) LongCall(ctx context.Context, identity, id string) (*store.LongCall, error) {
	return readOnce(ctx, s, "reading a task", func(t Tx) *store.LongCall { return s.only(t, identity, id) })
}

func (s calls) only(t Tx, identity, id string) *store.LongCall {
	return mustFirstRow[store.LongCall](t, "task", id,
		`SELECT `+callColumns+` FROM long_calls c WHERE id = ? AND identity = ? AND (ended_at IS NULL OR ended_at > ?)`,
		id, identity, s.forgotten())
}

// forgotten returns the time before which ended calls are no longer kept.
func (s calls) forgotten() string { return task.FormatTime(s.o.Now().Add(-store.LongCallKeptFor)) }

func (s calls) End(ctx context.Context, identity, id, status string, result json.RawMessage) (*store.LongCall, error) {
	return write(ctx, s, "ending a task", func(t Tx) *store.LongCall {
		t.Exec(`UPDATE long_calls SET status = ?, result = ?, ended_at = ? WHERE id = ? AND identity = ? AND `+
			`ended_at IS NULL`, status, textOf(result), t.Now, id, identity)
		t.Exec(`DELETE FROM long_calls WHERE ended_at <= ?`, s.forgotten())
		return s.only(t, identity, id)
	})
}

func (s calls) Working(ctx context.Context, identity, after string, limit int) ([]store.LongCall, error) {
	return readOnce(ctx, s, "listing tasks", func(t Tx) []store.LongCall {
		return List[store.LongCall](t,
			`SELECT `+callColumns+
				` FROM long_calls c WHERE ended_at IS NULL AND id > ? AND (? = '' OR identity = ?) ORDER BY id LIMIT ?`,
			after, identity, identity, limit)
	})
}

func (s calls) Count(ctx context.Context, identity string) (int, error) {
	return readOnce(ctx, s, "counting tasks", func(t Tx) int {
		return t.count(`SELECT count(*) FROM long_calls c WHERE identity = ? AND ended_at IS NULL`, identity)
	})
}
