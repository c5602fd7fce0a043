package process

import (
	"io"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// What is in a pipe is waited for longer than what may still come.
func TestDrainWaitsLongerForWhatIsThere(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no way to see what is in a pipe")
	}
	pipe := func(written string) (r, w *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		io.WriteString(w, written)
		return r, w
	}
	empty, _ := pipe("")
	full, _ := pipe("last words")
	closed, _ := pipe("x")
	closed.Close()
	over, end := pipe("")
	end.Close()
	const tick = 50 * time.Millisecond
	for name, c := range map[string]struct {
		pipes []*os.File
		done  time.Duration // when the readers are
		want  time.Duration
	}{
		"empty":         {[]*os.File{empty, closed}, time.Hour, time.Second},
		"full":          {[]*os.File{empty, full}, time.Hour, 3*time.Second - tick},
		"read in time":  {[]*os.File{full}, 300*time.Millisecond + 1, 300*time.Millisecond + 1},
		"over":          {[]*os.File{over, closed}, time.Hour, tick},
		"over, and not": {[]*os.File{over, empty}, time.Hour, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				done := make(chan struct{})
				timer := time.AfterFunc(c.done, func() { close(done) })
				defer timer.Stop()
				began := time.Now()
				drain(done, time.Second, c.pipes...)
				if took := time.Since(began); took != c.want {
					t.Errorf("it took %v, want %v", took, c.want)
				}
			})
		})
	}
}
