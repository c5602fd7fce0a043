package postgres

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/local"
	"deepwork/session/store/postgres/pgtest"
	"deepwork/session/store/transfer"
)

type pile []transfer.Row

func (p pile) Where() string                     { return "a pile" }
func (p pile) Hold(context.Context) error        { return nil }
func (p pile) Release()                          {}
func (p pile) Adapt(r transfer.Row) transfer.Row { return r }
func (p pile) Replace(
	context.Context, func(func(transfer.Row) error, func(func(transfer.Row) error) error) error,
) error {
	return errors.ErrUnsupported
}
func (p pile) Rows(_ context.Context, f func(transfer.Row) error) error {
	for _, r := range p {
		r.Values = maps.Clone(r.Values) // Adapt changes them
		if err := f(r); err != nil {
			return err
		}
	}
	return nil
}

// rowOf is a row with the times of its creation and its last change, and columns that are null.
func rowOf(table string, values map[string]any, null ...string) transfer.Row {
	values["created_at"], values["updated_at"] = made, made
	for _, column := range null {
		values[column] = nil
	}
	return transfer.Row{Table: table, Values: values}
}

const made = "2026-01-02T03:04:05.000000Z"

func shop() pile {
	return pile{
		rowOf("projects", map[string]any{"id": "p1", "name": "shop", "root": int64(1), "listed": int64(1)}),
		rowOf("repos", map[string]any{
			"id":         "r1",
			"project_id": "p1",
			"name":       "shop",
			"path":       "/srv/shop",
			"listed":     int64(0),
		}),
		rowOf("tasks", map[string]any{
			"id":           "t1",
			"project_id":   "p1",
			"title":        "a\x00b\uFDD0",
			"status":       "done",
			"identity":     "local",
			"caller_group": "",
			"lead":         "server",
			"labels":       "a b",
			"priority":     "high",
			"auto_start":   int64(1),
		}, "description", "job_name", "workflow_name", "inputs", "deleting_at"),
		rowOf("attempts", map[string]any{
			"id":           "a1",
			"task_id":      "t1",
			"executor":     "CODER",
			"branch":       "b",
			"workspace":    "/srv/w",
			"state":        "completed",
			"identity":     "local",
			"caller_group": "",
			"machine_id":   "",
			"machine_name": "",
			"root":         "",
			"landed":       "",
			"trace":        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		}, "variant", "prompt", "error", "workflow_session_id", "workflow_status", "workflow_step",
			"push_error", "run"),
		{
			Table: "requests",
			Values: map[string]any{
				"identity":    "local",
				"tool":        "t",
				"request_id":  "1",
				"args_digest": "x",
				"result":      "t1",
				"created_at":  made,
			},
		},
		{Table: "definitions", Values: map[string]any{"hash": "00", "data": `{"text":"\u0000"}`, "put_at": made}},
		{Table: "workflow_sessions", Values: map[string]any{
			"id":           id,
			"revision":     int64(3),
			"root":         "/srv/w",
			"parent":       "",
			"job":          "alpha",
			"workflow":     "main",
			"step":         "one",
			"status":       "active",
			"goal":         "a\x00b\uFDD0",
			"identity":     "local",
			"moved_by":     "00112233aabbccdd",
			"attempt_id":   "a1",
			"machine_id":   "",
			"machine":      "",
			"place":        "",
			"definition":   "00",
			"pinned":       "",
			"waiting":      "",
			"branch":       "",
			"failed_tries": int64(0),
			"started_at":   made,
			"updated_at":   made,
			"frame":        `{"n":3}`,
		}},
		{
			Table: "session_parts",
			Values: map[string]any{
				"session_id": id,
				"kind":       "step",
				"key":        "one",
				"position":   int64(0),
				"body":       `{"x":1}`,
			},
		},
		{
			Table:  "session_requests",
			Values: map[string]any{"key": "07000000000000000000000000000000", "session_id": id},
		},
	}
}

var here = task.Place{MachineID: "0a1b2c3d", MachineName: "host", Root: "/srv/shop"}

// A mortal side kills its process at a point.
type mortal struct {
	transfer.Side
	point string
}

func (m *mortal) at(point string) {
	if p, err := os.FindProcess(os.Getpid()); point == m.point && err == nil && p.Kill() == nil {
		select {}
	}
}

func (m *mortal) Replace(
	ctx context.Context, fill func(func(transfer.Row) error, func(func(transfer.Row) error) error) error,
) error {
	defer m.at("committed")
	return m.Side.Replace(ctx, func(put func(transfer.Row) error, rows func(func(transfer.Row) error) error) error {
		defer m.at("verified")
		puts := 0
		return fill(func(r transfer.Row) error {
			puts++
			m.at(fmt.Sprint("put ", puts))
			return put(r)
		}, rows)
	})
}

func init() {
	roles["copy"] = func(s *Store, in *bufio.Scanner) error {
		in.Scan()
		return second(transfer.Copy(context.Background(), shop(), &mortal{Side: s.Side(here), point: in.Text()}))
	}
}

func textOf(t *testing.T, s transfer.Side, as transfer.Side) (all []string) {
	t.Helper()
	must(t, s.Rows(t.Context(), func(r transfer.Row) error {
		text, err := json.Marshal(as.Adapt(r))
		all = append(all, string(text))
		return err
	}))
	slices.Sort(all)
	return all
}

func whole(t *testing.T, s *Store, complete bool) {
	t.Helper()
	to := s.Side(here)
	must(t, to.Hold(t.Context()))
	defer to.Release()
	testkit.Same(t, textOf(t, to, to), map[bool][]string{true: textOf(t, shop(), to)}[complete], "the store")
}

// The process of a copy is killed at each point: the database has nothing, or everything.
func TestCopyKilled(t *testing.T) {
	t.Parallel()
	for point, complete := range map[string]bool{"put 1": false, "put 9": false, "verified": false, "committed": true} {
		t.Run(point, func(t *testing.T) {
			s, url := openNew(t)
			c := start(t, "copy", url)
			fmt.Fprintln(c.In, point)
			testkit.Need(t, c.Wait() != nil && c.Err.String() == "", "the child did not die: %s", &c.Err)

			whole(t, s, complete)
			err := second(transfer.Copy(t.Context(), shop(), s.Side(here))) // the same again
			testkit.Contains(t, fmt.Sprint(err), map[bool]string{
				true:  "it has 1 session, 1 task, 1 attempt, 1 request_id of the board of this project already",
				false: "<nil>",
			}[complete])

			whole(t, s, true)
		})
	}
}

// What is copied is found as if it had been made here, and what belongs to this machine says so.
func TestCopiedRows(t *testing.T) {
	s := openAt(t, pgtest.Bouncer(t, newURL(t)))
	testkit.Get(transfer.Copy(t.Context(), shop(), s.Side(here))).Must(t)
	sessions := sessionsOf(s)
	testkit.Equal(t, testkit.Get(sessions.FindRequest(t.Context(), store.Key{7})).Must(t), id,
		"the session of the request id")
	testkit.Equal(t, string(testkit.Get(sessions.Definition(t.Context(), "00")).Must(t)), `{"text":"\u0000"}`,
		"the definition")

	copied := testkit.Get(sessions.ReadSession(t.Context(), id, -1)).Must(t)
	testkit.Equal(t, copied.Revision, 3, "the session is %+v", copied)
	testkit.Equal(t, copied.Goal, "a\x00b\uFFFD", "the session is %+v", copied)
	testkit.Equal(t, copied.Frame, `{"n":3}`, "the session is %+v", copied)
	testkit.Need(t, len(copied.Parts) == 1, "the session is %+v", copied)
	testkit.Equal(t, copied.Parts[0].Body, transfer.Placed(`{"x":1}`, here), "the session is %+v", copied)
	testkit.Equal(t, *copied.PlaceOf(), here, "the session is %+v", copied)

	board := s.Database().Board()
	testkit.Equal(t, testkit.Get(board.Attempt(t.Context(), "a1")).Must(t).Place, here, "the attempt lies")
	testkit.Equal(t, testkit.Get(board.Task(t.Context(), "t1")).Must(t).Title, "a\x00b\uFFFD", "the task")
	testkit.Equal(t, len(testkit.Get(board.RepoPaths(t.Context(), here)).Must(t)), 0, "paths of repositories")
	testkit.True(t, testkit.Get(s.GoneFor(t.Context(), here)).Must(t) <= time.Minute,
		"the machine of the attempt is gone")
	testkit.True(t, testkit.Get(sessions.WriteSession(t.Context(), transition(id, 4))).Must(t), "it does not go on")

	must(t, s.Enter(t.Context()))
	err := s.Side(here).Hold(t.Context())
	testkit.ContainsAll(t, fmt.Sprint(err), []string{"a server uses the project", " in /srv/shop)"})
}

func TestCopyExcludesServers(t *testing.T) {
	s, url := newStore(t)
	earlier := openAt(t, url)
	must(t, earlier.Enter(t.Context()))
	ended := transition(id, 1)
	ended.Status = "aborted"
	ended.Define = &store.Definition{Hash: "00", Data: []byte("x")}
	ended.Request = &store.Key{7}
	ended.PutWork = []store.WorkRow{{Kind: "count", Key: "one", Runner: "r", Life: time.Hour}}
	must(t, errors.Join(second(sessionsOf(earlier).WriteSession(t.Context(), ended)),
		sessionsOf(earlier).RemoveSessions(t.Context(), []string{id}), earlier.Close(t.Context())))

	// what is left of sessions that were pruned does not prevent it
	testkit.Get(transfer.Copy(t.Context(), shop(), s.Side(here))).Must(t)
	whole(t, s, true)
	held := s.Side(here)
	must(t, held.Hold(t.Context()))
	for _, root := range []string{"/srv/shop", "/home/shop"} {
		server := openAs(t, url, "shop", root)
		soon, cancel := context.WithTimeout(t.Context(), touchTime)
		testkit.Fails(t, server.Enter(soon), "", "a server has begun in %s", root)
		cancel()
		must(t, server.Close(t.Context()))
	}
	held.Release()
	must(t, openAt(t, url).Enter(t.Context()))
}

func TestCopyLostReply(t *testing.T) {
	t.Parallel()
	for _, reached := range []bool{true, false} {
		url := pgtest.URL(t)
		proxy := pgtest.NewProxy(t, url)
		s := openAt(t, proxy.URL)
		must(t, s.Open(t.Context()))
		cut := proxy.CutAt(func(m pgtest.Message) bool {
			return reached && m.Completes("COMMIT") || !reached && commits(m)
		})
		_, err := transfer.Copy(t.Context(), shop(), s.Side(here))
		testkit.Need(t, caught(cut), "it has not come to the commit: %v", err)
		testkit.True(t, (err == nil) == reached, "it was committed: %v, and the copy says %v", reached, err)
		whole(t, openAt(t, url), reached)
	}
}

// A project goes to a file and back with all that it has. A target that has something is refused, and is left as it is.
func TestCopyToAFileAndBack(t *testing.T) {
	s, url := openNew(t)
	testkit.Get(transfer.Copy(t.Context(), shop(), s.Side(here))).Must(t)
	goesOn := store.WorkRow{Kind: store.RemoteWork, Key: "x"}
	must(t, errors.Join(s.Database().RemoteRuns().Add(t.Context(), &store.RemoteRun{
		ID:              "x",
		State:           store.RemoteWaiting,
		StatusSupported: true,
	}, goesOn), s.Database().Work().Put(t.Context(), &store.WorkRow{Kind: store.RemovalWork, Key: "a1"})))
	weekly := store.Schedule{ID: "w1", Name: "weekly", Cron: "@weekly", Zone: "UTC", Args: json.RawMessage(`{}`),
		Overlap: "skip", CatchUp: "latest", Next: time.Now().Add(time.Hour)}
	must(t, s.Database().Schedules().Add(t.Context(), &weekly))
	must(t, second(s.Database().Schedules().Fire(t.Context(), "w1", time.Time{},
		func(now *store.ScheduleState) store.Decision {
			return store.Decision{Next: now.Next.Add(7 * 24 * time.Hour), DueTime: store.DueTime{DueAt: now.Next,
				Count: 1, Outcome: store.DueSkipped, Reason: "It was late."}}
		}, nil)))
	t.Setenv(state.Env, filepath.Join(t.TempDir(), "state"))
	f := state.Of(t.TempDir())
	must(t, session.MakeState(f))
	mine := testkit.Get(session.PlaceOf(f)).Must(t)
	file := local.NewFile(f)
	counts, err := transfer.Copy(t.Context(), s.Side(mine), file)
	testkit.Need(t, err == nil && counts.String() == "1 session, 1 task, 1 attempt, 1 request_id of the board, "+
		"1 execution of workflows elsewhere", "copied %v, %v", counts, err)

	before := textOf(t, file, file)
	for _, sides := range [][2]transfer.Side{{shop(), file}, {s.Side(mine), file}, {file, s.Side(mine)}} {
		testkit.Fails(t, testkit.Get(transfer.Copy(t.Context(), sides[0], sides[1])).Err(), "of this project already",
			"copied over something")
	}
	testkit.Same(t, textOf(t, file, file), before, "the file")

	other := openAs(t, url, "another", "/srv/shop")
	testkit.Get(transfer.Copy(t.Context(), file, other.Side(mine))).Must(t)
	rows := other.Database().Work()
	must(t, second(rows.Row(t.Context(), goesOn.Kind, goesOn.Key)))
	must(t, second(rows.Row(t.Context(), store.ScheduleWork, "w1")))
	history := testkit.Get(other.Database().Schedules().History(t.Context(), "w1", 9)).Must(t)
	testkit.Need(t, len(history) == 1, "due times: %+v", history)
	testkit.Equal(t, history[0].Reason, "It was late.")
	_, err = rows.Row(t.Context(), store.RemovalWork, "a1")
	testkit.True(t, errors.Is(err, store.ErrNotFound), "work of this store alone: %v", err)
	one, two := s.Side(mine), other.Side(mine)
	must(t, errors.Join(one.Hold(t.Context()), two.Hold(t.Context())))
	defer one.Release()
	defer two.Release()
	testkit.Same(t, textOf(t, two, two), textOf(t, one, one), "what came back")
}
