package catalog

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/catalog/internal/follow"
)

// TestOnlyWholeDefinitionsAreServed saves in halves, at several paces, while
// readers look: each definition they see must be one that was written whole.
func TestOnlyWholeDefinitionsAreServed(t *testing.T) {
	for _, pace := range []time.Duration{100 * time.Millisecond, 10 * time.Millisecond, time.Millisecond} {
		for name, o := range map[string]Options{
			"watcher": {Debounce: 2 * time.Millisecond, Poll: time.Hour},
			"poller":  {NoWatch: true, Poll: 2 * time.Millisecond},
			"calls":   silent(),
		} {
			t.Run(fmt.Sprintf("%v %s", pace, name), func(t *testing.T) {
				t.Parallel()
				p := newProject(t)
				p.put("one", tearable(0))
				c := p.open(o)
				var saves atomic.Int64
				var late sync.Map // saves that the machine held up in the middle: their beginnings may be believed
				stop := make(chan struct{})
				done := make(chan struct{})
				go func() {
					defer close(done)
					ticker := time.NewTicker(pace)
					defer ticker.Stop()
					for i := 1; ; i++ {
						select {
						case <-stop:
							return
						case <-ticker.C:
							if took := tearing(t, p.jobFile("one"), tearable(i)); took > follow.Settle/2 {
								late.Store(i, took)
							}
							saves.Store(int64(i))
						}
					}
				}()
				seen := make(map[*Snapshot]bool)
				var halves []*Snapshot
				// Slow saves are seen as they come; of fast ones maybe none is, before
				// the last.
				least := 0
				if pace == 100*time.Millisecond {
					least = 3
				}
				began := time.Now()
				for time.Since(began) < 500*time.Millisecond || len(seen) < least && time.Since(began) < patience {
					s := fresh(t, c)
					if seen[s] {
						continue
					}
					seen[s] = true
					if !whole(t, s) {
						halves = append(halves, s)
					}
				}
				close(stop)
				<-done
				for _, s := range halves {
					if took, is := late.Load(saved(t, s)); !is {
						t.Errorf("version %d serves half of a save:\n%s", s.Version, s.Job("one").Source)
					} else {
						t.Logf("a save took %v", took)
					}
				}
				if len(seen) < least {
					t.Errorf("%d versions seen in %d saves", len(seen), saves.Load())
				}
				last := fmt.Sprintf("save %d", saves.Load())
				if s := fresh(t, c); !strings.HasPrefix(summary(s, "one"), last+" ") {
					t.Errorf("after the last save %q is served, want %q", summary(s, "one"), last)
				} else if !whole(t, s) {
					t.Errorf("half of the last save is served:\n%s", s.Job("one").Source)
				}
			})
		}
	}
}

// tearable is a definition of which each beginning that parses is told from the
// whole: the last workflow names the save.
func tearable(i int) string {
	// The number also comes first, so no version begins like another.
	text := source("one", fmt.Sprintf("save %d %s", i, strings.Repeat("x", i%50)))
	return fmt.Sprintf("# %d\n%s  - name: last_%d\n    summary: The end.\n    steps: [first]\n", i, text, i)
}

// tearing truncates the file, writes it in pieces, and returns how long it took.
func tearing(t *testing.T, file, content string) time.Duration {
	began := time.Now()
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Error(err)
		return 0
	}
	for len(content) > 0 {
		n := min(len(content), 150)
		if _, err := f.WriteString(content[:n]); err != nil {
			t.Error(err)
		}
		content = content[n:]
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	return time.Since(began)
}

// saved is the number of the save that a snapshot serves.
func saved(t *testing.T, s *Snapshot) int {
	t.Helper()
	j := s.Job("one")
	if j == nil {
		t.Fatalf("version %d has no definition; errors %v", s.Version, s.Errors)
	}
	var i int
	if _, err := fmt.Sscanf(j.Summary, "save %d", &i); err != nil {
		t.Fatal(err)
	}
	return i
}

// whole reports whether a snapshot serves a save from its beginning to its end.
func whole(t *testing.T, s *Snapshot) bool {
	t.Helper()
	i := saved(t, s)
	return string(s.Job("one").Source) == tearable(i)
}
