package catalog

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"deepwork/actor"
	"deepwork/actor/testkit"
)

func TestAnEditTouchesNoOtherJob(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	p := newProject(t, "one", "first")
	n := newFakeNotifier()
	c := p.open(Options{Debounce: 30 * time.Millisecond, Poll: time.Hour, notifier: n.open})
	n.await(t, p.job("one"))
	for range 500 {
		n.ev <- fsnotify.Event{Name: p.jobFile("one"), Op: fsnotify.Write}
	}
	p.put("one", source("one", "second"))
	n.ev <- fsnotify.Event{Name: p.jobFile("one"), Op: fsnotify.Write}
	testkit.Equal(t, serves(t, c, "one", "second").Version, 2, "the version after one burst")
}

func TestLastGoodDefinitionStaysWhileTheFileIsBad(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.put("dir", source("job", "good"))
	c := p.open(silent())
	good := c.Snapshot().Job("job")
	p.put("dir", "name: job\nversion: [")
	s := fresh(t, c)
	testkit.Equal(t, s.Job("job"), good, "the good definition is gone")
	testkit.Equal(t, len(s.Jobs), 1, "the good definition is gone")
	testkit.True(t, s.Err("dir") != nil && s.Err("job") != nil && len(s.Errors) == 1, "errors: %v", s.Errors)
	testkit.Equal(t, p.log.Count("job does not load"), 1, "logged … times")
	p.put("dir", source("job", "good"))
	s = fresh(t, c)
	testkit.True(t, s.Job("job") == good && len(s.Errors) == 0, "the same source again: other definition, or errors %v", s.Errors)
	p.put("dir", source("renamed", "good"))
	testkit.Equal(t, names(fresh(t, c)), "renamed=good")
}

func TestOverflowLooksAtEverything(t *testing.T) {
	t.Parallel()
	p := newProject(t, "one", "first")
	n := newFakeNotifier()
	c := p.open(Options{Debounce: time.Millisecond, Poll: time.Hour, notifier: n.open})
	n.await(t, p.job("one"))
	p.put("one", source("one", "second"))
	p.put("two", source("two", "new"))
	n.errs <- fsnotify.ErrEventOverflow
	eventually(t, c, "both changes", func(s *Snapshot) bool { return names(s) == "one=second two=new" })
	n.await(t, p.job("two"))
}

func TestWithoutWatchesItPollsAndWarnsOnce(t *testing.T) {
	t.Parallel()
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

// TestWatchThatEndedIsRenewed is a directory that was removed and made again and has the same inode: only the event shows it,
// or, where events were dropped, not even that.
func TestWatchThatEndedIsRenewed(t *testing.T) {
	t.Parallel()
	p := newProject(t, "one", "first")
	n := newFakeNotifier()
	p.open(Options{Debounce: time.Millisecond, Poll: time.Hour, notifier: n.open})
	dir := p.job("one")
	n.awaitAdds(t, dir, 1)
	n.ev <- fsnotify.Event{Name: dir, Op: fsnotify.Remove}
	n.awaitAdds(t, dir, 2)
	n.errs <- fsnotify.ErrEventOverflow
	n.awaitAdds(t, dir, 3)
}

func TestWatchesFollowTheFolders(t *testing.T) {
	t.Parallel()
	p := newProject(t, "one", "first")
	n := newFakeNotifier()
	c := p.open(Options{Debounce: time.Millisecond, Poll: time.Hour, notifier: n.open, Grace: time.Millisecond})
	for _, dir := range []string{p.root, p.path(".deepwork"), p.job(), p.job("one")} {
		n.await(t, dir)
	}
	must(t, os.RemoveAll(p.job("one")))
	n.ev <- fsnotify.Event{Name: p.job("one"), Op: fsnotify.Remove}
	serves(t, c, "one", "")
	testkit.Until(t, "watched no more", func() bool { return !n.has(p.job("one")) })
	testkit.True(t, !n.has(p.jobFile("one")), "a file is watched, not its directory")
}

func TestConcurrentFreshCallsAgree(t *testing.T) {
	t.Parallel()
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
			testkit.Need(t, s == got[0] && summary(s, "one") == want, "round %d: version %d serves %q", round, s.Version, summary(s, "one"))
		}
		testkit.Equal(t, got[0].Version, uint64(round)+1, "round %d was not one reload: the version", round)
	}
}

func TestChangesCoalesceAndEnd(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	c := p.open(silent())
	ctx, cancel := context.WithCancel(t.Context())
	ch := c.Changes(ctx)
	for i := range 3 {
		p.put("one", source("one", fmt.Sprint(i)))
		fresh(t, c)
	}
	<-ch
	select {
	case <-ch:
		t.Error("three changes nobody listened to are told of more than once")
	default:
	}
	cancel()
}

func TestClosedCatalogServesWhatItHad(t *testing.T) {
	t.Parallel()
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

// many writes n jobs.
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

// BenchmarkEdit1000 is an edit of one of 1,000 jobs until Fresh serves it, the
// 10 ms that a file must have been left alone included.
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
