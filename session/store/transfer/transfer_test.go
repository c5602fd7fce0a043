package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/actor/xslices"
	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store/local"
	"deepwork/session/store/transfer"
)

// A pile is a side in memory.
type pile struct {
	name     string
	rows     []transfer.Row
	held     bool
	hold     error
	spoil    func(written []transfer.Row) []transfer.Row // what the store makes of what it was given
	changing []transfer.Row                              // rows that appear at the second look
	looks    int
}

func (p *pile) Where() string { return p.name }

func (p *pile) Hold(context.Context) error {
	p.held = p.hold == nil
	return p.hold
}

func (p *pile) Release() { p.held = false }

func (p *pile) Adapt(r transfer.Row) transfer.Row {
	r.Values = maps.Clone(r.Values)
	r.Values["root"] = p.name
	return r
}

func (p *pile) Rows(_ context.Context, f func(transfer.Row) error) error {
	p.looks++
	if p.looks == 2 {
		p.rows = append(p.rows, p.changing...)
	}
	return each(p.rows, f)
}

func (p *pile) Replace(
	_ context.Context, fill func(func(transfer.Row) error, func(func(transfer.Row) error) error) error,
) error {
	for range 2 { // the first time its transaction is undone
		var written []transfer.Row
		err := fill(func(r transfer.Row) error {
			written = append(written, r)
			return nil
		}, func(f func(transfer.Row) error) error {
			if p.spoil != nil {
				written = p.spoil(written)
			}
			return each(written, f)
		})
		if err != nil {
			return err
		}
		p.rows = written
	}

	return nil
}

func each(rows []transfer.Row, f func(transfer.Row) error) error {
	for _, r := range rows {
		if err := f(r); err != nil {
			return err
		}
	}
	return nil
}

// rows are some of a table.
func rows(table string, ids ...string) (all []transfer.Row) {
	for _, id := range ids {
		all = append(all, transfer.Row{Table: table, Values: map[string]any{"id": id, "root": ""}})
	}
	return all
}

// agent is an execution of attempt a in a state.
func agent(state string) []transfer.Row {
	return []transfer.Row{{
		Table:  "executions",
		Values: map[string]any{"id": "e", "root": "", "state": state, "attempt_id": "a"},
	}}
}

// A copy has all rows as its target has them, or nothing is written; both sides are held meanwhile.
func TestCopy(t *testing.T) {
	drop := func(w []transfer.Row) []transfer.Row { return w[1:] }
	change := func(w []transfer.Row) []transfer.Row { return append(rows(w[0].Table, "other"), w[1:]...) }
	swap := func(w []transfer.Row) []transfer.Row { return []transfer.Row{w[1], w[0]} }
	for _, c := range []struct {
		name     string
		from, to pile
		want     string // the counts, or the error after the names of both
	}{
		{"nothing", pile{}, pile{}, "nothing"},
		{"one and many",
			pile{rows: slices.Concat(rows("workflow_sessions", "a", "b"), rows("tasks", "t"),
				rows("requests", "1", "2"), rows("definitions", "d"))}, pile{},
			"2 sessions, 1 task, 2 request_ids of the board"},
		{"a target with projects only", pile{rows: rows("usages", "u")}, pile{rows: rows("projects", "p")},
			"1 record of what agents used"},
		{"an agent that has ended", pile{rows: append(agent("ended"), rows("tasks", "t")...)}, pile{}, "1 task"},
		{"rows whose order does not matter", pile{rows: rows("tasks", "a", "b")}, pile{spoil: swap}, "2 tasks"},
		{"rows whose order matters", pile{rows: rows("usages", "a", "b")}, pile{spoil: swap},
			"verifying the copy in there: usages differ: 2 were copied, and there are 2"},
		{"a target with something", pile{rows: rows("tasks", "t")}, pile{rows: rows("attempts", "a")},
			"looking at there: it has 1 attempt of this project already"},
		{"an agent that starts", pile{rows: agent("starting")}, pile{},
			"execution e of attempt a is starting, and cannot be moved"},
		{"an agent that runs", pile{rows: agent("running")}, pile{},
			"execution e of attempt a is running, and cannot be moved"},
		{"a row that is lost", pile{rows: rows("tasks", "t")}, pile{spoil: drop},
			"verifying the copy in there: tasks differ: 1 were copied, and there are 0"},
		{"a row that is changed", pile{rows: rows("tasks", "t")}, pile{spoil: change},
			"verifying the copy in there: tasks differ: 1 were copied, and there are 1"},
		{"a source that changes", pile{rows: rows("tasks", "t"), changing: rows("tasks", "u")}, pile{},
			"verifying the copy in here: tasks differ: 1 were copied, and there are 2"},
		{"a server at the source", pile{hold: errors.New("a server runs")}, pile{},
			"copying here to there: a server runs"},
		{"a server at the target", pile{}, pile{hold: errors.New("a server runs")},
			"copying here to there: a server runs"},
	} {
		from, to := &c.from, &c.to
		from.name, to.name = "here", "there"
		before := slices.Clone(to.rows)
		counts, err := transfer.Copy(t.Context(), from, to)
		testkit.True(t, !from.held && !to.held, "%s: a side is still held", c.name)
		if err != nil {
			testkit.Contains(t, err.Error(), c.want, "%s", c.name)
			testkit.Same(t, to.rows, before, "%s: the target was changed", c.name)
			continue
		}
		testkit.Equal(t, counts.String(), c.want, "%s", c.name)
		want := xslices.Map(from.rows, to.Adapt)
		if to.spoil != nil {
			want = to.spoil(want)
		}
		testkit.Same(t, to.rows, want, "%s", c.name)
		testkit.True(t, !strings.Contains(c.want, "verifying") && from.looks > 1, "%s: it was not verified", c.name)
	}
}

// What is put into a board is read from it again, and rows that it cannot have are refused with the table.
func TestRowsOfABoard(t *testing.T) {
	t.Setenv(state.Env, t.TempDir())
	f := state.Of(t.TempDir())
	testkit.Must(t, session.MakeState(f))
	board := local.NewFile(f)
	const at = "2026-01-02T03:04:05.000000Z"
	project := func(id string) transfer.Row {
		return transfer.Row{
			Table: "projects",
			Values: map[string]any{
				"id":         id,
				"name":       id,
				"root":       int64(0),
				"listed":     int64(1),
				"created_at": at,
				"updated_at": at,
			},
		}
	}

	request := transfer.Row{
		Table: "requests",
		Values: map[string]any{
			"identity":    "local",
			"tool":        "t",
			"request_id":  "1",
			"args_digest": "x",
			"result":      "t1",
			"created_at":  at,
		},
	}
	unknown := project("p2")
	unknown.Values["colour"] = "red"
	some := func(want string, all ...transfer.Row) {
		t.Helper()
		err := board.Replace(t.Context(),
			func(put func(transfer.Row) error, rows func(func(transfer.Row) error) error) error {
				n := 0
				if err := each(all, put); err != nil {
					return err
				}
				defer func() { testkit.Equal(t, n, len(all), "rows within the transaction") }()
				return rows(func(transfer.Row) error {
					n++
					return nil
				})
			})
		testkit.True(t, (err == nil) == (want == "") && strings.Contains(fmt.Sprint(err), want), "%v, want %q",
			err, want)
	}
	some("", request, project("p1"), project("p3"))
	some("", project("p1"), request) // in place of those before
	some("preparing the sqlite_master of the board", project("p2"),
		transfer.Row{Table: "sqlite_master", Values: map[string]any{"id": "x"}})
	some("it has no column colour: update the deepwork that uses it", unknown)
	some("writing a row of the projects of the board (p2)", project("p2"), project("p2"))
	var got []transfer.Row
	testkit.Must(t, board.Rows(t.Context(), func(r transfer.Row) error {
		got = append(got, r)
		return nil
	}))
	testkit.Same(t, got, []transfer.Row{project("p1"), request})
	testkit.FailsWith(t, board.Rows(t.Context(), func(transfer.Row) error { return errors.ErrUnsupported }),
		errors.ErrUnsupported)
}
