package transport

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"deepwork/session/workflow"
)

// A talk is a client that speaks over stdio a line at a time.
type talk struct {
	c     *stdio
	to    *io.PipeWriter
	lines *bufio.Scanner
}

func talking(t *testing.T, s *Server, begin bool) *talk {
	t.Helper()
	in, to := io.Pipe()
	from, out := io.Pipe()
	w := &talk{c: newStdio(in, out, s.logger), to: to, lines: bufio.NewScanner(from)}
	w.lines.Buffer(nil, 16<<20)
	served := make(chan error, 1)
	go func() { served <- s.serve(context.Background(), w.c) }()
	t.Cleanup(func() {
		to.Close()
		for w.lines.Scan() {
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	waitFor(t, "the beginning", func() bool { return w.c.direct.Load() != nil }) // until then all go to the SDK
	if begin {
		fmt.Fprint(to, hello)
		w.next(t)
	}
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

// A call over stdio that is carried out past the SDK is answered as on its way, to
// the byte.
func TestDirectCallsOverStdioAreAnsweredAsTheSDKs(t *testing.T) {
	s, _ := fakeServer(t, func(a *fakeAgent) {
		a.start = func(_ context.Context, args workflow.StartArgs) (*workflow.StartReply, error) {
			if args.Goal == "panic" {
				panic("no")
			}
			return &workflow.StartReply{BeginStep: fullStep(strings.Repeat("<&>\u2028é", 20_000)), Stack: a.stack}, nil
		}
	})
	var w *talk
	for _, meta := range []string{`"_meta":{"mine":1}`, `"_meta":{` + newestTriple + `}`} {
		w = talking(t, s, !strings.Contains(meta, statelessSince))
		if strings.Contains(meta, statelessSince) { // which begins with any request, and that is the SDK's
			w.ask(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_workflows",`+meta+`}}`)
		}
		for _, params := range []string{
			`{"name":"get_workflows","arguments":{},META}`,
			`{"name":"get_workflows",META}`,
			`{"name":"start_workflow","arguments":{"goal":"g","job_name":"j","workflow_name":"w"},META}`,
			`{"name":"start_workflow","arguments":{"goal":"panic","job_name":"j","workflow_name":"w"},META}`,
			`{"name":"start_workflow","arguments":{"goal":7},META}`,
			`{"name":"nobody","arguments":{},META}`,
		} {
			for _, id := range []string{"1", "-5", `"x\"\\,\u00e9\n"`} {
				line := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":%s}`, id, strings.Replace(params, "META", meta, 1))
				before := w.c.past.Load()
				ours := w.ask(t, line)
				if w.c.past.Load() != before+1 {
					t.Errorf("%s: it went the SDK's way", line)
				}
				theirs := w.ask(t, strings.Replace(line, `{"name"`, `{"requestState":"","name"`, 1))
				if w.c.past.Load() != before+1 {
					t.Errorf("%s: it did not go the SDK's way", line)
				}
				if ours != theirs {
					t.Errorf("%s:\n%.300s\n%.300s", line, ours, theirs)
				}
			}
		}
	}
	w = talking(t, s, true)
	if got := w.ask(t, `[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_workflows"}},{"jsonrpc":"2.0","id":2,"method":"ping"}]`); !strings.HasPrefix(got, "[{") ||
		!strings.Contains(got, `"id":1,"result"`) || !strings.Contains(got, `"id":2,"result"`) {
		t.Errorf("a batch: %.300s", got)
	}
}

// Progress comes before the answer, and a call that is cancelled is not answered.
func TestDirectCallsOverStdioAreFollowedAndCancelled(t *testing.T) {
	began, free, ended := make(chan struct{}, 1), make(chan struct{}), make(chan error, 1)
	s, _ := fakeServer(t, func(a *fakeAgent) {
		a.finish = func(ctx context.Context, _ workflow.FinishArgs) (*workflow.FinishReply, error) {
			tellProgress(ctx, "it has begun")
			began <- struct{}{}
			select {
			case <-free:
				return fullFinish(), nil
			case <-ctx.Done():
				ended <- context.Cause(ctx)
				return nil, ctx.Err()
			}
		}
	})
	w := talking(t, s, true)
	call := strings.Replace(finishCall(1), `"params":{`, `"params":{"_meta":{"progressToken":"t"},`, 1)
	told := w.ask(t, call)
	if !strings.Contains(told, `"method":"notifications/progress"`) || !strings.Contains(told, `"progressToken":"t"`) {
		t.Errorf("%s", told)
	}
	<-began
	fmt.Fprintln(w.to, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1"}}`)
	fmt.Fprintln(w.to, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	if err := <-ended; err != context.Canceled {
		t.Errorf("the cause is %v", err)
	}
	if got := w.ask(t, `{"jsonrpc":"2.0","id":2,"method":"ping"}`); !strings.Contains(got, `"id":2`) {
		t.Errorf("%s", got)
	}
	go func() { <-began; free <- struct{}{} }()
	if got := w.ask(t, finishCall(3)); !strings.Contains(got, `"id":3,"result"`) || w.c.past.Load() != 2 {
		t.Errorf("%d went past the SDK: %.300s", w.c.past.Load(), got)
	}
}
