package postgres

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/catalog/task"
	"deepwork/session/store"
	"deepwork/session/store/postgres/pgtest"
	"deepwork/session/store/transfer"
)

// A pile is a side with these rows, from which is copied.
type pile []transfer.Row

func (p pile) Where() string                              { return "a pile" }
func (p pile) Hold(context.Context) error                 { return nil }
func (p pile) Release()                                   {}
func (p pile) Adapt(r transfer.Row) transfer.Row          { return r }
func (p pile) Put(context.Context, transfer.Row) error    { return errors.ErrUnsupported }
func (p pile) Commit(context.Context, func() error) error { return errors.ErrUnsupported }
func (p pile) Rows(_ context.Context, f func(transfer.Row) error) error {
	for _, r := range p {
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

var copied = json.RawMessage(head{Owner: "00112233aabbccdd", N: 3, Active: true}.bytes())

// shop is a project in files.
func shop() pile {
	return pile{
		rowOf("projects", map[string]any{"id": "p1", "name": "shop", "root": int64(1), "listed": int64(1)}),
		rowOf("repos", map[string]any{"id": "r1", "project_id": "p1", "name": "shop", "path": "/srv/shop", "listed": int64(0)}),
		rowOf("tasks", map[string]any{"id": "t1", "project_id": "p1", "title": "a\x00b\uFDD0", "description": nil, "status": "done", "job_name": nil, "workflow_name": nil, "deleting_at": nil, "identity": "local", "caller_group": "", "lead": "server", "auto_start": int64(1)}),
		rowOf("attempts", map[string]any{"id": "a1", "task_id": "t1", "executor": "CODER", "branch": "b", "workspace": "/srv/w", "state": "completed", "identity": "local", "caller_group": "",
			"machine_id": "", "machine_name": "", "root": "", "variant": nil, "prompt": nil, "error": nil, "workflow_session_id": nil, "workflow_status": nil, "workflow_step": nil, "push_error": nil, "run": nil}),
		{Table: "requests", Values: map[string]any{"identity": "local", "tool": "t", "request_id": "1", "args_digest": "x", "result": "t1", "created_at": "2026-01-02T03:04:05.000000Z"}},
		{Table: transfer.Sessions, Values: map[string]any{"id": id, "body": string(copied)}},
		{Table: transfer.Definitions, Values: map[string]any{"hash": "00", "data": "\xff\x00"}},
	}
}

// copyOptions read the records of this package's tests; each has a definition and a request id.
var copyOptions = store.RecordOptions{
	Head: func(body []byte) store.Head {
		h := headOf(body)
		return store.Head{Owner: h.Owner, Active: h.Active, Caller: store.Key{1}, Definition: "00"}
	},
	Keys: func(string, []byte) []store.Key { return []store.Key{{7}} },
}

var here = task.Place{MachineID: "0a1b2c3d", MachineName: "host", Root: "/srv/shop"}

// A mortal side kills its process at a point.
type mortal struct {
	transfer.Side
	point string
	puts  int
}

func (m *mortal) at(point string) {
	if p, err := os.FindProcess(os.Getpid()); point == m.point && err == nil && p.Kill() == nil {
		select {}
	}
}

func (m *mortal) Put(ctx context.Context, r transfer.Row) error {
	m.puts++
	m.at(fmt.Sprint("put ", m.puts))
	return m.Side.Put(ctx, r)
}

func (m *mortal) Commit(ctx context.Context, verify func() error) error {
	err := m.Side.Commit(ctx, func() error {
		err := verify()
		m.at("verified")
		return err
	})
	m.at("committed")
	return err
}

func init() {
	roles["copy"] = func(s *Store, in *bufio.Scanner) error {
		in.Scan()
		_, err := transfer.Copy(context.Background(), shop(), &mortal{Side: s.Side(copyOptions, here), point: in.Text()})
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
	to := s.Side(copyOptions, here)
	must(t, to.Hold(t.Context()))
	defer to.Release()
	want := []string(nil)
	if complete {
		want = textOf(t, shop(), to)
	}
	got := textOf(t, to, to)
	if !slices.Equal(got, want) {
		t.Fatalf("the store has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The process of a copy is killed at each point: the database has nothing, or everything.
func TestCopyKilled(t *testing.T) {
	for point, complete := range map[string]bool{"put 1": false, "put 7": false, "verified": false, "committed": true} {
		t.Run(point, func(t *testing.T) {
			s, url := openNew(t)
			c := start(t, "copy", url)
			fmt.Fprintln(c.In, point)
			if err := c.Wait(); err == nil || c.Err.String() != "" {
				t.Fatal("the child did not die", &c.Err)
			}
			whole(t, s, complete)
			_, err := transfer.Copy(t.Context(), shop(), s.Side(copyOptions, here))
			if complete && (err == nil || !strings.Contains(err.Error(), "it has 1 session, 1 task, 1 attempt, 1 request_id of the board of this project already")) || !complete && err != nil {
				t.Errorf("the same copy again: %v", err)
			}
			whole(t, s, true)
		})
	}
}

// What is copied is found as if it had been made here, and what belongs to this machine says so.
func TestCopiedRows(t *testing.T) {
	s := openAt(t, pgtest.Bouncer(t, pgtest.URL(t)))
	_, err := transfer.Copy(t.Context(), shop(), s.Side(copyOptions, here))
	must(t, err)
	records := recordsOf(s)
	if found, err := records.FindRequest(t.Context(), store.Key{7}); err != nil || !slices.Equal(found, []string{id}) {
		t.Errorf("the session of the request id: %v, %v", found, err)
	}
	if data, err := records.Definition(t.Context(), "00"); data == nil {
		t.Error(err) // it comes with the data: "00" is not its hash
	}
	board := s.Database().Board()
	if a, err := board.Attempt(t.Context(), "a1"); err != nil || a.Place != here {
		t.Errorf("the attempt lies at %+v, %v", a, err)
	}
	if x, err := board.Task(t.Context(), "t1"); err != nil || x.Title != "a\x00b\uFFFD" {
		t.Errorf("the task is %+v, %v", x, err)
	}
	if paths, err := board.RepoPaths(t.Context(), here); err != nil || len(paths) > 0 {
		t.Errorf("the paths of repositories: %v, %v", paths, err)
	}
	if gone, err := s.GoneFor(t.Context(), here); err != nil || gone > time.Minute {
		t.Errorf("the machine of the attempt is gone for %v, %v", gone, err)
	}
	if s.Alive("00112233aabbccdd") {
		t.Error("the owner of the session looks alive")
	}
	must(t, takeOver(t.Context(), s, records, id))
	if err := s.Side(copyOptions, here).Hold(t.Context()); err == nil || !strings.Contains(err.Error(), "a server uses the project") || !strings.Contains(err.Error(), fmt.Sprint("pid ", os.Getpid())) {
		t.Errorf("a copy beside a server: %v", err)
	}
}

// No server can take a lease while a copy holds the project, or renew one that has ended.
func TestCopyExcludesServers(t *testing.T) {
	s, url := openNew(t)
	lapsed := openAt(t, url)
	must(t, lapsed.Enter(t.Context()))
	_, err := s.exec(t.Context(), `UPDATE @members SET expires = clock_timestamp() - interval '1 s'`)
	must(t, err)
	held := s.Side(copyOptions, here)
	must(t, held.Hold(t.Context()))
	soon, cancel := context.WithTimeout(t.Context(), renewTime)
	defer cancel()
	if err := openAt(t, url).Enter(soon); err == nil {
		t.Error("a server has begun")
	}
	if err := lapsed.renew(); err == nil {
		t.Error("a server has a new term")
	}
	held.Release()
	must(t, openAt(t, url).Enter(t.Context()))
}

// The reply to the commit is lost: what the command says is what happened.
func TestCopyLostReply(t *testing.T) {
	for _, reached := range []bool{true, false} {
		url := pgtest.URL(t)
		proxy := pgtest.NewProxy(t, url)
		s := openAt(t, proxy.URL)
		must(t, s.Open(t.Context()))
		cut := proxy.CutAt(func(m pgtest.Message) bool {
			return reached && m.Completes("COMMIT") || !reached && m.Type == 'Q' && strings.HasPrefix(string(m.Body), "COMMIT")
		})
		_, err := transfer.Copy(t.Context(), shop(), s.Side(copyOptions, here))
		select {
		case <-cut:
		default:
			t.Fatal("it has not come to the commit:", err)
		}
		if (err == nil) != reached {
			t.Errorf("it was committed: %v, and the copy says %v", reached, err)
		}
		whole(t, openAt(t, url), reached)
	}
}

// What is left of sessions that were pruned does not prevent a copy.
func TestCopyOverLeftovers(t *testing.T) {
	s, url := openNew(t)
	earlier := openAt(t, url)
	r := recordsOf(earlier)
	must(t, r.PutDefinition(t.Context(), "00", []byte("x")))
	must(t, r.NoteRequest(t.Context(), store.Key{7}, id))
	must(t, r.Create(t.Context(), id, head{earlier.ID(), 1, true}.bytes()))
	must(t, r.Remove(t.Context(), id))
	must(t, earlier.Close(t.Context()))
	_, err := transfer.Copy(t.Context(), shop(), s.Side(copyOptions, here))
	must(t, err)
	whole(t, s, true)
}
