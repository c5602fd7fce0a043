//go:build unix

package postgres

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session/store"
	"deepwork/session/store/postgres/pgtest"
	"deepwork/session/store/sqlstore"
)

func init() {
	// claim claims an execution, and pauses in the transaction until it reads a line. Then it releases what
	// it has claimed.
	roles["claim"] = func(s *Store, in *bufio.Scanner) error {
		ctx := context.Background()
		if err := s.Enter(ctx); err != nil {
			return err
		}

		waits := true
		b := sqlstore.New(spy{database{Store: s}, func(query string, _ []any) {
			if waits && strings.HasPrefix(query, "UPDATE") { // after the first change
				waits = false
				fmt.Println("claiming")
				in.Scan()
			}
		}}, sqlstore.Options{Shared: true}).Board()

		x, err := b.ClaimNext(ctx, "child", 5, nil, task.Limits{})
		fmt.Println(x == nil, errors.Is(err, store.ErrUnavailable))
		in.Scan()
		released, err := b.Release(ctx, in.Text(), "child", false)
		fmt.Println(released, err)
		x, err = b.ClaimNext(ctx, "child", 5, nil, task.Limits{})
		fmt.Println(x == nil, err)
		return nil
	}
}

// A process that was suspended within a transaction of the board does not keep others waiting for longer than
// two seconds, and when it goes on, what it has done there has not happened: another process has the
// execution.
func TestAProcessSuspendedWithinATransaction(t *testing.T) {
	t.Parallel()
	for name, through := range map[string]func(testing.TB, string) string{
		"directly": func(_ testing.TB, url string) string { return url }, "through PgBouncer": pgtest.Bouncer,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.URL(t)
			_, b, p := shopOf(t, through(t, url), "shop")
			a := try(t, b, addTask(t, b, p, "A task"))
			child := start(t, "claim", through(t, url))
			testkit.Need(t, child.Line() != "", "%v", &child.Err)
			must(t, child.Process.Signal(syscall.SIGSTOP))
			x, err := b.ClaimNext(t.Context(), "other", 5, nil, task.Limits{})
			testkit.Need(t, err == nil && x != nil, "it cannot be claimed beside a suspended process: %+v, %v", x, err)
			io.WriteString(child.In, "\n"+x.ID+"\n")
			must(t, child.Process.Signal(syscall.SIGCONT))
			for _, want := range []string{"true true", "false <nil>", "true <nil>"} {
				testkit.Equal(t, child.Line(), want, "the child: %s", &child.Err)
			}

			now := testkit.Get(b.LatestExecution(t.Context(), a.ID)).Must(t)
			testkit.True(t, now.Owner == "other" && now.State == task.Starting, "the execution is %+v", now)
		})
	}
}
