//go:build unix

package process_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
)

func TestSignalThatIsNotOurs(t *testing.T) {
	t.Parallel()
	h := testkit.NewHub(t)
	done := make(chan *process.Error, 1)
	var r process.Result
	go func() {
		var err *process.Error
		r, err = run(t, t.Context(), spec(t, "hang", h))
		done <- err
	}()
	v := h.Next()
	testkit.Must(t, syscall.Kill(v.PID, syscall.SIGSEGV))
	err := <-done
	testkit.Need(t, err != nil && err.ExitCode != 0, "got %v", err)
	// The Go runtime of the child prints its goroutines and exits with 2.
	testkit.True(t, err.Kind == process.Exit && err.ExitCode == 2 && strings.Contains(r.Stderr, "goroutine"), "got %v", err)

	go func() {
		_, err := run(t, t.Context(), spec(t, "hang", h))
		done <- err
	}()
	v = h.Next()
	syscall.Kill(v.PID, syscall.SIGKILL)
	if err := <-done; err == nil || err.Kind != process.Signal || err.Signal != "SIGKILL" || err.ExitCode != -1 {
		t.Errorf("got %+v", err)
	}
}

// A client that ends a server with all its children must not reach an agent.
func TestDetachedIsNobodysChild(t *testing.T) {
	t.Parallel()
	s := spec(t, "detached", nil)
	answer, life, err := process.Detach(t.Context(), s.Command, s.Env)
	testkit.Must(t, err)
	defer life.Close()
	var pid, parent int
	if _, err := fmt.Sscan(answer, &pid, &parent); err != nil {
		t.Fatalf("%q: %v", answer, err)
	}
	defer syscall.Kill(pid, syscall.SIGKILL)
	session, err := unix.Getsid(pid)
	testkit.True(t, err == nil && session == pid && parent != os.Getpid(), "process %d is in session %d (%v), and a child of %d", pid, session, err, parent)
	testkit.Must(t, syscall.Kill(pid, syscall.SIGTERM)) // which it survives
	testkit.Must(t, syscall.Kill(pid, 0))
}
