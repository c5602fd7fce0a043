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
	"strings"
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

// A pile is a side with these rows, from which is copied.
type pile []transfer.Row

func (p pile) Where() string                     { return "a pile" }
func (p pile) Hold(context.Context) error        { return nil }
func (p pile) Release()                          {}
func (p pile) Adapt(r transfer.Row) transfer.Row { return r }
func (p pile) Replace(context.Context, func(func(transfer.Row) error, func(func(transfer.Row) error) error) error) error {
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

// rowOf is a row with the times of its creation and its last change.
func rowOf(table string, values map[string]any) transfer.Row {
	for _, column := range []string{"created_at", "updated_at"} {
		if _, given := values[column]; !given {
			values[column] = "2026-01-02T03:04:05.000000Z"
		}
	}
	return transfer.Row{Table: table, Values: values}
}

// shop is a project in a file.
func shop() pile {
	return pile{
		rowOf("projects", map[string]any{"id": "p1", "name": "shop", "root": int64(1), "listed": int64(1)}),
		rowOf("repos", map[string]any{"id": "r1", "project_id": "p1", "name": "shop", "path": "/srv/shop", "listed": int64(0)}),
		rowOf("tasks", map[string]any{"id": "t1", "project_id": "p1", "title": "a\x00b\uFDD0", "description": nil, "status": "done", "job_name": nil, "workflow_name": nil, "inputs": nil, "deleting_at": nil, "identity": "local", "caller_group": "", "lead": "server", "labels": "a b", "priority": "high", "auto_start": int64(1)}),
		rowOf("attempts", map[string]any{"remove_asked": nil, "removal": nil, "id": "a1", "task_id": "t1", "executor": "CODER", "branch": "b", "workspace": "/srv/w", "state": "completed", "identity": "local", "caller_group": "",
			"machine_id": "", "machine_name": "", "root": "", "variant": nil, "prompt": nil, "error": nil, "workflow_session_id": nil, "workflow_status": nil, "workflow_step": nil, "push_error": nil, "landed": "", "run": nil, "trace": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}),
		{Table: "requests", Values: map[string]any{"identity": "local", "tool": "t", "request_id": "1", "args_digest": "x", "result": "t1", "created_at": "2026-01-02T03:04:05.000000Z"}},
		{Table: "definitions", Values: map[string]any{"hash": "00", "data": `{"text":"\u0000"}`, "put_at": "2026-01-02T03:04:05.000000Z"}},
		{Table: "workflow_sessions", Values: map[string]any{"id": id, "revision": int64(3), "root": "/srv/w", "parent": "", "job": "alpha", "workflow": "main", "step": "one", "status": "active",
			"goal": "a\x00b\uFDD0", "identity": "local", "moved_by": "00112233aabbccdd", "attempt_id": "a1", "machine_id": "", "machine": "", "place": "", "definition": "00", "pinned": "", "waiting": "", "branch": "",
			"started_at": "2026-01-02T03:04:05.000000Z", "updated_at": "2026-01-02T03:04:06.000000Z", "frame": `{"n":3}`}},
		{Table: "session_parts", Values: map[string]any{"session_id": id, "kind": "step", "key": "one", "position": int64(0), "body": `{"x":1}`}},
		{Table: "session_requests", Values: map[string]any{"key": "07000000000000000000000000000000", "session_id": id}},
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

func (m *mortal) Replace(ctx context.Context, fill func(func(transfer.Row) error, func(func(transfer.Row) error) error) error) error {
	err := m.Side.Replace(ctx, func(put func(transfer.Row) error, rows func(func(transfer.Row) error) error) error {
		puts := 0
		err := fill(func(r transfer.Row) error {
			puts++
			m.at(fmt.Sprint("put ", puts))
			return put(r)
		}, rows)
		m.at("verified")
		return err
	})
	m.at("committed")
	return err
}

func init() {
	roles["copy"] = func(s *Store, in *bufio.Scanner) error {
		in.Scan()
		_, err := transfer.Copy(context.Background(), shop(), &mortal{Side: s.Side(here), point: in.Text()})
		return err
	}
}

// textOf returns the rows of a side, as text.
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

// whole checks that a project has all that was copied, or nothing.
func whole(t *testing.T, s *Store, complete bool) {
	t.Helper()
	to := s.Side(here)
	must(t, to.Hold(t.Context()))
	defer to.Release()
	want := []string(nil)
	if complete {
		want = textOf(t, shop(), to)
	}
	got := textOf(t, to, to)
	testkit.Need(t, slices.Equal(got, want), "the store has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
}

// The process of a copy is killed at each point: the database has nothing, or everything.
func TestCopyKilled(t *testing.T) {
	t.Parallel()
	for point, complete := range map[string]bool{"put 1": false, "put 9": false, "verified": false, "committed": true} {
		t.Run(point, func(t *testing.T) {
			s, url := openNew(t)
			c := start(t, "copy", url)
			fmt.Fprintln(c.In, point)
			if err := c.Wait(); err == nil || c.Err.String() != "" {
				t.Fatal("the child did not die", &c.Err)
			}
			whole(t, s, complete)
			_, err := transfer.Copy(t.Context(), shop(), s.Side(here))
			testkit.True(t, (!complete || err != nil && strings.Contains(err.Error(), "it has 1 session, 1 task, 1 attempt, 1 request_id of the board of this project already")) && (complete || err == nil), "the same copy again: %v", err)
			whole(t, s, true)
		})
	}
}

// What is copied is found as if it had been made here, and what belongs to this machine says so.
func TestCopiedRows(t *testing.T) {
	t.Parallel()
	s := openAt(t, pgtest.Bouncer(t, pgtest.URL(t)))
	testkit.Get(transfer.Copy(t.Context(), shop(), s.Side(here))).Must(t)
	sessions := sessionsOf(s)
	testkit.Equal(t, testkit.Get(sessions.FindRequest(t.Context(), store.Key{7})).Must(t), id, "the session of the request id")
	if data, err := sessions.Definition(t.Context(), "00"); string(data) != `{"text":"\u0000"}` {
		t.Errorf("the definition is %s, %v", data, err)
	}
	copied := testkit.Get(sessions.ReadSession(t.Context(), id, -1)).Must(t)
	testkit.True(t, copied.Revision == 3 && copied.Goal == "a\x00b\uFFFD" && copied.Frame == `{"n":3}` && len(copied.Parts) == 1 && copied.Parts[0].Body == `{"x":1}` && *copied.PlaceOf() == here, "the session is %+v", copied)
	board := s.Database().Board()
	testkit.Equal(t, testkit.Get(board.Attempt(t.Context(), "a1")).Must(t).Place, here, "the attempt lies")
	testkit.Equal(t, testkit.Get(board.Task(t.Context(), "t1")).Must(t).Title, "a\x00b\uFFFD", "the task")
	paths := testkit.Get(board.RepoPaths(t.Context(), here)).Must(t)
	testkit.True(t, len(paths) == 0, "the paths of repositories: %v", paths)
	gone := testkit.Get(s.GoneFor(t.Context(), here)).Must(t)
	testkit.True(t, gone <= time.Minute, "the machine of the attempt is gone for %v", gone)
	next := transition(id, 4)
	written := testkit.Get(sessions.WriteSession(t.Context(), next)).Must(t)
	testkit.True(t, written, "it does not go on: %v", written)
	must(t, s.Enter(t.Context()))
	if err := s.Side(here).Hold(t.Context()); err == nil || !strings.Contains(err.Error(), "a server uses the project") || !strings.Contains(err.Error(), " in /srv/shop)") {
		t.Errorf("a copy beside a server: %v", err)
	}
}

// No server can begin while a copy holds the project, at whatever place.
func TestCopyExcludesServers(t *testing.T) {
	t.Parallel()
	s, url := openNew(t)
	earlier := openAt(t, url)
	must(t, earlier.Enter(t.Context()))
	must(t, earlier.Close(t.Context()))
	held := s.Side(here)
	must(t, held.Hold(t.Context()))
	elsewhere := options(url)
	elsewhere.Root = "/home/shop"
	for _, o := range []Options{options(url), elsewhere} {
		server := testkit.Get(Open(o)).Must(t)
		soon, cancel := context.WithTimeout(t.Context(), touchTime)
		testkit.Fails(t, server.Enter(soon), "", "a server has begun in %s", o.Root)
		cancel()
		must(t, server.Close(t.Context()))
	}
	held.Release()
	must(t, openAt(t, url).Enter(t.Context()))
}

// The reply to the commit is lost: what the command says is what happened.
func TestCopyLostReply(t *testing.T) {
	t.Parallel()
	for _, reached := range []bool{true, false} {
		url := pgtest.URL(t)
		proxy := pgtest.NewProxy(t, url)
		s := openAt(t, proxy.URL)
		must(t, s.Open(t.Context()))
		cut := proxy.CutAt(func(m pgtest.Message) bool {
			return reached && m.Completes("COMMIT") || !reached && m.Type == 'Q' && strings.HasPrefix(string(m.Body), "COMMIT")
		})
		_, err := transfer.Copy(t.Context(), shop(), s.Side(here))
		select {
		case <-cut:
		default:
			t.Fatal("it has not come to the commit:", err)
		}
		testkit.True(t, (err == nil) == reached, "it was committed: %v, and the copy says %v", reached, err)
		whole(t, openAt(t, url), reached)
	}
}

// What is left of sessions that were pruned does not prevent a copy.
func TestCopyOverLeftovers(t *testing.T) {
	t.Parallel()
	s, url := openNew(t)
	earlier := openAt(t, url)
	r := sessionsOf(earlier)
	ended := transition(id, 1)
	ended.Status, ended.Define, ended.Request = "aborted", &store.Definition{Hash: "00", Data: []byte("x")}, &store.Key{7}
	ended.Began = &store.Review{Step: "one", Runner: "r", Life: time.Hour}
	must(t, second(r.WriteSession(t.Context(), ended)))
	must(t, r.RemoveSessions(t.Context(), []string{id}))
	must(t, earlier.Close(t.Context()))
	testkit.Get(transfer.Copy(t.Context(), shop(), s.Side(here))).Must(t)
	whole(t, s, true)
}

// A project goes to a file and back with all that it has; what lies on this machine has no place in a file. A
// target that has something is refused, and is left as it is.
func TestCopyToAFileAndBack(t *testing.T) {
	s, url := openNew(t)
	testkit.Get(transfer.Copy(t.Context(), shop(), s.Side(here))).Must(t)
	t.Setenv(state.Env, filepath.Join(t.TempDir(), "state"))
	f := state.Of(t.TempDir())
	must(t, session.MakeState(f))
	mine := testkit.Get(session.PlaceOf(f)).Must(t)
	file := local.NewFile(f)
	counts, err := transfer.Copy(t.Context(), s.Side(mine), file)
	testkit.Need(t, err == nil && counts.String() == "1 session, 1 task, 1 attempt, 1 request_id of the board", "copied %v, %v", counts, err)
	before := textOf(t, file, file)
	for _, sides := range [][2]transfer.Side{{shop(), file}, {s.Side(mine), file}, {file, s.Side(mine)}} {
		testkit.Fails(t, testkit.Get(transfer.Copy(t.Context(), sides[0], sides[1])).Err(), "of this project already", "copied over something")
	}
	testkit.Same(t, textOf(t, file, file), before, "the file")

	o := options(url)
	o.Project = "another"
	other := testkit.Get(Open(o)).Must(t)
	t.Cleanup(func() { must(t, other.Close(context.Background())) })
	testkit.Get(transfer.Copy(t.Context(), file, other.Side(mine))).Must(t)
	one, two := s.Side(mine), other.Side(mine)
	must(t, one.Hold(t.Context()))
	defer one.Release()
	must(t, two.Hold(t.Context()))
	defer two.Release()
	if got, want := textOf(t, two, two), textOf(t, one, one); !slices.Equal(got, want) {
		t.Errorf("it came back as\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
