//go:build unix

package sqlite

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
)

// A process that is stopped in a transaction makes others wait, and then they are refused. Nothing is lost
// when it goes on.
func TestAProcessThatIsStoppedInATransaction(t *testing.T) {
	for name, killed := range map[string]bool{"goes on": false, "is killed": true} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "board.db")
			b := openAt(t, path, time.Now)
			p := rootOf(t, b)
			var log testkit.Log
			hasty := testkit.Get(openBoard(t.Context(),
				Options{Path: path, Logger: slog.New(slog.NewTextHandler(&log, nil))})).Must(t)
			defer hasty.Close()
			hasty.patience = 400 * time.Millisecond
			s := addTask(t, b, p, "before")
			c := another(t, "hold", path)
			testkit.Need(t, c.Line() == "inside", "%s", &c.Err)

			testkit.Must(t, c.Process.Signal(syscall.SIGSTOP))
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					began := time.Now()
					err := second(hasty.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "refused"},
						task.Request{}))
					took := time.Since(began)
					testkit.FailsWith(t, err, store.ErrBusy, "after %v: %v", took, err)
					testkit.True(t, took >= hasty.patience, "after %v: %v", took, err)
					testkit.True(t, took <= 8*time.Second, "after %v: %v", took, err)
					testkit.Equal(t, session.CodeOf(store.Refused(err)), "store_busy", "what an agent is told")
					testkit.Fails(t, store.Refused(err), path)
				})
			}
			all.Wait()
			n := log.Count("is locked by another process")
			testkit.True(t, n != 0 && n <= 3, "logged %d times that it waits: %s", n, log.String())
			testkit.Equal(t, taskOf(t, b, s.ID).Title, "before", "a reader sees the title")

			soon, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
			defer cancel()
			testkit.FailsWith(t, second(b.CreateTask(soon, task.NewTask{ProjectID: p.ID, Title: "given up"},
				task.Request{})), context.DeadlineExceeded)

			done := make(chan error, 1)
			go func() {
				done <- second(b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "waits"}, task.Request{}))
			}()
			want := "before"
			if killed {
				c.Crash()
			} else {
				want = "held"
				testkit.Must(t, c.Process.Signal(syscall.SIGCONT))
				testkit.Must(t, second(io.WriteString(c.In, "go on\n")))
				testkit.Equal(t, c.Line(), "committed", "%v", c.Err.String())
			}
			testkit.Must(t, <-done)
			testkit.Equal(t, taskOf(t, b, s.ID).Title, want, "title")

			_, total, _, err := b.Tasks(t.Context(), p.ID, task.Filter{}, task.Page{Limit: 1})
			testkit.True(t, err == nil && total == 2, "%d tasks, want 2; %v", total, err)
		})
	}
}
