package catalog

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/actor/testkit"
	"deepwork/actor/wait"
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
				stop, done := make(chan struct{}), make(chan struct{})
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
				// Slow saves are seen as they come; of fast ones maybe none is, before the last.
				least := map[bool]int{true: 3}[pace == 100*time.Millisecond]
				for began := time.Now(); time.Since(began) < 500*time.Millisecond || len(seen) < least && time.Since(began) < patience; {
					seen[fresh(t, c)] = true
				}
				close(stop)
				<-done
				testkit.True(t, len(seen) >= least, "%d versions seen in %d saves", len(seen), saves.Load())
				last := fresh(t, c)
				seen[last] = true
				testkit.Equal(t, int64(saved(t, last)), saves.Load(), "after the last save")
				for s := range seen {
					n := saved(t, s)
					_, held := late.Load(n)
					testkit.True(t, string(s.Job("one").Source) == tearable(n) || held && s != last, "version %d serves half of a save:\n%s", s.Version, s.Job("one").Source)
				}
			})
		}
	}
}

// tearable is a definition of which each beginning that parses is told from the whole: the last workflow names the save.
func tearable(i int) string {
	// The number also comes first, so no version begins like another.
	text := source("one", fmt.Sprintf("save %d %s", i, strings.Repeat("x", i%50)))
	return fmt.Sprintf("# %d\n%s  - name: last_%d\n    summary: The end.\n    steps: [first]\n", i, text, i)
}

// tearing truncates the file, writes it in pieces, and returns how long it took.
func tearing(t *testing.T, file, content string) time.Duration {
	began := time.Now()
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
	testkit.Works(t, err)
	for piece := range slices.Chunk([]byte(content), 150) {
		_, err := f.Write(piece)
		testkit.Works(t, err)
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

// inBubble runs a test on a clock that moves only when all else waits. A watch
// waits for the system and would stop that clock, so it has no watch.
func inBubble(t *testing.T, test func(t *testing.T, p *project, c *Catalog)) {
	p := newProject(t, "one", "first")
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
		"directory": func(p *project) { must(p.t, os.RemoveAll(p.job("one"))) },
		"folder":    func(p *project) { must(p.t, os.RemoveAll(p.path(".deepwork"))) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, p *project, c *Catalog) {
				before := c.Snapshot().Job("one")
				vanish(p)
				s := fresh(t, c)
				testkit.True(t, s.Job("one") == before && len(s.Errors) == 0, "at once: %s %v", names(s), s.Errors)
				time.Sleep(400 * time.Millisecond)
				p.put("one", source("one", "first"))
				testkit.Equal(t, fresh(t, c).Job("one"), before, "another definition, of the same source")
				time.Sleep(time.Second)
				testkit.Equal(t, c.Snapshot().Job("one"), before, "gone though it came back")

				vanish(p)
				fresh(t, c)
				time.Sleep(499 * time.Millisecond)
				testkit.Need(t, fresh(t, c).Job("one") == before, "gone before its time")
				changed := c.Changes(t.Context())
				time.Sleep(time.Millisecond)
				<-changed // nobody called
				s = c.Snapshot()
				testkit.True(t, len(s.Jobs) == 0 && len(s.Errors) == 0, "after 500 ms: %s %v", names(s), s.Errors)
			})
		})
	}
	inBubble(t, func(t *testing.T, p *project, c *Catalog) {
		must(t, os.Rename(p.job("one"), p.job("zwei"))) // gives way to the one that has its name
		s := fresh(t, c)
		testkit.True(t, dirs(s) == "zwei" && len(s.Errors) == 0, "%s in %s, errors %v", names(s), dirs(s), s.Errors)
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
				testkit.Need(t, fresh(t, c) == before, "at once")
				time.Sleep(400 * time.Millisecond)
				testkit.Need(t, fresh(t, c) == before, "after 400 ms")
				time.Sleep(200 * time.Millisecond)
				s := c.Snapshot()
				testkit.Need(t, s != before, "still taken for a save in progress after 600 ms")
				testkit.True(t, torn != "" || s.Job("one") != nil && s.Err("one") != nil, "an empty file: %s %v", names(s), s.Errors)
				testkit.True(t, name != "parses" || len(s.Job("one").Workflows) == 0 && len(s.Errors) == 0, "a shorter definition: %v", s.Errors)
			})
		})
	}
}

// A busy machine takes long between two looks; a file that is saved now and then is settled at one of them all the same.
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
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; wait.For(ctx, 3*time.Millisecond) == nil; i++ {
				p.put("one", source("one", strings.Repeat("x", i%7+1)))
			}
		}()
		time.Sleep(20 * time.Millisecond)
		began := time.Now()
		s := fresh(t, c)
		took := time.Since(began)
		testkit.True(t, took <= follow.Bound, "Fresh took %v", took)
		testkit.Equal(t, s.Job("one"), before, "serves %s", names(s))
		cancel()
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
