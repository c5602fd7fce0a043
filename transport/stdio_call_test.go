package transport

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
)

// A talk is a client that speaks over stdio a line at a time.
type talk struct {
	to    *io.PipeWriter
	lines *bufio.Scanner
}

func talking(t *testing.T, s *Server) *talk {
	t.Helper()
	in, to := io.Pipe()
	from, out := io.Pipe()
	w := &talk{to: to, lines: bufio.NewScanner(from)}
	w.lines.Buffer(nil, 16<<20)
	served := make(chan error, 1)
	go func() { served <- s.ServeStdio(context.Background(), in, out) }()
	t.Cleanup(func() {
		to.Close()
		for w.lines.Scan() {
		}
		noError(t, <-served)
	})
	fmt.Fprint(to, hello)
	w.next(t)
	return w
}

// next is the next line that is answered.
func (w *talk) next(t *testing.T) string {
	t.Helper()
	if !w.lines.Scan() {
		t.Fatal("the output has ended")
	}
	return w.lines.Text()
}

func (w *talk) ask(t *testing.T, line string) string {
	t.Helper()
	fmt.Fprintln(w.to, line)
	return w.next(t)
}

// Progress comes before the answer, and a call that is cancelled is not answered.
func TestCallsOverStdioAreFollowedAndCancelled(t *testing.T) {
	b := newBlocked()
	s, _ := fakeServer(t, b.agent)
	w := talking(t, s)
	call := strings.Replace(finishCall(1), `"params":{`, `"params":{"_meta":{"progressToken":"t"},`, 1)
	told := w.ask(t, call)
	if !strings.Contains(told, `"method":"notifications/progress"`) || !strings.Contains(told, `"progressToken":"t"`) {
		t.Errorf("%s", told)
	}
	<-b.began
	fmt.Fprintln(w.to, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1"}}`)
	fmt.Fprintln(w.to, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	if err := <-b.ended; err != context.Canceled {
		t.Errorf("the cause is %v", err)
	}
	if got := w.ask(t, `{"jsonrpc":"2.0","id":2,"method":"ping"}`); !strings.Contains(got, `"id":2`) {
		t.Errorf("%s", got)
	}
	go func() { <-b.began; b.free <- struct{}{} }()
	if got := w.ask(t, finishCall(3)); !strings.Contains(got, `"id":3,"result"`) {
		t.Errorf("%.300s", got)
	}
}
