//go:build unix

package process_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
)

func TestSignalThatIsNotOurs(t *testing.T) {
	t.Parallel()
	h := testkit.NewHub(t)
	signalled := func(s syscall.Signal) (r process.Result, err *process.Error) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			r, err = run(t, t.Context(), spec(t, "hang", h))
		}()
		testkit.Must(t, syscall.Kill(h.Next().PID, s))
		<-done
		testkit.Need(t, err != nil, "it is not told")
		return r, err
	}

	// The Go runtime of the child prints its goroutines and exits with 2.
	r, err := signalled(syscall.SIGSEGV)
	testkit.Equal(t, err.Kind, process.Exit, "got %v", err)
	testkit.Equal(t, err.ExitCode, 2, "got %v", err)
	testkit.Contains(t, r.Stderr, "goroutine", "got %v", err)

	_, err = signalled(syscall.SIGKILL)
	testkit.Equal(t, err.Kind, process.Signal, "got %+v", err)
	testkit.Equal(t, err.Signal, "SIGKILL", "got %+v", err)
	testkit.Equal(t, err.ExitCode, -1, "got %+v", err)
}

// A client that ends a server with all its children must not reach an agent.
func TestDetachedIsNobodysChild(t *testing.T) {
	t.Parallel()
	s := spec(t, "detached", nil)
	answer, life, err := process.Detach(t.Context(), s.Command, s.Env)
	testkit.Must(t, err)
	defer life.Close()
	var pid, parent int
	testkit.Get(fmt.Sscan(answer, &pid, &parent)).Must(t)
	defer syscall.Kill(pid, syscall.SIGKILL)
	session, err := unix.Getsid(pid)
	testkit.Need(t, err == nil, "process %d is in session %d (%v), and a child of %d", pid, session, err, parent)
	testkit.Equal(t, session, pid, "process %d is in session %d (%v), and a child of %d", pid, session, err, parent)
	testkit.True(t, parent != os.Getpid(), "process %d is in session %d (%v), and a child of %d", pid, session,
		err, parent)

	testkit.Must(t, syscall.Kill(pid, syscall.SIGTERM)) // which it survives
	testkit.Must(t, syscall.Kill(pid, 0))
}
