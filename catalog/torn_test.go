package catalog

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/actor/testkit"
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
				testkit.True(t, len(seen) >= least, "%d versions seen in %d saves", len(seen), saves.Load())
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
		testkit.Works(t, testkit.Get(f.WriteString(content[:n])).Err())
		content = content[n:]
	}
	testkit.Works(t, f.Close())
	return time.Since(began)
}

// saved is the number of the save that a snapshot serves.
func saved(t *testing.T, s *Snapshot) int {
	t.Helper()
	j := s.Job("one")
	testkit.Need(t, j != nil, "version %d has no definition; errors %v", s.Version, s.Errors)
	var i int
	testkit.Get(fmt.Sscanf(j.Summary, "save %d", &i)).Must(t)
	return i
}

// whole reports whether a snapshot serves a save from its beginning to its end.
func whole(t *testing.T, s *Snapshot) bool {
	t.Helper()
	i := saved(t, s)
	return string(s.Job("one").Source) == tearable(i)
}

// inBubble runs a test on a clock that moves only when all else waits. A watch
// waits for the system and would stop that clock, so it has no watch.
func inBubble(t *testing.T, test func(t *testing.T, p *project, c *Catalog)) {
	p := newProject(t)
	p.put("one", source("one", "first"))
	synctest.Test(t, func(t *testing.T) {
		o := silent()
		o.Root = p.root
		c := testkit.Get(Open(t.Context(), o)).Must(t)
		test(t, p, c)
		must(t, c.Close(context.Background()))
	})
}

func TestVanishedJobStaysForTheGraceAndGoesByItself(t *testing.T) {
	t.Parallel()
	for name, vanish := range map[string]func(*project){
		"file":      func(p *project) { must(p.t, os.Remove(p.jobFile("one"))) },
		"directory": func(p *project) { must(p.t, os.RemoveAll(p.path(".deepwork", "jobs", "one"))) },
		"folder":    func(p *project) { must(p.t, os.RemoveAll(p.path(".deepwork"))) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, p *project, c *Catalog) {
				vanish(p)
				if s := fresh(t, c); summary(s, "one") != "first" || len(s.Errors) != 0 {
					t.Fatalf("at once: %s %v", names(s), s.Errors)
				}
				time.Sleep(499 * time.Millisecond)
				if s := fresh(t, c); summary(s, "one") != "first" {
					t.Fatal("gone before its time")
				}
				changed := c.Changes(t.Context())
				time.Sleep(time.Millisecond)
				<-changed // nobody called
				if s := c.Snapshot(); len(s.Jobs) != 0 || len(s.Errors) != 0 {
					t.Errorf("after 500 ms: %s %v", names(s), s.Errors)
				}
			})
		})
	}
}

func TestJobThatComesBackWithinTheGraceWasNeverGone(t *testing.T) {
	inBubble(t, func(t *testing.T, p *project, c *Catalog) {
		before := c.Snapshot().Job("one")
		must(t, os.Remove(p.jobFile("one")))
		fresh(t, c)
		time.Sleep(400 * time.Millisecond)
		p.put("one", source("one", "first"))
		testkit.Equal(t, fresh(t, c).Job("one"), before, "another definition, of the same source")
		time.Sleep(time.Second)
		testkit.Equal(t, c.Snapshot().Job("one"), before, "gone though it came back")
	})
}

func TestVanishedJobGivesWayToTheOneThatHasItsName(t *testing.T) {
	inBubble(t, func(t *testing.T, p *project, c *Catalog) {
		must(t, os.Rename(p.path(".deepwork", "jobs", "one"), p.path(".deepwork", "jobs", "zwei")))
		s := fresh(t, c)
		if len(s.Jobs) != 1 || len(s.Errors) != 0 || s.Jobs[0].Dir != p.path(".deepwork", "jobs", "zwei") {
			t.Errorf("%s in %s, errors %v", names(s), dirs(s), s.Errors)
		}
	})
}

// TestTornContent is content that is the beginning of the last good definition:
// a save in progress while it is young, and after that what it is.
func TestTornContent(t *testing.T) {
	t.Parallel()
	whole := source("one", "first")
	for name, torn := range map[string]string{
		"empty":            "",
		"does not parse":   whole[:200],
		"parses":           whole[:strings.Index(whole, "workflows:")],
		"all but its last": whole[:len(whole)-2],
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, p *project, c *Catalog) {
				before := c.Snapshot()
				p.put("one", torn)
				if s := fresh(t, c); s != before {
					t.Fatalf("at once: %s %v", names(s), s.Errors)
				}
				time.Sleep(400 * time.Millisecond)
				if s := fresh(t, c); s != before {
					t.Fatalf("after 400 ms: %s %v", names(s), s.Errors)
				}
				time.Sleep(200 * time.Millisecond)
				s := c.Snapshot()
				testkit.Need(t, s != before, "still taken for a save in progress after 600 ms")
				testkit.True(t, torn != "" || s.Job("one") != nil && s.Err("one") != nil, "an empty file: %s %v", names(s), s.Errors)
				testkit.True(t, name != "parses" || len(s.Job("one").Workflows) == 0 && len(s.Errors) == 0, "a shorter definition: %v", s.Errors)
			})
		})
	}
}

// A busy machine takes long between two looks; a file that is saved now and then is settled at one
// of them all the same.
func TestFreshIsPatientOnABusyMachine(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, p *project, c *Catalog) {
		looks := 0
		s, err := c.look(t.Context(), c.state.Load(), func(s *state) []key {
			if looks++; looks <= 5 {
				time.Sleep(follow.Bound / 2)
				p.put("one", source("one", fmt.Sprint("save ", looks)))
			}
			return s.stale()
		})
		must(t, err)
		testkit.Equal(t, summary(s, "one"), "save 5", "it serves after %d looks", looks)
	})
}

func TestFileThatNeverSettlesHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, p *project, c *Catalog) {
		before := c.Snapshot().Job("one")
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(3 * time.Millisecond):
					p.put("one", source("one", strings.Repeat("x", i%7+1)))
				}
			}
		}()
		time.Sleep(20 * time.Millisecond)
		began := time.Now()
		s := fresh(t, c)
		took := time.Since(began)
		testkit.True(t, took <= follow.Bound, "Fresh took %v", took)
		testkit.Equal(t, s.Job("one"), before, "serves %s", names(s))
		close(stop)
		<-done
		p.put("one", source("one", "last"))
		testkit.Equal(t, summary(fresh(t, c), "one"), "last", "after the last write")
	})
}

func TestRacyContentIsSettledByItself(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, p *project, c *Catalog) {
		testkit.Need(t, c.state.Load().folders[0].entry("one").Racy, "a file as young as the clock is not racy")
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		st := c.state.Load()
		testkit.True(t, !st.folders[0].entry("one").Racy && !st.folders[0].Racy && st.due.IsZero(), "still racy")
		testkit.Equal(t, st.snap.Version, 1, "the version, though nothing changed")
	})
}
