package gate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write the golden files anew")

// claudeEnv says what the test binary does when it is started as claude.
const claudeEnv = "GATE_TEST_CLAUDE"

// TestMain makes the test binary the reviewer too: as `gate.test reviewer MODE…`,
// or, started with claude's arguments, in the mode of the environment.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "reviewer" {
		os.Exit(reviewer(os.Args[2], os.Args[3:]))
	}
	if mode := strings.Fields(os.Getenv(claudeEnv)); len(mode) > 0 {
		os.Exit(reviewer(mode[0], mode[1:]))
	}
	// A program built with -race sleeps for a second at its end, each reviewer too.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	goleak.VerifyTestMain(m)
}

// command is the command line of a reviewer in a mode.
func command(mode string, args ...string) []string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return append([]string{self, "reviewer", mode}, args...)
}

const passes = `{"passed": true, "feedback": "all is well"}`

// A received is what a reviewer finds around it.
type received struct {
	Args  []string
	Stdin string
	Dir   string
	Env   map[string]string
}

// reviewer is what a reviewer does.
func reviewer(mode string, args []string) int {
	switch mode {
	case "pass":
		io.Copy(io.Discard, os.Stdin)
		fmt.Println(passes)
	case "fail":
		io.Copy(io.Discard, os.Stdin)
		fmt.Println(`{"passed": false, "feedback": "the summary is missing"}`)
	case "say": // TEXT [STDERR [CODE]]
		io.Copy(io.Discard, os.Stdin)
		fmt.Print(args[0])
		if len(args) > 1 {
			fmt.Fprint(os.Stderr, args[1])
		}
		if len(args) > 2 {
			code, _ := strconv.Atoi(args[2])
			return code
		}
	case "record": // FILE [ANSWER]
		in, _ := io.ReadAll(os.Stdin)
		dir, _ := os.Getwd()
		got := received{Args: os.Args, Stdin: string(in), Dir: dir, Env: make(map[string]string)}
		for _, v := range os.Environ() {
			name, value, _ := strings.Cut(v, "=")
			got.Env[name] = value
		}
		data, _ := json.Marshal(got)
		if err := os.WriteFile(args[0], data, 0o600); err != nil {
			panic(err)
		}
		if len(args) > 1 {
			fmt.Println(strings.Join(args[1:], " "))
		} else {
			fmt.Println(passes)
		}
	case "noread":
		fmt.Println(passes)
	case "change": // FILE
		io.Copy(io.Discard, os.Stdin)
		if err := os.WriteFile(args[0], []byte("changed by the reviewer\n"), 0o600); err != nil {
			panic(err)
		}
		fmt.Println(passes)
	case "flood":
		for line := bytes.Repeat([]byte("y\n"), 4096); ; {
			if _, err := os.Stdout.Write(line); err != nil {
				return 0
			}
		}
	case "work": // HUB TIME
		d, _ := time.ParseDuration(args[1])
		c := dial(args[0], "work")
		time.Sleep(d)
		fmt.Fprintln(c, "end")
		bufio.NewReader(c).ReadString('\n')
		fmt.Println(passes)
	case "gated": // HUB: ends when the test says so, with what it says
		c := dial(args[0], "gated")
		answer, err := bufio.NewReader(c).ReadString('\n')
		if err != nil {
			return 1
		}
		fmt.Println(answer)
	case "hang": // HUB
		dial(args[0], "hang")
		forever()
	case "stubborn": // HUB
		signal.Ignore(syscall.SIGTERM)
		cmd := exec.Command(os.Args[0], "reviewer", "leaf", args[0])
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		dial(args[0], "stubborn")
		forever()
	case "leaf":
		signal.Ignore(syscall.SIGTERM)
		dial(args[0], "leaf")
		forever()
	}
	return 0
}

var keep []net.Conn // from the garbage collector

// dial reports to the test's hub and waits until it is noted. The connection
// lasts as long as the process.
func dial(hub, mode string) net.Conn {
	c, err := net.Dial("tcp", hub)
	if err != nil {
		panic(err)
	}
	keep = append(keep, c)
	fmt.Fprintf(c, "%s %d\n", mode, os.Getpid())
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		panic(err)
	}
	return c
}

// forever is a select{} that the runtime does not take for a deadlock.
func forever() {
	for {
		time.Sleep(time.Hour)
	}
}

// A hub is where the reviewers of a test report.
type hub struct {
	t    testing.TB
	l    net.Listener
	addr string
}

func newHub(t testing.TB) *hub {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &hub{t, l, l.Addr().String()}
}

// A visitor is a reviewer that has reported.
type visitor struct {
	t    testing.TB
	mode string
	pid  int
	conn net.Conn
	r    *bufio.Reader
}

// next waits for a reviewer; nil when the hub is closed.
func (h *hub) next() *visitor {
	c, err := h.l.Accept()
	if err != nil {
		return nil
	}
	h.t.Cleanup(func() { c.Close() })
	v := &visitor{t: h.t, conn: c, r: bufio.NewReader(c)}
	line, err := v.r.ReadString('\n')
	if _, serr := fmt.Sscan(line, &v.mode, &v.pid); err != nil || serr != nil {
		h.t.Errorf("a reviewer reported %q, %v", line, err)
	}
	c.Write([]byte{1})
	return v
}

// say lets a gated reviewer end.
func (v *visitor) say(text string) { fmt.Fprintln(v.conn, text) }

// patience is how long a test waits for what must come, on a machine that is busy
// with other things too; it never waits that long for what does not.
const patience = time.Minute

// gone fails the test unless the process has ended, or does as soon as a busy
// machine comes to it.
func (v *visitor) gone() {
	v.t.Helper()
	v.conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := v.r.ReadByte(); err == nil || os.IsTimeout(err) {
		v.t.Errorf("reviewer %s, process %d, is still there", v.mode, v.pid)
	}
}
