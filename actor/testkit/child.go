// Package testkit holds what the tests of several packages share. Only tests import it.
package testkit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The environment of processes that a test starts from its own binary.
const (
	HubEnv    = "TESTKIT_HUB" // the address of the test's Hub
	parentEnv = "TESTKIT_PARENT"
)

// patience limits the waits for other processes, even on a busy machine.
const patience = time.Minute

// Spawn starts this binary again, in a child of a test, with entries added to its environment, and returns
// once the new process has called Attend. It shares the pipes of this process. If away is set, it leaves the
// session and the process group.
func Spawn(away bool, env ...string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	defer l.Close()

	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), env...), parentEnv+"="+l.Addr().String())
	cmd.Stdin = os.Stdin
	cmd.Stdout = os.Stdout
	cmd.Stderr = os.Stderr
	if away {
		cmd.SysProcAttr = apart
	}
	check(cmd.Start())

	c, err := l.Accept()
	check(err)
	c.Close()
}

// Attend reports to the test's Hub, if there is one, and then to the process that called Spawn. It
// returns the connection to the Hub, which stays open for as long as the process lives.
func Attend() (hub net.Conn) {
	if addr := os.Getenv(HubEnv); addr != "" {
		var err error
		hub, err = net.Dial("tcp", addr)
		check(err)
		fmt.Fprintf(hub, "%d\n", os.Getpid())
		open = append(open, hub)
	}
	if parent := os.Getenv(parentEnv); parent != "" {
		if c, err := net.Dial("tcp", parent); err == nil {
			c.Close()
		}
	}
	return hub
}

var open []net.Conn // keeps them from the garbage collector

// Forever blocks in a way that the runtime does not report as a deadlock.
func Forever() {
	for {
		time.Sleep(time.Hour)
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// A Hub receives the reports of a test's processes.
type Hub struct {
	*net.TCPListener
	t testing.TB
}

// NewHub returns a Hub that is closed at the end of the test.
func NewHub(t testing.TB) *Hub {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err)
	t.Cleanup(func() { l.Close() })
	return &Hub{l.(*net.TCPListener), t}
}

// Env returns the environment entry that makes Attend report to h.
func (h *Hub) Env() string { return HubEnv + "=" + h.Addr().String() }

// A Visitor is a process that has reported.
type Visitor struct {
	net.Conn
	PID int
	t   testing.TB
}

// Next waits until a process has reported. It returns nil if h is closed; if no process reports in time, it
// also fails the test.
func (h *Hub) Next() *Visitor {
	h.SetDeadline(time.Now().Add(patience))
	c, err := h.Accept()
	if err != nil {
		if !errors.Is(err, net.ErrClosed) {
			h.t.Errorf("no process has reported: %v", err)
		}
		return nil
	}

	h.t.Cleanup(func() { c.Close() })
	v := &Visitor{Conn: c, t: h.t}
	if _, err := fmt.Fscanln(c, &v.PID); err != nil || v.PID == 0 {
		h.t.Errorf("a process reported %d, %v", v.PID, err)
	}
	return v
}

// Gone fails the test unless the process ends in time.
func (v *Visitor) Gone() {
	v.t.Helper()
	v.SetReadDeadline(time.Now().Add(patience))
	if _, err := v.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		v.t.Errorf("process %d is still there", v.PID)
	}
}

// Alive reports whether the process holds its connection.
func (v *Visitor) Alive() bool {
	v.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	_, err := v.Read(make([]byte, 1))
	return os.IsTimeout(err)
}

// A Child is this binary, run again by a test.
type Child struct {
	*exec.Cmd
	In  io.WriteCloser // its standard input
	Out *bufio.Reader  // its standard output
	Err Log            // its standard error
	t   testing.TB
}

// Start runs this binary again with entries added to its environment. The end of the
// test kills it.
func Start(t testing.TB, env ...string) *Child {
	t.Helper()
	c := &Child{Cmd: exec.Command(os.Args[0]), t: t}
	c.Env, c.Stderr = append(os.Environ(), env...), &c.Err

	var err error
	c.In, err = c.StdinPipe()
	Must(t, err)

	out, err := c.StdoutPipe()
	Must(t, err)
	c.Out = bufio.NewReader(out)

	Must(t, c.Cmd.Start())
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	}) // it may have ended before
	return c
}

// Line returns the next line of the child's output, "" at its end.
func (c *Child) Line() string {
	line, _ := c.Out.ReadString('\n')
	return strings.TrimSpace(line)
}

// Crash kills the child, which must not have exited normally before.
func (c *Child) Crash() {
	c.t.Helper()
	Must(c.t, c.Process.Kill())
	if c.Wait() == nil {
		c.t.Fatal("the child has ended well")
	}
}
