package process_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
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

	"deepwork/actor/process"
)

// patience bounds the waits for what is to come, on a machine that is busy too.
const patience = time.Minute

// The test binary is the child too: modeEnv says what it does.
const (
	modeEnv = "PROCESS_TEST_MODE"
	hubEnv  = "PROCESS_TEST_HUB"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeEnv); mode != "" {
		os.Exit(child(mode))
	}
	// A program built with -race sleeps for a second at its end, each child too.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	goleak.VerifyTestMain(m)
}

// child is what the test binary does when a test has started it.
func child(mode string) int {
	switch mode {
	case "echo":
		io.Copy(os.Stdout, os.Stdin)
	case "parent": // of a child that tells its id and stays
		process.Run(context.Background(), process.Spec{Command: []string{"sh", "-c", "echo $$ >\"$0\"; exec sleep 1000", os.Getenv("PID_FILE")}})
	case "serving": // the same with a service
		s, err := process.Serve(process.Spec{Command: []string{"sh", "-c", "echo $$ >\"$0\"; exec sleep 1000", os.Getenv("PID_FILE")}}, nil)
		if err != nil {
			return 1
		}
		<-s.Done()
	case "longline":
		fmt.Fprintln(os.Stderr, strings.Repeat("x", 1<<20))
		fmt.Fprint(os.Stderr, "\n\nlast, without an end")
	case "noread":
	case "tell":
		wd, _ := os.Getwd()
		json.NewEncoder(os.Stdout).Encode(map[string]any{"args": os.Args[1:], "dir": wd, "env": os.Getenv("TELL")})
	case "fail":
		fmt.Println("out")
		for i := range 10_000 {
			fmt.Fprintf(os.Stderr, "line %d\n", i)
		}
		return 3
	case "failout":
		fmt.Println("\x1b[31mfirst\x1b[0m\nlast\x00")
		return 4
	case "exactly":
		os.Stdout.Write(bytes.Repeat([]byte("x"), 1000))
	case "flood":
		signal.Ignore(syscall.SIGTERM)
		for line := bytes.Repeat([]byte("y\n"), 4096); ; {
			if _, err := os.Stdout.Write(line); err != nil {
				return 0
			}
		}
	case "hang":
		attend()
		forever()
	case "obedient":
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		attend()
		<-end
		fmt.Println("tidied up")
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		spawn("leaf", nil)
		attend()
		forever()
	case "leaf":
		signal.Ignore(syscall.SIGTERM)
		attend()
		forever()
	case "orphan":
		spawn("leaf", nil)
		fmt.Println("done")
	case "escape":
		spawn("leaf", detached)
		fmt.Println("done")
	case "tidy": // takes as long to end as the test says
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		attend()
		<-end
		attend()
		keep[len(keep)-1].Read(make([]byte, 1))
		fmt.Println("tidied up")
	case "gentle": // dies of SIGTERM at once; its child tidies up
		spawn("tidy", nil)
		attend()
		forever()
	}
	return 0
}

// spawn starts a child that shares the pipes, and returns once it has reported.
func spawn(mode string, change func(*exec.Cmd)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), modeEnv+"="+mode, "PROCESS_TEST_PARENT="+l.Addr().String())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if change != nil {
		change(cmd)
	}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	c, err := l.Accept()
	if err != nil {
		panic(err)
	}
	c.Close()
	l.Close()
}

// attend reports to the test, and holds a connection for as long as the process
// lives; then to the parent, if it waits.
func attend() {
	hub, err := net.Dial("tcp", os.Getenv(hubEnv))
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(hub, "%d\n", os.Getpid())
	keep = append(keep, hub)
	if parent := os.Getenv("PROCESS_TEST_PARENT"); parent != "" {
		if c, err := net.Dial("tcp", parent); err == nil {
			c.Close()
		}
	}
}

var keep []net.Conn // from the garbage collector

// A hub is where the processes of a test report.
type hub struct {
	t testing.TB
	l net.Listener
}

func newHub(t testing.TB) *hub {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &hub{t, l}
}

// A visitor is a process that has reported.
type visitor struct {
	t    testing.TB
	pid  int
	conn net.Conn
}

// next waits until a process has reported.
func (h *hub) next() *visitor {
	h.l.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	c, err := h.l.Accept()
	if err != nil {
		h.t.Errorf("no process has reported: %v", err)
		return nil
	}
	h.t.Cleanup(func() { c.Close() })
	line, err := bufio.NewReader(c).ReadString('\n')
	pid, _ := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || pid == 0 {
		h.t.Errorf("a process reported %q, %v", line, err)
	}
	return &visitor{h.t, pid, c}
}

// gone fails the test unless the process has ended, or does as soon as a busy
// machine comes to it.
func (v *visitor) gone() {
	v.t.Helper()
	v.conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := v.conn.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		v.t.Errorf("process %d is still there", v.pid)
	}
}

// alive tells whether the process holds its connection.
func (v *visitor) alive() bool {
	v.conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	_, err := v.conn.Read(make([]byte, 1))
	return os.IsTimeout(err)
}

// spec makes the test binary the command, in a mode.
func spec(t testing.TB, mode string, h *hub) process.Spec {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := process.Spec{Command: []string{self}, Env: append(os.Environ(), modeEnv+"="+mode)}
	if h != nil {
		s.Env = append(s.Env, hubEnv+"="+h.l.Addr().String())
	}
	return s
}

// cancelWhen returns a context that ends once n processes have reported.
func cancelWhen(t testing.TB, h *hub, n int) (context.Context, <-chan []*visitor) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	all := make(chan []*visitor, 1)
	go func() {
		var vs []*visitor
		for range n {
			if v := h.next(); v != nil {
				vs = append(vs, v)
			}
		}
		cancel()
		all <- vs
	}()
	return ctx, all
}

// forever is a select{} that the runtime does not take for a deadlock.
func forever() {
	for {
		time.Sleep(time.Hour)
	}
}
