package local

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/jsontext"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/machine"
	"deepwork/session/state"
	"deepwork/session/store/transfer"
)

const created = "2026-01-02T03:04:05.000000Z"

// project makes the state folder of a project.
func project(t *testing.T) *state.Folder {
	t.Setenv(state.Env, t.TempDir())
	f := state.Of(t.TempDir())
	testkit.Must(t, session.MakeState(f))
	return f
}

// isHeld checks that a project's database is not given to anybody else.
func isHeld(t *testing.T, what string, f func(ctx context.Context) error) {
	t.Helper()
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	testkit.Fails(t, f(soon), "", what)
}

// fill has a side contain one project of a board.
func fill(t *testing.T, s *File, name string) error {
	return s.Replace(t.Context(), func(put func(transfer.Row) error, _ func(func(transfer.Row) error) error) error {
		return put(transfer.Row{
			Table: "projects",
			Values: map[string]any{
				"id":         "p1",
				"name":       name,
				"root":       int64(1),
				"listed":     int64(1),
				"created_at": created,
				"updated_at": created,
			},
		})
	})
}

func names(t *testing.T, s *File) (all []string) {
	testkit.Must(t, s.Rows(t.Context(), func(r transfer.Row) error {
		all = append(all, r.Values["name"].(string))
		return nil
	}))
	return all
}

// A backup has its name once it is complete, and is not a place of servers; a project's own database is written
// while none runs.
func TestBackups(t *testing.T) {
	f := project(t)
	own, dir := NewFile(f), t.TempDir()
	path := filepath.Join(dir, "backup.db")
	backup := NewBackup(f, path)
	testkit.Equal(t, own.Where()+" "+backup.Where(), f.Database()+" "+path)
	testkit.Equal(t, len(names(t, own))+len(names(t, backup)), 0, "rows of what is not there")
	testkit.Works(t, fill(t, own, "shop"))
	testkit.Write(t, path+".part", "of a copy that was killed")
	testkit.Write(t, path+".part-wal", "its log")
	testkit.Works(t, testkit.Get(transfer.Copy(t.Context(), own, backup)).Err())
	testkit.Fails(t, backup.Replace(t.Context(),
		func(func(transfer.Row) error, func(func(transfer.Row) error) error) error {
			return errors.New("enough")
		}), "writing "+path+": enough")
	testkit.Same(t, names(t, backup), []string{"shop"}, "after a copy that failed")
	testkit.Equal(t, len(testkit.Get(os.ReadDir(dir)).Must(t)), 1, "files beside the backup")
	testkit.FailsWith(t, fill(t, NewBackup(f, filepath.Join(dir, "lost", "b.db")), "x"), os.ErrNotExist)

	// a damaged one is not said to be the project's
	testkit.Write(t, path+"3", string(testkit.Get(os.ReadFile(path)).Must(t)[:4096]))
	testkit.Fails(t, testkit.Get(transfer.Copy(t.Context(), NewBackup(f, path+"3"), own)).Err(),
		"board.db: opening the database "+path+"3: the file")

	// there is the log of another database, which must not become part of the copy
	stale := NewBackup(f, filepath.Join(t.TempDir(), "stale.db"))
	testkit.Write(t, stale.path+"-wal", "its log")
	testkit.Fails(t, testkit.Get(transfer.Copy(t.Context(), own, stale)).Err(),
		"stale.db-wal is the log of another database")

	lost := state.Of(t.TempDir())
	testkit.Must(t, session.MakeState(lost))
	testkit.Write(t, lost.Database()+"-wal", "what is left of it")
	testkit.FailsWith(t, testkit.Get(transfer.Copy(t.Context(), NewFile(lost), NewBackup(lost, path+"2"))).Err(),
		task.ErrDamaged)

	link := filepath.Join(dir, "link.db")
	testkit.Must(t, os.Link(f.Database(), link))
	for _, same := range []string{f.Database(), link} {
		testkit.Fails(t, NewBackup(f, same).Hold(t.Context()), "is the project's own database")
	}
	testkit.Works(t, errors.Join(NewBackup(f, path).Hold(t.Context()), own.Hold(t.Context())))
	isHeld(t, "it is held twice", NewFile(f).Hold)
	own.Release()
	own.Release()
	again := NewFile(f)
	testkit.Works(t, again.Hold(t.Context()))
	defer again.Release()
	place := again.place
	for at, away := range map[[2]string]bool{
		{place.MachineID, place.Root}:   false,
		{place.MachineID, "/elsewhere"}: true,
		{"0a1b2c3d", place.Root}:        true,
	} {
		for table, column := range map[string]string{"attempts": "root", "workflow_sessions": "place"} {
			r := again.Adapt(transfer.Row{
				Table:  table,
				Values: map[string]any{"machine_id": at[0], column: at[1], "machine_name": "host"},
			})
			testkit.True(t, len(r.Values) == 3 &&
				(r.Values["machine_id"] != "" && r.Values[column] != "" && r.Values["machine_name"] == "host") == away,
				"%+v", r)
		}
		of := &task.Place{MachineID: at[0], MachineName: `a "host"`, Root: at[1]}
		frame, parts, err := (&machine.State{
			Place: of,
			StepProgress: jsontext.OrderedMap[*machine.StepProgress]{{
				Key:   "a",
				Value: &machine.StepProgress{Place: of},
			}},
		}).Parts()
		testkit.Must(t, err)
		for _, text := range []string{string(frame), string(parts[0].Body), transfer.Placed(`{"n": 1}`, *of)} {
			for column, said := range again.Adapt(transfer.Row{Values: map[string]any{"frame": text, "body": text}}).
				Values {
				testkit.True(t, json.Valid([]byte(said.(string))) &&
					strings.Contains(said.(string), "machine_id") == away, "the %s of a session: %s", column, said)
			}
		}
	}
}

// Only a database that cannot be used is set aside, with its log, while nothing uses it.
func TestSetAside(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f := project(t)
	for range 2 { // without a file, and with a good one
		testkit.Fails(t, testkit.Get(SetAside(t.Context(), f, now)).Err(), "is not damaged, and was left as it is")
		testkit.Must(t, fill(t, NewFile(f), "shop"))
	}
	damage := func() {
		testkit.Write(t, f.Database(), strings.Repeat("nonsense", 1000))
		testkit.Write(t, f.Database()+"-wal", "log")
	}
	damage()
	held := NewFile(f)
	testkit.Must(t, held.Hold(t.Context()))
	isHeld(t, "while a server may run", func(soon context.Context) error {
		return testkit.Get(SetAside(soon, f, now)).Err()
	})
	held.Release()
	to := testkit.Get(SetAside(t.Context(), f, now)).Must(t)
	testkit.Equal(t, to+" "+string(testkit.Get(os.ReadFile(to+"-wal")).Must(t)),
		f.Database()+".damaged-20260102T030405Z log")
	for _, gone := range []string{f.Database(), f.Database() + "-wal"} {
		testkit.FailsWith(t, testkit.Get(os.Stat(gone)).Err(), os.ErrNotExist, "%s", gone)
	}

	damage()
	testkit.Fails(t, testkit.Get(SetAside(t.Context(), f, now)).Err(), "is there already")
	testkit.Must(t, errors.Join(os.Remove(f.Database()), os.Remove(f.Database()+"-wal")))
	stores := Stores(f, false, slog.New(slog.DiscardHandler))
	testkit.True(t, !testkit.Get(stores.Others(t.Context())).Must(t), "others use them")
	testkit.Works(t, stores.Close(t.Context()))
}
