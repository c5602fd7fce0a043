package remote

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/catalog/source"
	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store/local/sqlite"
)

// crashChild is the environment variable that makes the test binary the server
// of TestNoRunIsStartedTwiceOrForgottenThroughKills: it says where its source is.
const crashChild = "DEEPWORK_TEST_RUN_SOURCE"

// crashLife is that of a record of that server.
const crashLife = 300 * time.Millisecond

// A wire is the plant as a child reaches it.
type wire struct {
	url    string
	client *http.Client
}

type wireCall struct {
	What, Workflow, ID string
	Async              bool
	Input              json.RawMessage
}

func (w *wire) do(ctx context.Context, c wireCall) (*source.Answer, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", source.ErrAway, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, &source.RefusedError{Text: string(text)}
	}
	var a source.Answer
	return &a, json.Unmarshal(text, &a)
}

func (w *wire) Execute(ctx context.Context, f *source.Workflow, input json.RawMessage, _ func(source.Progress)) (*source.Answer, error) {
	return w.do(ctx, wireCall{What: "execute", Workflow: f.ID, Async: f.Async, Input: input})
}

func (w *wire) Status(ctx context.Context, _, _, id string) (*source.Answer, error) {
	return w.do(ctx, wireCall{What: "status", ID: id})
}

func (w *wire) Cancel(ctx context.Context, _, _, id string) (*source.Answer, error) {
	return w.do(ctx, wireCall{What: "cancel", ID: id})
}

// serve makes the plant reachable for a child.
func (p *plant) serve(t *testing.T) *httptest.Server {
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var c wireCall
		err := json.NewDecoder(r.Body).Decode(&c)
		var a *source.Answer
		switch {
		case err != nil:
		case c.What == "execute":
			a, err = p.Execute(r.Context(), &source.Workflow{Source: "plant", ID: c.Workflow, Name: string(c.Input), Async: c.Async}, c.Input, func(source.Progress) {})
		case c.What == "status":
			a, err = p.Status(r.Context(), "plant", "", c.ID)
		default:
			a, err = p.Cancel(r.Context(), "plant", "", c.ID)
		}
		if err != nil {
			http.Error(rw, err.Error(), http.StatusTeapot)
			return
		}
		json.NewEncoder(rw).Encode(a)
	}))
	t.Cleanup(srv.Close)
	return srv
}

// TestCrashChild is that server: it calls workflows for ever, synchronous ones
// and others, more of them than there are slots, and prints what it is told.
func TestCrashChild(t *testing.T) {
	url := os.Getenv(crashChild)
	if url == "" {
		t.Skip("is run by TestNoRunIsStartedTwiceOrForgottenThroughKills")
	}
	cfg := config.Default()
	cfg.WorkflowTools.MaxConcurrent, cfg.WorkflowTools.StatusInterval = 4, 5*time.Millisecond
	e, err := Open(t.Context(), Options{
		Life: crashLife, Database: sqlite.New(sqlite.Options{Path: state.Of(os.Getenv("DEEPWORK_TEST_RUN_ROOT")).Database()}),
		Member: session.NewMember(state.Of(os.Getenv("DEEPWORK_TEST_RUN_ROOT")), nil), Sources: &wire{url, &http.Client{}},
		Settings: func(context.Context) (*config.Config, error) { return cfg, nil },
	})
	testkit.Must(t, err)
	var out sync.Mutex
	say := func(r Run) {
		out.Lock()
		defer out.Unlock()
		accepted := ""
		if r.SourceExecutionID != nil {
			accepted = *r.SourceExecutionID
		}
		fmt.Printf("told %s %s %s\n", r.ExecutionID, r.State, accepted)
	}
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for i := 0; ; i++ {
				id, input := "crash/sync", fmt.Sprintf(`"%s-%d-%d"`, os.Getenv("DEEPWORK_TEST_RUN_ROUND"), caller, i)
				if i%2 == 0 {
					id = "crash/async"
				}
				r, err := e.call(t.Context(), "me", &source.Workflow{Source: "plant", ID: id, Name: "crash", Async: i%2 == 0}, json.RawMessage(input), say)
				if err != nil {
					t.Error(err)
					return
				}
				say(*r)
			}
		})
	}
	callers.Wait()
}

// TestNoRunIsStartedTwiceOrForgottenThroughKills kills servers in the middle of
// their work: each run that somebody was told of is known to the next server,
// those that the source had accepted end there, and none was started twice.
func TestNoRunIsStartedTwiceOrForgottenThroughKills(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	p, root := newPlant(), newRoot(t)
	scripts.Store("crash/sync", &script{lasts: 3 * time.Millisecond, answer: source.Answer{State: source.Completed, Output: json.RawMessage(`1`)}})
	scripts.Store("crash/async", &script{lasts: 12 * time.Millisecond, answer: source.Answer{Output: json.RawMessage(`2`)}})
	srv := p.serve(t)
	states := map[State]int{}
	for round := range 10 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCrashChild$")
		cmd.Env = append(os.Environ(), crashChild+"="+srv.URL, "DEEPWORK_TEST_RUN_ROOT="+root, fmt.Sprintf("DEEPWORK_TEST_RUN_ROUND=%d", round))
		out, err := cmd.StdoutPipe()
		testkit.Must(t, err)
		testkit.Must(t, cmd.Start())
		told, accepted := map[string]State{}, map[string]string{}
		var other []string
		quota, heard := 20+rand.IntN(40), 0
		said := bufio.NewScanner(out)
		for said.Scan() {
			f := strings.Split(said.Text(), " ")
			if len(f) != 4 || f[0] != "told" {
				other = append(other, said.Text())
				continue
			}
			if told[f[1]] = State(f[2]); f[3] != "" {
				accepted[f[1]] = f[3]
			}
			if heard++; heard == quota {
				time.AfterFunc(time.Duration(rand.IntN(3000))*time.Microsecond, func() { cmd.Process.Kill() })
			}
		}
		cmd.Wait()
		if heard < quota {
			t.Fatalf("round %d: the server ended without being asked: %v", round, other)
		}
		s := openFor(t, root, p, func(w *config.WorkflowTools) { w.StatusInterval = time.Millisecond }, crashLife)
		for id, was := range told {
			r, err := s.settle(id)
			if err != nil {
				t.Fatalf("round %d: a run that was %s is forgotten: %v", round, was, err)
			}
			states[r.State]++
			switch _, at := accepted[id]; {
			case was != Running && r.State != was:
				t.Errorf("round %d: a run was %s and is %s", round, was, r.State)
			case at && (r.State != Completed || r.SourceExecutionID == nil || *r.SourceExecutionID != accepted[id] || string(r.Result) != `2`):
				t.Errorf("round %d: a run that its source had accepted is %+v", round, r)
			}
		}
		s.stop()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for input, n := range p.started {
		if n != 1 {
			t.Errorf("%s was started %d times", input, n)
		}
	}
	if states[Completed] == 0 || states[Unknown] == 0 {
		t.Errorf("the kills hit nothing: %v", states)
	}
	t.Logf("%d runs started at the source; states afterwards: %v", len(p.started), states)
}

// settle waits until a run does not run any more.
func (s *server) settle(id string) (*Run, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for {
		r, err := s.Status(ctx, "me", id)
		if err != nil || r.State != Running {
			return r, err
		}
		if err = wait.For(ctx, time.Millisecond); err != nil {
			return r, fmt.Errorf("it still runs: %+v: %w", r, err)
		}
	}
}
