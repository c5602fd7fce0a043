package presence

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Of several servers that want what is nobody's one gets it, each time its owner
// is killed, and none gets what a living one has.
func TestTwoClaimsAtOnceHaveOneWinner(t *testing.T) {
	dir := t.TempDir()
	servers := make([]*process, 5)
	for i := range servers {
		servers[i] = start(t, dir, "win")
	}
	race := func() (winners []*process, losers []*process) {
		for _, p := range servers {
			p.tell(t)
		}
		for _, p := range servers {
			switch said := p.hear(t); said {
			case "true":
				winners = append(winners, p)
			case "false":
				losers = append(losers, p)
			default:
				t.Fatalf("it said %q: %s", said, p.stderr)
			}
		}
		return winners, losers
	}
	for len(servers) > 0 {
		winners, losers := race()
		if len(winners) != 1 {
			t.Fatalf("%d won", len(winners))
		}
		if again, _ := race(); len(again) != 0 {
			t.Fatalf("%d took what a living one has", len(again))
		}
		winners[0].kill(t)
		servers = losers
	}
}

func TestAClaimExcludesOthers(t *testing.T) {
	dir := t.TempDir()
	children := make([]*process, 6)
	for i := range children {
		children[i] = start(t, dir, "count")
	}
	for _, p := range children {
		p.tell(t)
	}
	var wg sync.WaitGroup
	c := testClaim(newMember(dir)) // and calls in one process
	for range 6 {
		wg.Go(func() {
			for range 20 {
				if err := c.Do(t.Context(), func() error { return addOne(filepath.Join(dir, "n")) }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, p := range children {
		p.end(t)
	}
	text, err := os.ReadFile(filepath.Join(dir, "n"))
	if err != nil || len(text) != 12*20 {
		t.Errorf("%d of %d are there, %v", len(text), 12*20, err)
	}
}

// A claim is waited for as long as that is told, and ends with the process that
// has it.
func TestAClaimHeldByAnother(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir, "claim")
	c := testClaim(newMember(dir))
	never := func() error { t.Error("it ran all the same"); return nil }
	c.Wait = 50 * time.Millisecond
	if err := c.Do(t.Context(), never); err == nil || !strings.Contains(err.Error(), c.Path) || !strings.Contains(err.Error(), "50ms") {
		t.Errorf("one that had to wait too long: %v", err)
	}
	c.Wait = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := c.Do(ctx, never); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller who went: %v", err)
	}
	done := make(chan error)
	go func() { done <- c.Do(t.Context(), func() error { return nil }) }()
	p.kill(t)
	must(t, <-done)
}

func TestAClaimInOneProcess(t *testing.T) {
	c := testClaim(newMember(t.TempDir()))
	boom := errors.New("boom")
	if err := c.Do(t.Context(), func() error {
		c := *c
		c.Wait = time.Millisecond
		if err := c.Do(t.Context(), func() error { return nil }); err == nil || !strings.Contains(err.Error(), "1ms") {
			t.Errorf("a second one: %v", err)
		}
		return boom
	}); err != boom {
		t.Errorf("its error came back as %v", err)
	}
	must(t, c.Do(t.Context(), func() error { return nil }))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		if err := c.Do(gone, func() error { t.Error("it ran"); return nil }); !errors.Is(err, context.Canceled) {
			t.Fatalf("a caller who has gone: %v", err)
		}
	}
}

func TestAClaimThatCannotBe(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "servers")
	c := testClaim(newMember(dir))
	must(t, c.Do(t.Context(), func() error { return nil })) // which makes the folder
	boom := errors.New("boom")
	fails := NewClaim(dir, func() error { return boom })
	if err := fails.Do(t.Context(), nil); err != boom {
		t.Errorf("no folder: %v", err)
	}
	must(t, os.Remove(c.Path))
	must(t, os.Mkdir(c.Path, 0o700))
	if err := c.Do(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "is a folder, not a file") {
		t.Errorf("a folder in its place: %v", err)
	}
	must(t, os.Remove(c.Path))
	// The folder goes in the middle of it, and is made again.
	gone := 0
	c.makeFolder = func() error {
		if gone++; gone == 1 {
			return os.RemoveAll(dir)
		}
		return os.MkdirAll(dir, 0o700)
	}
	must(t, c.Do(t.Context(), func() error { return nil }))
	if gone != 2 {
		t.Errorf("it was made %d times", gone)
	}
}
