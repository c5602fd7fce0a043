package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/local/sqlite"
	"deepwork/session/store/sqlstore"
	"deepwork/session/store/transfer"
)

// A pile is a side with these rows.
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

const someTime = "2026-01-02T03:04:05.000000Z"

// shop is a project with two sessions, a definition, and a task.
var shop = pile{
	{Table: "projects", Values: map[string]any{"id": "p1", "name": "shop", "root": int64(1), "listed": int64(1), "created_at": someTime, "updated_at": someTime}},
	{Table: "tasks", Values: map[string]any{"id": "t1", "project_id": "p1", "title": "Paint it", "description": nil, "status": "todo", "created_at": someTime, "updated_at": someTime, "identity": "local", "caller_group": "",
		"job_name": nil, "workflow_name": nil, "deleting_at": nil, "lead": "server", "auto_start": int64(1)}},
	{Table: transfer.Sessions, Values: map[string]any{"id": "0000000a", "body": recordOf(7)}},
	{Table: transfer.Sessions, Values: map[string]any{"id": "0000000b", "body": recordOf(8)}},
	{Table: transfer.Definitions, Values: map[string]any{"hash": hashOf("whole"), "data": "whole"}},
}

func recordOf(n int) string {
	return fmt.Sprintf("{\n  \"n\": %d,\n  \"of\": %q\n}", n, hashOf("whole"))
}

// testOptions read what recordOf makes.
var testOptions = store.RecordOptions{Head: func(body []byte) store.Head {
	var h struct {
		N  int64
		Of string
	}
	if json.Unmarshal(body, &h) != nil {
		return store.Head{}
	}
	return store.Head{Number: h.N, Definition: h.Of}
}}

// copyShop copies shop to the files of a project.
func copyShop(f *state.Folder) (transfer.Counts, error) {
	if err := FinishCopy(ctx, f, false); err != nil {
		return nil, err
	}
	return transfer.Copy(ctx, shop, NewFiles(f, testOptions))
}

func init() {
	roles["copy"] = func(s *Store) error {
		end, times := os.Getenv("STORE_ARG"), 0
		step = func(name string) {
			if times++; name == end || fmt.Sprint(name, times) == end {
				p, err := os.FindProcess(os.Getpid())
				if err == nil && p.Kill() == nil {
					select {}
				}
			}
		}
		_, err := copyShop(s.state)
		return err
	}
}

// rowsIn returns what a project's files have, as text.
func rowsIn(t *testing.T, f *state.Folder) (all []string) {
	t.Helper()
	must(t, NewFiles(f, testOptions).Rows(ctx, func(r transfer.Row) error {
		text, err := json.Marshal(r)
		all = append(all, string(text))
		return err
	}))
	slices.Sort(all)
	return all
}

func textOf(p pile) (all []string) {
	for _, r := range p {
		text, _ := json.Marshal(r)
		all = append(all, string(text))
	}
	slices.Sort(all)
	return all
}

func TestCopyIntoFiles(t *testing.T) {
	dir := newDir(t)
	f := folder(dir)
	counts, err := copyShop(f)
	if err != nil || counts.String() != "2 sessions, 1 task" {
		t.Fatal(counts, err)
	}
	if got, want := rowsIn(t, f), textOf(shop); !slices.Equal(got, want) {
		t.Errorf("the files have\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if s := open(t, dir, Options{}); s.Newest(ctx, "0000000b") != 8 {
		t.Error("an older version of a session would not be noticed")
	}
	if _, err := copyShop(f); err == nil || !strings.Contains(err.Error(), "it has 2 sessions, 1 task of this project already") {
		t.Errorf("a second copy: %v", err)
	}
	noTemps(t, dir)
}

// The process of a copy is killed at each step: the next command finds nothing, or everything.
func TestCopyKilled(t *testing.T) {
	for point, complete := range map[string]bool{"prepared": false, "decided": true, "session": true, "session4": true, "in place": true} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			dir := newDir(t)
			f := folder(dir)
			p := start(t, dir, "copy", point)
			if err := p.Wait(); err == nil || p.Err.String() != "" {
				t.Fatal("the child did not die", &p.Err)
			}
			if err := FinishCopy(ctx, f, true); (err != nil) != complete {
				t.Errorf("a reader is told %v", err)
			}
			must(t, FinishCopy(ctx, f, false))
			want := textOf(shop)
			if !complete {
				want = nil
			}
			if got := rowsIn(t, f); !slices.Equal(got, want) {
				t.Errorf("the files have\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if !complete {
				_, err := copyShop(f)
				must(t, err)
			}
			db := sqlite.New(sqlite.Options{Path: f.Database()})
			if found, _, err := db.Board().Inspect(ctx); err != nil || len(found) > 0 {
				t.Error(found, err)
			}
			must(t, db.Close())
			noTemps(t, dir)
		})
	}
}

// No copy begins while a server runs, and no server while a copy does.
func TestCopyExcludesServers(t *testing.T) {
	dir := newDir(t)
	p := start(t, dir, "hold", "")
	if _, err := copyShop(folder(dir)); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("a server runs on this project (pid %d", p.Process.Pid)) {
		t.Errorf("beside a server: %v", err)
	}
	p.Crash()
	unlock, err := session.HoldServers(ctx, folder(dir))
	must(t, err)
	s := open(t, dir, Options{})
	if err := s.Create(ctx, "0000000c", numbered(1)); err == nil || !strings.Contains(err.Error(), "being copied") {
		t.Errorf("a server beside a copy: %v", err)
	}
	unlock()
	must(t, s.Create(ctx, "0000000c", numbered(1)))
}

// Whatever the copy leaves out, it leaves out on purpose.
func TestCopyKnowsAllTables(t *testing.T) {
	db := sqlite.New(sqlite.Options{Path: folder(newDir(t)).Database()})
	t.Cleanup(func() { db.Close() })
	must(t, db.Open(ctx))
	must(t, db.Transact(ctx, sqlstore.Reading, func(ctx context.Context, q sqlstore.Querier) error {
		tables, err := sqlstore.List[string](db.Tx(ctx, q), `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT IN ('task_counts', 'changes')`)
		slices.Sort(tables)
		if want := transfer.Tables(); !slices.Equal(tables, want) {
			t.Errorf("the board has the tables %v, and these are copied: %v", tables, want)
		}
		return err
	}))
}
