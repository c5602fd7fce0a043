package attempt

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session/board"
	"deepwork/session/state"
	"deepwork/session/store"
)

// An unrecordedStore calls set instead of the first SetWorkspace.
type unrecordedStore struct {
	store.Database
	set   recording
	first *atomic.Bool
}

type recording func(b store.Board, a *task.Attempt, base map[string]string) error

type unrecordedBoard struct {
	store.Board
	of unrecordedStore
}

func (u unrecordedStore) Board() store.Board { return unrecordedBoard{u.Database.Board(), u} }

func (u unrecordedBoard) SetWorkspace(ctx context.Context, a *task.Attempt, base map[string]string) error {
	if u.of.first.Swap(false) {
		return u.of.set(u.Board, a, base)
	}
	return u.Board.SetWorkspace(ctx, a, base)
}

func unanswered(store.Board, *task.Attempt, map[string]string) error { return store.ErrUnavailable }

// cutShort leaves the journal of a server that was killed while it made the worktrees.
func cutShort(_ store.Board, a *task.Attempt, _ map[string]string) error {
	path := filepath.Join(worktreesOf(a), ".journal", nameOf(a)+".json")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	partly := strings.Replace(string(text), `"phase": "made"`, `"phase": "creating"`, 1)
	return cmp.Or(os.WriteFile(path, []byte(partly), 0o600), store.ErrUnavailable)
}

func unconfirmed(store.Board, *task.Attempt, map[string]string) error { return store.ErrPending }

func recordedUnconfirmed(b store.Board, a *task.Attempt, base map[string]string) error {
	return cmp.Or(b.SetWorkspace(ctx, a, base), store.ErrPending)
}

// stoppedMeanwhile is unanswered while a call stops the attempt.
func stoppedMeanwhile(b store.Board, a *task.Attempt, _ map[string]string) error {
	x, err := b.LatestExecution(ctx, a.ID)
	if err != nil {
		return err
	}
	_, err = b.Stop(ctx, x.ID)
	return cmp.Or(err, store.ErrUnavailable)
}

// If the store does not answer when worktrees were made, or partly made, the attempt stays on their machine, which
// continues them. If it was stopped meanwhile, they are removed. An inspection then finds nothing.
func TestWorktreesThatAreNotRecorded(t *testing.T) {
	for _, c := range []struct {
		name  string
		set   recording
		end   task.AttemptState
		trees int // with the project's own
	}{
		{"unanswered", unanswered, task.Completed, 2},
		{"cut short", cutShort, task.Completed, 2},
		{"unconfirmed", unconfirmed, task.Completed, 2},
		{"recorded, unconfirmed", recordedUnconfirmed, task.Completed, 2},
		{"stopped meanwhile", stoppedMeanwhile, task.Stopped, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, f := newProject(t), newFleet(t)
			first := new(atomic.Bool)
			first.Store(true)
			m := p.machine("aaaa", f, func(o *Options) {
				o.Stores.Database = unrecordedStore{o.Stores.Database, c.set, first}
			})
			m.stores.Others = func(context.Context) (bool, error) { return true, nil }
			made := m.begin(m.newTask("! say hello"))
			testkit.Equal(t, m.ends(made.AttemptID).State, board.ExecutionState(c.end))

			eventually(t, func() string {
				list := p.Git(p.Root, "worktree", "list", "--porcelain")
				if n := strings.Count(list, "worktree "); n != c.trees {
					return fmt.Sprintf("there are %d worktrees, want %d: %s", n, c.trees, list)
				}
				r := testkit.Get(Inspect(ctx, state.Of(p.Root), m.stores, p.Config.Load(), m.Log)).Must(t)
				if len(r.Findings) > 0 {
					return fmt.Sprint("an inspection finds ", r.Findings)
				}
				return ""
			})
		})
	}
}
