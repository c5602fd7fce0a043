package presence

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
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
	// hold enters, and at each line reports whether it stands, and enters again.
	"hold": func(s *Member, in *bufio.Scanner) error {
		if err := s.Enter(context.Background()); err != nil {
			return err
		}
		fmt.Println(s.ID())
		for in.Scan() {
			stood := s.Stands()
			if err := s.Enter(context.Background()); err != nil {
				return err
			}
			fmt.Println(stood)
		}
		return s.Leave()
	},
}

func newMember(dir string) *Member { return New(Options{Dir: dir}) }

// A process is a running child.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr *strings.Builder
	id     string // the first line it said
}

// start runs a child and waits for its first line.
func start(t testing.TB, dir, role string) *process {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{cmd: exec.CommandContext(ctx, exe), stderr: new(strings.Builder)}
	p.cmd.Env = append(os.Environ(), roleEnv+"="+role, dirEnv+"="+dir)
	p.cmd.Stderr = p.stderr
	p.stdin, err = p.cmd.StdinPipe()
	must(t, err)
	out, err := p.cmd.StdoutPipe()
	must(t, err)
	p.stdout = bufio.NewReader(out)
	must(t, p.cmd.Start())
	t.Cleanup(func() {
		cancel()
		p.cmd.Wait() // an error by design, or waited for already
	})
	p.id = p.hear(t)
	return p
}

// hear returns the next line that the child says, "" at its end.
func (p *process) hear(t testing.TB) string {
	t.Helper()
	line, err := p.stdout.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	return strings.TrimSpace(line)
}

// tell has the child go on.
func (p *process) tell(t testing.TB) {
	t.Helper()
	if _, err := io.WriteString(p.stdin, "\n"); err != nil {
		t.Error(err)
	}
}

// kill ends the child as a crash does.
func (p *process) kill(t testing.TB) {
	t.Helper()
	must(t, p.cmd.Process.Kill())
	if err := p.cmd.Wait(); err == nil {
		t.Fatal("the child ended well before it was killed")
	}
}

// end lets the child end by itself.
func (p *process) end(t testing.TB) {
	t.Helper()
	must(t, p.stdin.Close())
	if err := p.cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, p.stderr)
	}
}

var must = testkit.Must

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
