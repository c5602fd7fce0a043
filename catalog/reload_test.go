package catalog

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"

	"deepwork/actor"
	"deepwork/actor/testkit"
	"deepwork/actor/wait"
	"deepwork/catalog/internal/follow"
)

func TestAnEditTouchesNoOtherJob(t *testing.T) {
	p := newProject(t)
	for i := range 20 {
		name := fmt.Sprintf("job_%02d", i)
		p.put(name, source(name, "first"))
	}
	c := p.open(Options{Debounce: 20 * time.Millisecond, Poll: time.Hour})
	before := c.Snapshot()

	// A burst: many writes of one job, and files beside it that are not read.
	for i := range 50 {
		p.put("job_07", source("job_07", fmt.Sprintf("edit %d", i)))
		write(t, p.job("job_07", "steps", "first.md"), "text")
	}

	after := serves(t, c, "job_07", "edit 49")
	for i, j := range after.Jobs {
		testkit.Equal(t, j == before.Jobs[i], j.Name != "job_07", "%s: same definition", j.Name)
	}
	testkit.True(t, before.Version < after.Version, "version %d after %d", after.Version, before.Version)

	// What changes nothing is no change.
	must(t, os.Chtimes(p.jobFile("job_03"), time.Now(), time.Now()))
	p.put("job_04", source("job_04", "first"))
	testkit.Equal(t, fresh(t, c), after, "%v", after.Version)
}

func TestBurstIsOneReload(t *testing.T) {
	p := newProject(t, "one", "first")
	n := newFakeNotifier()
	c := p.open(Options{Debounce: 30 * time.Millisecond, Poll: time.Hour, notifier: n.open})
	n.await(t, p.job("one"), 1)
	for range 500 {
		n.ev <- fsnotify.Event{Name: p.jobFile("one"), Op: fsnotify.Write}
	}
	p.put("one", source("one", "second"))
	n.ev <- fsnotify.Event{Name: p.jobFile("one"), Op: fsnotify.Write}
	testkit.Equal(t, serves(t, c, "one", "second").Version, 2, "the version after one burst")
}

func TestLastGoodDefinitionStaysWhileTheFileIsBad(t *testing.T) {
	p := newProject(t)
	p.put("dir", source("job", "good"))
	c := p.open(silent())
	good := c.Snapshot().Job("job")
	p.put("dir", "name: job\nversion: [")
	s := fresh(t, c)
	testkit.Equal(t, s.Job("job"), good, "the good definition is gone")
	testkit.Equal(t, len(s.Jobs), 1, "the good definition is gone")
	testkit.Need(t, s.Err("dir") != nil, "errors: %v", s.Errors)
	testkit.Need(t, s.Err("job") != nil, "errors: %v", s.Errors)
	testkit.Equal(t, len(s.Errors), 1, "errors: %v", s.Errors)
	testkit.Equal(t, p.log.Count("job does not load"), 1, "logged … times")
	p.put("dir", source("job", "good"))
	s = fresh(t, c)
	testkit.True(t, s.Job("job") == good && len(s.Errors) == 0,
		"the same source again: other definition, or errors %v", s.Errors)
	p.put("dir", source("renamed", "good"))
	testkit.Equal(t, names(fresh(t, c)), "renamed=good")
}

func TestWithoutWatchesItPollsAndWarnsOnce(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EMFILE} {
		for name, prepare := range map[string]func(*fakeNotifier){
			"at once":      func(n *fakeNotifier) { n.openErr = cause },
			"at the first": func(n *fakeNotifier) { n.room, n.full = 0, cause },
			"at the third": func(n *fakeNotifier) { n.room, n.full = 2, cause },
		} {
			t.Run(fmt.Sprintf("%v %s", cause, name), func(t *testing.T) {
				p := newProject(t, "one", "first", "two", "first", "three", "first")
				n := newFakeNotifier()
				prepare(n)
				c := p.open(Options{Debounce: time.Millisecond, Poll: 10 * time.Millisecond, notifier: n.open})
				for _, version := range []string{"second", "third"} {
					p.put("two", source("two", version))
					serves(t, c, "two", version)
				}
				testkit.Equal(t, p.log.Count("cannot be watched"), 1, "warned … times")
				testkit.True(t, n.openErr != nil || n.closed, "the watches that there were are not given back")
			})
		}
	}
}

// TestWatchesFollowTheFolders has a directory that was removed and made again, and has the same inode: only
// the event shows it, or, where events were dropped, not even that.
func TestWatchesFollowTheFolders(t *testing.T) {
	p := newProject(t, "one", "first")
	n := newFakeNotifier()
	c := p.open(Options{Debounce: time.Millisecond, Poll: time.Hour, notifier: n.open, Grace: time.Millisecond})
	for _, dir := range []string{p.root, p.path(".deepwork"), p.job(), p.job("one")} {
		n.await(t, dir, 1)
	}
	n.ev <- fsnotify.Event{Name: p.job("one"), Op: fsnotify.Remove}
	n.await(t, p.job("one"), 2)
	p.put("one", source("one", "second"))
	p.put("two", source("two", "new"))
	n.errs <- fsnotify.ErrEventOverflow
	eventually(t, c, "both changes", func(s *Snapshot) bool { return names(s) == "one=second two=new" })
	n.await(t, p.job("one"), 3)
	n.await(t, p.job("two"), 1)
	must(t, os.RemoveAll(p.job("one")))
	n.ev <- fsnotify.Event{Name: p.job("one"), Op: fsnotify.Remove}
	serves(t, c, "one", "")
	testkit.Until(t, "watched no more", func() bool { return !n.has(p.job("one")) })
	testkit.True(t, !n.has(p.jobFile("one")), "a file is watched, not its directory")
}

func TestConcurrentFreshCallsAgree(t *testing.T) {
	p := newProject(t, "one", "0")
	c := p.open(silent())
	for round := 1; round <= 5; round++ {
		want := fmt.Sprint(round)
		p.put("one", source("one", want))
		got := make([]*Snapshot, 16)
		var wg sync.WaitGroup
		for i := range got {
			wg.Go(func() { got[i] = fresh(t, c) })
		}
		wg.Wait()
		for _, s := range got {
			testkit.Need(t, s == got[0] && summary(s, "one") == want, "round %d: version %d serves %q", round,
				s.Version, summary(s, "one"))
		}
		testkit.Equal(t, got[0].Version, uint64(round)+1, "round %d was not one reload: the version", round)
	}
}

func TestChangesCoalesce(t *testing.T) {
	p := newProject(t)
	c := p.open(silent())
	ch := c.Changes(t.Context())
	for i := range 3 {
		p.put("one", source("one", fmt.Sprint(i)))
		fresh(t, c)
	}
	<-ch
	testkit.Equal(t, len(ch), 0, "three changes nobody listened to are told of more than once")
}

func TestClosedCatalogServesWhatItHad(t *testing.T) {
	p := newProject(t, "one", "first")
	c := p.open(Options{})
	testkit.Until(t, "nothing to look at again", func() bool { return c.state.Load().due.IsZero() })

	must(t, c.Close(t.Context()))
	must(t, c.Close(t.Context()))
	testkit.Equal(t, summary(testkit.Get(c.Fresh(t.Context())).Must(t), "one"), "first", "unchanged")

	p.put("one", source("one", "second"))
	testkit.FailsWith(t, testkit.Get(c.Fresh(t.Context())).Err(), actor.ErrStopped, "changed …")
	testkit.Fails(t, testkit.Get(Open(t.Context(), Options{Root: "somewhere"})).Err(), "", "a relative root")
}

func many(tb testing.TB, n int) string {
	root := tb.TempDir()
	for i := range n {
		name := fmt.Sprintf("job_%05d", i)
		write(tb, filepath.Join(root, ".deepwork", "jobs", name, "job.yml"), source(name, "One of many."))
	}
	return root
}

func closing(tb testing.TB, c *Catalog) { must(tb, c.Close(context.Background())) }

func BenchmarkOpen10000(b *testing.B) {
	const n = 10_000
	root := many(b, n)
	b.ReportAllocs()
	for b.Loop() {
		c := testkit.Get(Open(b.Context(), Options{Root: root})).Must(b)
		testkit.Need(b, len(c.Snapshot().Jobs) == n, "%d jobs", len(c.Snapshot().Jobs))
		b.StopTimer()
		closing(b, c)
		b.StartTimer()
	}
}

// BenchmarkEdit1000 is an edit of one of 1,000 jobs until Fresh serves it, the 10 ms that a file must have
// been left alone included.
func BenchmarkEdit1000(b *testing.B) {
	root := many(b, 1000)
	c := testkit.Get(Open(b.Context(), Options{Root: root, NoWatch: true, Poll: time.Hour})).Must(b)
	defer closing(b, c)
	file := filepath.Join(root, ".deepwork", "jobs", "job_00500", "job.yml")
	for i := 0; b.Loop(); i++ {
		want := fmt.Sprintf("Edit %d.", i)
		must(b, os.WriteFile(file, []byte(source("job_00500", want)), 0o644))
		s, err := c.Fresh(b.Context())
		testkit.Need(b, err == nil && s.Job("job_00500").Summary == want, "%v %v", err, s.Job("job_00500").Summary)
	}
}

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
				for began := time.Now(); time.Since(began) < 500*time.Millisecond ||
					len(seen) < least && time.Since(began) < patience; {
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
					testkit.True(t, string(s.Job("one").Source) == tearable(n) || held && s != last,
						"version %d serves half of a save:\n%s", s.Version, s.Job("one").Source)
				}
			})
		}
	}
}

// tearable is a definition of which each beginning that parses is told from the whole: the last workflow
// names the save.
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

func saved(t *testing.T, s *Snapshot) int {
	t.Helper()
	j := s.Job("one")
	testkit.Need(t, j != nil, "version %d has no definition; errors %v", s.Version, s.Errors)
	var i int
	testkit.Get(fmt.Sscanf(j.Summary, "save %d", &i)).Must(t)
	return i
}

// inBubble runs a test on a clock that moves only when all else waits. A watch waits for the system and would
// stop that clock, so it has no watch.
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

// TestTornContent is content that is the beginning of the last good definition: a save in progress while it
// is young, and after that what it is.
func TestTornContent(t *testing.T) {
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
				testkit.True(t, torn != "" || s.Job("one") != nil && s.Err("one") != nil, "an empty file: %s %v",
					names(s), s.Errors)
				testkit.True(t, name != "parses" || len(s.Job("one").Workflows) == 0 && len(s.Errors) == 0,
					"a shorter definition: %v", s.Errors)
			})
		})
	}
}

// A busy machine takes long between two looks; a file that is saved now and then is settled at one of them
// all the same.
func TestFreshIsPatientOnABusyMachine(t *testing.T) {
	inBubble(t, func(t *testing.T, p *project, c *Catalog) {
		looks := 0
		s, err := c.look(t.Context(), c.state.Load(), func(s *state) []key {
			looks++
			if looks <= 5 {
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
	inBubble(t, func(t *testing.T, p *project, c *Catalog) {
		testkit.Need(t, c.state.Load().folders[0].entry("one").Racy, "a file as young as the clock is not racy")
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		st := c.state.Load()
		testkit.True(t, !st.folders[0].entry("one").Racy, "still racy")
		testkit.True(t, !st.folders[0].Racy, "still racy")
		testkit.True(t, st.due.IsZero(), "still racy")
		testkit.Equal(t, st.snap.Version, 1, "the version, though nothing changed")
	})
}
