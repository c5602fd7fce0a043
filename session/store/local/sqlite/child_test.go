package sqlite

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session/store/sqlstore"
)

// The environment of another process of a test.
const roleVariable, pathVariable = "SQLITE_ROLE", "SQLITE_PATH"

// callers is how many goroutines of a process call at the same time.
const callers = 4

// another starts another process on a database, and waits until it has begun.
func another(t testing.TB, role, path string) *testkit.Child {
	t.Helper()
	c := testkit.Start(t, roleVariable+"="+role, pathVariable+"="+path)
	if line := c.Line(); line != "begun" {
		t.Fatalf("%s says %q; %s", role, line, c.Err.String())
	}
	return c
}

// play is the main function of another process. It prints what a test has to know, one line each.
func play(role string) int {
	b, err := openBoard(context.Background(), Options{Path: os.Getenv(pathVariable)})
	if err == nil {
		err = roles[role](b)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		return 1
	}
	return 0
}

var roles = map[string]func(board) error{
	// load makes tasks until its input ends, and prints the number.
	"load": func(b board) error {
		stop, end := context.WithCancel(context.Background())
		defer end()
		fmt.Println("begun")
		n := make(chan int, 1)
		go func() { n <- load(stop, b, func(string) {}) }()
		_, err := io.Copy(io.Discard, os.Stdin)
		end()
		fmt.Println(<-n)
		return err
	},
	// some makes tasks for two seconds once it gets a line, and prints the number.
	"some": func(b board) error {
		fmt.Println("begun")
		if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
			return err
		}
		stop, end := context.WithTimeout(context.Background(), 2*time.Second)
		defer end()
		fmt.Println(load(stop, b, func(string) {}))
		return nil
	},
	// say makes tasks until it is killed, and prints their ids.
	"say": func(b board) error {
		fmt.Println("begun")
		load(context.Background(), b, func(id string) { fmt.Println(id) })
		return nil
	},
	// hold changes tasks, prints "inside" within the transaction, and commits when it gets a line.
	"hold": func(b board) error {
		fmt.Println("begun")
		err := b.Transact(context.Background(), sqlstore.Writing, func(ctx context.Context, q sqlstore.Querier) error {
			if _, err := q.ExecContext(ctx, `UPDATE tasks SET title = 'held'`); err != nil {
				return err
			}
			fmt.Println("inside")
			_, err := bufio.NewReader(os.Stdin).ReadString('\n')
			return err
		})
		if err == nil {
			fmt.Println("committed")
		}
		return err
	},
	// die kills itself in the third member of a group.
	"die": func(b board) error {
		fmt.Println("begun")
		rename := func(q sqlstore.Querier, to string) error {
			_, err := q.ExecContext(context.Background(), `UPDATE tasks SET title = ?`, to)
			return err
		}
		together(b,
			func(q sqlstore.Querier) error { return rename(q, "first") },
			func(q sqlstore.Querier) error { return rename(q, "second") },
			func(q sqlstore.Querier) error {
				p, err := os.FindProcess(os.Getpid())
				if err == nil {
					err = p.Kill()
				}
				if err == nil {
					testkit.Forever()
				}
				return err
			})
		return nil
	},
}

// load makes tasks from several goroutines until ctx ends, and returns how many. It passes the id of
// each to made, once that is durable.
func load(ctx context.Context, b board, made func(id string)) int {
	list, _, _, err := b.Projects(context.Background(), task.Page{Limit: 1})
	if err != nil || len(list) == 0 {
		panic(fmt.Sprint("there is no project: ", err))
	}
	var n atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				s, err := b.CreateTask(context.Background(), task.NewTask{ProjectID: list[0].ID, Title: "loaded"}, task.Request{})
				if err != nil {
					panic(err)
				}
				made(s.ID)
				n.Add(1)
			}
		})
	}
	all.Wait()
	return int(n.Load())
}

// together makes changes in one transaction, in this order, and returns their errors; a panic is one.
func together(b board, changes ...func(sqlstore.Querier) error) []error {
	inside, goOn := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		err := b.Transact(context.Background(), sqlstore.Writing, func(context.Context, sqlstore.Querier) error {
			close(inside)
			<-goOn
			return nil
		})
		if err != nil {
			panic(err)
		}
	})
	<-inside
	errs := make([]error, len(changes))
	for i, change := range changes {
		all.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					errs[i] = fmt.Errorf("panic: %v", p)
				}
			}()
			errs[i] = b.Transact(context.Background(), sqlstore.Writing, func(_ context.Context, q sqlstore.Querier) error { return change(q) })
		})
		for b.queued() <= i {
			time.Sleep(time.Millisecond)
		}
	}
	close(goOn)
	all.Wait()
	return errs
}

// queued returns how many members wait.
func (b board) queued() int {
	b.writer.mu.Lock()
	defer b.writer.mu.Unlock()
	return len(b.writer.waiting)
}
