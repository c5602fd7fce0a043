package presence

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"deepwork/actor/testkit"
)

const (
	roleEnv = "PRESENCE_CHILD"
	dirEnv  = "PRESENCE_DIR"
)

// TestMain lets the tests run this binary again, as another server.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		s := newMember(os.Getenv(dirEnv))
		if err := roles[role](s, bufio.NewScanner(os.Stdin)); err != nil {
			fmt.Fprintln(os.Stderr, role+":", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// A program built with -race sleeps for a second at its end, each child too.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	goleak.VerifyTestMain(m)
}

// roles are what a child does. It says what it has to say on stdout, one line
// each, and hears on stdin when to go on; at the end of that it ends.
var roles = map[string]func(s *Member, in *bufio.Scanner) error{
	// hold enters, and at each line reports whether it has entered, and enters again.
	"hold": func(s *Member, in *bufio.Scanner) error {
		if err := s.Enter(context.Background()); err != nil {
			return err
		}
		fmt.Println(s.ID())
		for in.Scan() {
			entered := s.Entered()
			if err := s.Enter(context.Background()); err != nil {
				return err
			}
			fmt.Println(entered)
		}
		return s.Leave()
	},
}

func newMember(dir string) *Member { return New(Options{Dir: dir}) }

// A process is a running child.
type process struct {
	*testkit.Child
	id string // the first line it said
}

// start runs a child and waits for its first line.
func start(t testing.TB, dir, role string) *process {
	t.Helper()
	c := testkit.Start(t, roleEnv+"="+role, dirEnv+"="+dir)
	return &process{c, c.Line()}
}

var must = testkit.Must

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
