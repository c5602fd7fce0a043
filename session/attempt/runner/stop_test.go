//go:build unix

package runner

import (
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

func (b *bench) stop(p *Process, grace time.Duration) Exit {
	b.t.Helper()
	e, err := p.Stop(b.t.Context(), grace)
	must(b.t, err)
	return e
}

func TestStop(t *testing.T) {
	b := newBench(t)
	p := b.start(b.spec("1", "obedient"))
	b.next()
	if e := b.stop(p, time.Minute); !e.Stopped || e.Code != 0 || e.Signal != "" || e.FinalMessage != "tidied up" || e.Interrupted {
		t.Errorf("obedient: %+v", e)
	}
	// One that does not listen, with a child that does not either.
	p = b.start(b.spec("2", "stubborn"))
	v, child := b.next(), b.next()
	if e := b.stop(p, 50*time.Millisecond); !e.Stopped || e.Signal != "SIGKILL" {
		t.Errorf("stubborn: %+v", e)
	}
	v.Gone()
	child.Gone()
	// The child of one that listens has the grace period, too.
	p = b.start(b.spec("3", "tidyfamily"))
	v, child = b.next(), b.next()
	if e := b.stop(p, time.Minute); !e.Stopped || e.Signal != "SIGTERM" || e.FinalMessage != "the child tidied up" {
		t.Errorf("family: %+v", e)
	}
	v.Gone()
	child.Gone()
	// No grace at all; and it is stopped by one that has found it.
	b.start(b.spec("4", "stubborn"))
	b.next()
	b.next()
	found, err := testRunner().Find(t.Context(), b.path("4"))
	must(t, err)
	if e := b.stop(found, 0); !e.Stopped || e.Signal != "SIGKILL" {
		t.Errorf("no grace: %+v", e)
	}
}

// Of several stops the least patient counts, whichever comes first.
func TestStopAgain(t *testing.T) {
	b := newBench(t)
	p := b.start(b.spec("1", "stubborn"))
	b.next()
	b.next()
	var wg sync.WaitGroup
	wg.Go(func() {
		if e, err := p.Stop(t.Context(), time.Hour); err != nil || !e.Stopped {
			t.Errorf("%+v, %v", e, err)
		}
	})
	if e := b.stop(p, 0); e.Signal != "SIGKILL" {
		t.Errorf("%+v", e)
	}
	wg.Wait()
}

func TestStopBeforeItBegan(t *testing.T) {
	b := newBench(t)
	s := b.spec("1", "hang")
	must(t, os.MkdirAll(s.Dir, 0o700))
	must(t, requestStop(s.Dir, 0))
	if e := b.run(s); !e.Stopped || e.NotStarted == "" || b.ran() != 0 {
		t.Errorf("%+v, %d ran", e, b.ran())
	}
}

// Shims do not die of what terminals and people send to everybody.
func TestShimSurvivesSignals(t *testing.T) {
	b := newBench(t)
	p := b.start(b.spec("1", "hang"))
	v := b.next()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGUSR2} {
		must(t, syscall.Kill(p.started.ShimPID, s))
	}
	sid, err := sessionOf(p.started.ShimPID)
	if err != nil || sid != p.started.ShimPID {
		t.Errorf("the shim's session is %d, %v", sid, err)
	}
	must(t, syscall.Kill(v.PID, syscall.SIGTERM))
	if e := b.wait(p); e.Signal != "SIGTERM" || e.Stopped || e.Interrupted {
		t.Errorf("%+v", e)
	}
}

// What an agent leaves behind ends with it, whatever session it has moved to.
func TestOrphans(t *testing.T) {
	b := newBench(t)
	p := b.start(b.spec("1", "orphans"))
	inGroup, away := b.next(), b.next()
	if e := b.wait(p); e.Code != 0 || e.FinalMessage != "done" || e.Left && runtime.GOOS == "linux" {
		t.Errorf("%+v", e)
	}
	inGroup.Gone()
	if runtime.GOOS == "linux" {
		away.Gone()
	} else {
		syscall.Kill(away.PID, syscall.SIGKILL)
	}
}

func sessionOf(pid int) (int, error) {
	sid, _, e := syscall.Syscall(syscall.SYS_GETSID, uintptr(pid), 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(sid), nil
}
