package catalog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"deepwork/actor"
)

func TestAnEditTouchesNoOtherJob(t *testing.T) {
	p := newProject(t)
	for i := range 20 {
		name := fmt.Sprintf("job_%02d", i)
		p.put(name, source(name, "first"))
	}
	c := p.open(Options{Poll: 20 * time.Millisecond})
	before := c.Snapshot()
	// A burst: many writes of one job, and files beside it that are not read.
	for i := range 50 {
		p.put("job_07", source("job_07", fmt.Sprintf("edit %d", i)))
		write(t, p.path(".deepwork", "jobs", "job_07", "steps", "first.md"), "text")
	}
	after := eventually(t, c, "the last edit", func(s *Snapshot) bool { return summary(s, "job_07") == "edit 49" })
	for i, j := range after.Jobs {
		same := j == before.Jobs[i]
		if changed := j.Name == "job_07"; changed == same {
			t.Errorf("%s: same definition: %v", j.Name, same)
		}
	}
	if before.Version >= after.Version {
		t.Errorf("version %d after %d", after.Version, before.Version)
	}
	// What changes nothing is no change.
	must(t, os.Chtimes(p.jobFile("job_03"), time.Now(), time.Now()))
	p.put("job_04", source("job_04", "first"))
	if again := fresh(t, c); again != after {
		t.Errorf("version %d though nothing changed, after %d", again.Version, after.Version)
	}
}

func TestLastGoodDefinitionStaysWhileTheFileIsBad(t *testing.T) {
	p := newProject(t)
	p.put("dir", source("job", "good"))
	c := p.open(silent())
	good := c.Snapshot().Job("job")

	p.put("dir", "name: job\nversion: [")
	s := fresh(t, c)
	if s.Job("job") != good || len(s.Jobs) != 1 {
		t.Errorf("the good definition is gone: %s", names(s))
	}
	if s.Err("dir") == nil || s.Err("job") == nil || len(s.Errors) != 1 {
		t.Errorf("errors: %v", s.Errors)
	}
	logged := p.log.Count("job does not load")
	if logged != 1 {
		t.Errorf("logged %d times", logged)
	}
	p.put("dir", source("job", "good"))
	if s := fresh(t, c); s.Job("job") != good || len(s.Errors) != 0 {
		t.Errorf("the same source again: other definition, or errors %v", s.Errors)
	}
	p.put("dir", source("renamed", "good"))
	if s := fresh(t, c); s.Job("job") != nil || summary(s, "renamed") != "good" {
		t.Errorf("after renaming the job: %s", names(s))
	}
}

func TestConcurrentFreshCallsAgree(t *testing.T) {
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
				if got[i], err = c.Fresh(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, s := range got {
			if s != got[0] || summary(s, "one") != want {
				t.Fatalf("round %d: version %d serves %q, version %d %q", round,
					s.Version, summary(s, "one"), got[0].Version, summary(got[0], "one"))
			}
		}
		if got[0].Version != uint64(round)+1 {
			t.Errorf("round %d published version %d: not one reload", round, got[0].Version)
		}
	}
}

func TestChangesCoalesceAndEnd(t *testing.T) {
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
	p := newProject(t)
	p.put("one", source("one", "first"))
	c := p.open(Options{})
	must(t, c.Close(t.Context()))
	must(t, c.Close(t.Context()))
	if s, err := c.Fresh(t.Context()); err != nil || summary(s, "one") != "first" {
		t.Errorf("unchanged: %v", err)
	}
	p.put("one", source("one", "second"))
	if _, err := c.Fresh(t.Context()); !errors.Is(err, actor.ErrStopped) {
		t.Errorf("changed: %v, want actor.ErrStopped", err)
	}
}

func TestOpenRefusesARelativeRoot(t *testing.T) {
	if _, err := Open(t.Context(), Options{Root: "somewhere"}); err == nil {
		t.Error("no error")
	}
}
