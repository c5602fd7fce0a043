package catalog

import (
	"context"
	"fmt"
	"os"
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
		write(t, p.path(".deepwork", "jobs", "job_07", "steps", "first.md"), "text")
	}
	after := eventually(t, c, "the last edit", func(s *Snapshot) bool { return summary(s, "job_07") == "edit 49" })
	for i, j := range after.Jobs {
		same := j == before.Jobs[i]
		changed := j.Name == "job_07"
		testkit.True(t, changed != same, "%s: same definition: %v", j.Name, same)
	}
	testkit.True(t, before.Version < after.Version, "version %d after %d", after.Version, before.Version)
	// What changes nothing is no change.
	must(t, os.Chtimes(p.jobFile("job_03"), time.Now(), time.Now()))
	p.put("job_04", source("job_04", "first"))
	testkit.Equal(t, fresh(t, c), after, "%v", after.Version)
}

func TestBurstIsOneReload(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.put("one", source("one", "first"))
	n := newFakeNotifier()
	c := p.open(Options{Debounce: 30 * time.Millisecond, Poll: time.Hour, notifier: n.open})
	n.await(t, p.path(".deepwork", "jobs", "one"))
	for range 500 {
		n.ev <- fsnotify.Event{Name: p.jobFile("one"), Op: fsnotify.Write}
	}
	p.put("one", source("one", "second"))
	n.ev <- fsnotify.Event{Name: p.jobFile("one"), Op: fsnotify.Write}
	s := eventually(t, c, "the edit", func(s *Snapshot) bool { return summary(s, "one") == "second" })
	testkit.Equal(t, s.Version, 2, "the version after one burst")
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
	logged := p.log.Count("job does not load")
	testkit.Equal(t, logged, 1, "logged … times")
	p.put("dir", source("job", "good"))
	if s := fresh(t, c); s.Job("job") != good || len(s.Errors) != 0 {
		t.Errorf("the same source again: other definition, or errors %v", s.Errors)
	}
	p.put("dir", source("renamed", "good"))
	if s := fresh(t, c); s.Job("job") != nil || summary(s, "renamed") != "good" {
		t.Errorf("after renaming the job: %s", names(s))
	}
}

func TestOverflowLooksAtEverything(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.put("one", source("one", "first"))
	n := newFakeNotifier()
	c := p.open(Options{Debounce: time.Millisecond, Poll: time.Hour, notifier: n.open})
	n.await(t, p.path(".deepwork", "jobs", "one"))
	p.put("one", source("one", "second"))
	p.put("two", source("two", "new"))
	n.errs <- fsnotify.ErrEventOverflow
	eventually(t, c, "both changes", func(s *Snapshot) bool { return summary(s, "one") == "second" && summary(s, "two") == "new" })
	n.await(t, p.path(".deepwork", "jobs", "two"))
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
				p := newProject(t)
				for _, j := range []string{"one", "two", "three"} {
					p.put(j, source(j, "first"))
				}
				n := newFakeNotifier()
				prepare(n)
				c := p.open(Options{Debounce: time.Millisecond, Poll: 10 * time.Millisecond, notifier: n.open})
				for _, version := range []string{"second", "third"} {
					p.put("two", source("two", version))
					eventually(t, c, version, func(s *Snapshot) bool { return summary(s, "two") == version })
				}
				testkit.Equal(t, p.log.Count("cannot be watched"), 1, "warned … times")
				testkit.True(t, n.openErr != nil || n.isClosed(), "the watches that there were are not given back")
			})
		}
	}
}

// TestWatchThatEndedIsRenewed is a directory that was removed and made again and
// has the same inode: only the event shows it, or, where events were
// dropped, not even that.
func TestWatchThatEndedIsRenewed(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.put("one", source("one", "first"))
	n := newFakeNotifier()
	p.open(Options{Debounce: time.Millisecond, Poll: time.Hour, notifier: n.open})
	dir := p.path(".deepwork", "jobs", "one")
	n.awaitAdds(t, dir, 1)
	n.ev <- fsnotify.Event{Name: dir, Op: fsnotify.Remove}
	n.awaitAdds(t, dir, 2)
	n.errs <- fsnotify.ErrEventOverflow
	n.awaitAdds(t, dir, 3)
}

func TestWatchesFollowTheFolders(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.put("one", source("one", "first"))
	n := newFakeNotifier()
	c := p.open(Options{Debounce: time.Millisecond, Poll: time.Hour, notifier: n.open, Grace: time.Millisecond})
	for _, dir := range []string{p.root, p.path(".deepwork"), p.path(".deepwork", "jobs"), p.path(".deepwork", "jobs", "one")} {
		n.await(t, dir)
	}
	must(t, os.RemoveAll(p.path(".deepwork", "jobs", "one")))
	n.ev <- fsnotify.Event{Name: p.path(".deepwork", "jobs", "one"), Op: fsnotify.Remove}
	eventually(t, c, "its end", func(s *Snapshot) bool { return s.Job("one") == nil })
	n.awaitGone(t, p.path(".deepwork", "jobs", "one"))
	testkit.True(t, !n.has(p.jobFile("one")), "a file is watched, not its directory")
}

func TestConcurrentFreshCallsAgree(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.put("one", source("one", "0"))
	c := p.open(silent())
	for round := 1; round <= 5; round++ {
		want := fmt.Sprint(round)
		p.put("one", source("one", want))
		got := make([]*Snapshot, 16)
		var wg sync.WaitGroup
		for i := range got {
			wg.Go(func() {
				var err error
				got[i], err = c.Fresh(t.Context())
				testkit.Works(t, err)
			})
		}
		wg.Wait()
		for _, s := range got {
			if s != got[0] || summary(s, "one") != want {
				t.Fatalf("round %d: version %d serves %q, version %d %q", round,
					s.Version, summary(s, "one"), got[0].Version, summary(got[0], "one"))
			}
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
	p := newProject(t)
	p.put("one", source("one", "first"))
	c := p.open(Options{})
	testkit.Until(t, "nothing to look at again", func() bool { return c.state.Load().due.IsZero() })
	must(t, c.Close(t.Context()))
	must(t, c.Close(t.Context()))
	testkit.Equal(t, summary(testkit.Get(c.Fresh(t.Context())).Must(t), "one"), "first", "unchanged")
	p.put("one", source("one", "second"))
	testkit.FailsWith(t, testkit.Get(c.Fresh(t.Context())).Err(), actor.ErrStopped, "changed …")
}

func TestOpenRefusesARelativeRoot(t *testing.T) {
	testkit.Fails(t, testkit.Get(Open(t.Context(), Options{Root: "somewhere"})).Err(), "", "no error")
}
