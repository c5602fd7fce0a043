package presence

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"deepwork/actor/testkit"
)

const dirEnv = "PRESENCE_DIR"

// TestMain lets the tests run this binary again, as another server: it enters, says its id, and at each line that it hears
// reports whether it has entered, and enters again. At the end of its input it leaves.
func TestMain(m *testing.M) {
	if dir := os.Getenv(dirEnv); dir != "" {
		s, in := newMember(dir), bufio.NewScanner(os.Stdin)
		err := s.Enter(context.Background())
		fmt.Println(s.ID())
		for err == nil && in.Scan() {
			entered := s.Entered()
			err = s.Enter(context.Background())
			fmt.Println(entered)
		}
		if err = errors.Join(err, s.Leave()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// A program built with -race sleeps for a second at its end, each child too.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	goleak.VerifyTestMain(m)
}

func newMember(dir string) *Member { return New(Options{Dir: dir}) }

// A process is a running child.
type process struct {
	*testkit.Child
	id string // the first line it said
}

// start runs a child and waits for its first line.
func start(t testing.TB, dir string) *process {
	t.Helper()
	c := testkit.Start(t, dirEnv+"="+dir)
	return &process{c, c.Line()}
}

var must = testkit.Must

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
