package storetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/store"
)

// serveRequests serves requests about attempts until it is killed, and says what it does.
func serveRequests(ctx context.Context) int {
	d := backends[backend](os.Getenv("BOARD_PATH"), nil)
	fmt.Println("serving")
	d.Requests().Serve(ctx, store.OfAttempt, func(id string) bool { return strings.HasPrefix(id, "mine") }, func(_ context.Context, r store.Request) (any, error) {
		fmt.Println("carries out", r.Action, r.Target)
		switch r.Action {
		case "refuse":
			return nil, session.NotNow("too_late", "it is over").With("attempt_id", r.Target)
		case "fail":
			return nil, errors.New("it broke")
		case "read":
			return nil, fmt.Errorf("reading: %w", store.ErrUnavailable)
		case "die":
			os.Exit(3)
		}
		return r, nil
	})
	return 0
}

// start starts a child that serves requests.
func start(t *testing.T, path string) *testkit.Child {
	t.Helper()
	c := testkit.Start(t, roleVariable+"=serve", "BOARD_PATH="+path)
	if said := c.Line(); said != "serving" {
		t.Fatalf("the child says %q, %s", said, &c.Err)
	}
	return c
}

func TestARequestReachesItsOwnerInAnotherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	s := open(t, path, nil).Requests()
	child := start(t, path)
	ask := store.Request{Kind: store.OfAttempt, Target: "mine 1", Action: "stop", Arguments: json.RawMessage(`{"a":9007199254740993}`), Caller: session.Caller{Identity: "me", Group: "web", Rights: session.RightAgents, Channel: session.ChannelHTTP}}
	answer, err := s.Ask(t.Context(), ask)
	var got store.Request
	if err == nil {
		err = json.Unmarshal(answer, &got)
	}
	if err != nil || got.ID == "" || time.Since(got.AskedAt) > time.Minute {
		t.Fatalf("%s, %v", answer, err)
	}
	got.ID, got.AskedAt = "", time.Time{}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", ask) {
		t.Errorf("the owner was asked %+v, want %+v", got, ask)
	}
	ask.Action, ask.Arguments = "refuse", nil
	_, err = s.Ask(t.Context(), ask)
	if e, is := errors.AsType[*session.Error](err); !is || e.Kind != session.StateError || e.Code != "too_late" || e.Message != "it is over" || e.Details["attempt_id"] != "mine 1" {
		t.Errorf("a refusal is %v", err)
	}
	ask.Action = "fail"
	if _, err = s.Ask(t.Context(), ask); err == nil || err.Error() != "it broke" {
		t.Errorf("a failure is %v", err)
	}
	ask.Action = "read"
	if _, err = s.Ask(t.Context(), ask); session.CodeOf(err) != store.CodeUnavailable {
		t.Errorf("a database that is away from the owner is %v", err)
	}
	for _, want := range []string{"stop", "refuse", "fail", "read"} {
		if said := child.Line(); said != "carries out "+want+" mine 1" {
			t.Errorf("the owner says %q", said)
		}
	}
}

// TestARequestIsCarriedOutAtMostOnce: by none of several that could, again, also if
// its owner dies over it.
func TestARequestIsCarriedOutAtMostOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	asker := open(t, path, nil).Requests()
	doomed := start(t, path)
	if _, err := asker.Ask(t.Context(), store.Request{Kind: store.OfAttempt, Target: "mine", Action: "die"}); err != store.ErrNotAnswered {
		t.Errorf("Ask = %v, want %v", err, store.ErrNotAnswered)
	}
	doomed.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	var done atomic.Int32
	stopped := make(chan struct{}, 3)
	for range cap(stopped) {
		s := open(t, path, nil).Requests()
		go func() {
			s.Serve(ctx, store.OfAttempt, func(string) bool { return true }, func(_ context.Context, r store.Request) (any, error) {
				if r.Action == "die" {
					t.Error("what killed its owner is carried out again")
				}
				done.Add(1)
				return nil, nil
			})
			stopped <- struct{}{}
		}()
	}
	const asked = 20
	for range asked {
		if answer, err := asker.Ask(t.Context(), store.Request{Kind: store.OfAttempt, Target: "x", Action: "stop"}); err != nil || answer != nil {
			t.Errorf("%s, %v", answer, err)
		}
	}
	cancel()
	for range cap(stopped) {
		<-stopped
	}
	if n := done.Load(); n != asked {
		t.Errorf("%d requests were carried out %d times", asked, n)
	}
}

// TestARequestWaitsForItsOwnerAndExpires: one that comes late takes it, one that
// comes too late does not.
func TestARequestWaitsForItsOwnerAndExpires(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	var shift atomic.Int64
	s := open(t, path, func() time.Time { return time.Now().Add(time.Duration(shift.Load())) }).Requests()
	for _, target := range []string{"early", "late"} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if _, err := s.Ask(ctx, store.Request{Kind: store.OfAttempt, Target: target}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Ask = %v", err)
		}
		cancel()
		if target == "early" {
			shift.Add(int64(store.RequestLife))
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var owned atomic.Bool
	time.AfterFunc(300*time.Millisecond, func() { owned.Store(true) })
	s.Serve(ctx, store.OfAttempt, func(string) bool { return owned.Load() }, func(_ context.Context, r store.Request) (any, error) {
		if r.Target != "late" {
			t.Errorf("%s was carried out", r.Target)
		}
		time.AfterFunc(300*time.Millisecond, cancel)
		return nil, nil
	})
	if context.Cause(ctx) != context.Canceled {
		t.Error("the request was not carried out")
	}
}
