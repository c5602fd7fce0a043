//go:build unix

package process_test

import (
	"strings"
	"syscall"
	"testing"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
)

func TestSignalThatIsNotOurs(t *testing.T) {
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
	if err == nil || err.ExitCode == 0 {
		t.Fatalf("got %v", err)
	}
	// The Go runtime of the child prints its goroutines and exits with 2.
	if err.Kind != process.Exit || err.ExitCode != 2 || !strings.Contains(r.Stderr, "goroutine") {
		t.Errorf("got %v", err)
	}

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
