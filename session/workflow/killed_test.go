package workflow_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session/machine"
	"deepwork/session/replies"
	"deepwork/session/store"
	"deepwork/session/work"
	. "deepwork/session/workflow"
)

// The review of a server that can no longer renew it is taken up by another one. What the first one's reviewer
// says then does not count, if it says anything at all; the call there learns the other one's verdict.
func TestAReviewIsTakenUp(t *testing.T) {
	for name, hangs := range map[string]bool{"while its reviewer works": false, "while its reviewer hangs": true} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t).reviewedJob(reviewedStep)
			stores := p.stores()
			cut := &cutOff{Database: stores.Database}
			cut.off.Store(true)
			stores.Database = cut
			_, rev, c, id := p.reviewedBy(func(o *Options) {
				o.Stores = stores
				o.Work = work.New(ctx, work.Options{Stores: stores, Life: 50 * time.Millisecond})
			})
			its := &reviewer{t: t, dir: t.TempDir()}
			its.how.Store(rev.how.Load())
			rev.set("wait", "")
			its.set("wait", "")
			call := `{"outputs":{"report":"good.md"},"step_id":"one","session_id":"` + id + `"}`
			calls := []chan answered{beside(t, ctx, c, call)}
			rev.runs(1)
			second := p.reopen(its)
			its.runs(1) // nobody has called it
			calls = append(calls, beside(t, ctx, second.Connect("local"), call))

			// The reviewer of the first one fails its outputs: nobody hears of it.
			rev.set("say",
				`{"passed": false, "feedback": "bad", "criteria_results": [{"criterion": "Good", "passed": false, `+
					`"feedback": "no"}]}`)
			if hangs {
				cut.off.Store(false)
			} else {
				rev.unset("wait")
			}
			its.unset("wait")
			for i, got := range calls {
				x := <-got
				testkit.True(t, x.err == nil && x.r.Status == replies.NextStep, "the call at server %d: %s, %v", i,
					toJSON(t, x.r), x.err)
			}

			one := p.record(id).Progress("one")
			testkit.Need(t, len(one.Tries()) == 1, "tries %s", toJSON(t, one.Tries()))
			testkit.Equal(t, one.Tries()[0].State, machine.TryPassed, "tries %s", toJSON(t, one.Tries()))
			testkit.Equal(t, one.QualityTries, 1, "tries %s", toJSON(t, one.Tries()))
		})
	}
}

// cutOff is a store that renews no work while it is off.
type cutOff struct {
	store.Database
	off atomic.Bool
}

func (c *cutOff) Work() store.Work { return cutOffWork{c.Database.Work(), c} }

type cutOffWork struct {
	store.Work
	c *cutOff
}

func (w cutOffWork) Renew(ctx context.Context, life time.Duration, rows []store.WorkRow) ([]store.WorkRow, error) {
	if w.c.off.Load() {
		return nil, store.ErrUnavailable
	}
	return w.Work.Renew(ctx, life, rows)
}

// kill ends what a server does as if its process was killed, whose members were these.
func kill(t testing.TB, stores *store.Stores, loop context.CancelFunc) {
	t.Helper()
	loop()
	testkit.Must(t, stores.Members.(interface{ Leave() error }).Leave())
}

// killable is the option of a server that kill ends.
func (p *project) killable(life time.Duration) (stores *store.Stores, end context.CancelFunc, with func(*Options)) {
	stores = p.stores()
	loop, end := context.WithCancel(ctx)
	return stores, end, func(o *Options) {
		o.Stores = stores
		o.Work = work.New(loop, work.Options{Stores: stores, Life: life})
	}
}

// A killed server's review goes on at another one of its machine, at once and though no call waits. That which has
// ended three servers is void: it says so, and the next call has it reviewed again.
func TestAKilledServersReviewGoesOn(t *testing.T) {
	for name, kills := range map[string]int{"once": 1, "too often": 3} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t).reviewedJob(reviewedStep)
			stores, end, with := p.killable(time.Minute)
			_, rev, c, id := p.reviewedBy(with)
			rev.left(c)

			for n := range kills {
				nextStores, nextEnd, with := p.killable(time.Minute)
				next := p.reopen(rev, with)
				began := time.Now()
				kill(t, stores, end)
				stores, end, c = nextStores, nextEnd, next.Connect("local")
				if n+2 > 3 {
					break
				}
				rev.runs(n + 2)
				testkit.True(t, time.Since(began) < 5*time.Second, "it went on after %v", time.Since(began))
			}
			if kills == 1 {
				rev.unset("wait")
			}

			var one *machine.StepProgress
			testkit.Until(t, "over", func() bool {
				one = p.record(id).Progress("one")
				return !one.Newest().Open()
			})
			call := `{"outputs":{"report":"good.md"},"session_id":"` + id + `"}`
			if kills == 1 {
				testkit.Equal(t, [2]any{one.Newest().State, len(one.Tries())}, [2]any{machine.TryPassed, 1}, "the try")
				says(t, p.finish(c, call), replies.NextStep)
				testkit.Equal(t, rev.calls(), 2, "calls of the reviewer")
				return
			}
			testkit.Equal(t, one.Newest().State, machine.TryVoid, "the try")
			testkit.ContainsAll(t, *one.Newest().Error, []string{"begun 3 times"})
			rev.unset("wait")
			says(t, p.finish(c, call), replies.NextStep)
			testkit.Equal(t, rev.calls(), 4, "calls of the reviewer")
		})
	}
}

// At another place, where the files are others, a killed server's review goes on when a call hands in the outputs, once
// its time is over.
func TestAKilledServersReviewElsewhere(t *testing.T) {
	p := newProject(t).reviewedJob(reviewedStep)
	stores, end, with := p.killable(3 * time.Second)
	_, rev, c, id := p.reviewedBy(with)
	rev.set("wait", "")
	leaving, leave := context.WithCancel(ctx)
	got := beside(t, leaving, c, good)
	rev.runs(1)
	leave()
	testkit.FailsWith(t, (<-got).err, context.Canceled)
	kill(t, stores, end)
	rev.unset("wait")

	there := task.Place{MachineID: "bbbbbbbb", MachineName: "blue", Root: "/home/blue/p"}
	c = p.reopen(rev, at(there)).Connect("local")
	began := time.Now()
	says(t, p.finish(c, `{"outputs":{"report":"good.md"},"session_id":"`+id+`"}`), replies.NextStep)
	testkit.True(t, time.Since(began) > time.Second, "it was taken over after %v", time.Since(began))
	testkit.Equal(t, [2]int{len(p.record(id).Progress("one").Tries()), rev.calls()}, [2]int{2, 2},
		"tries, and calls of the reviewer")
}

// Judging goes on if the store confirms neither its beginning nor what the judges say.
func TestJudgingThatIsNotConfirmed(t *testing.T) {
	s := newScript(t, "exit 0")
	k := checkedProject(t, true, "["+s.yaml("")+"]", reviewedStep)
	k.write("good.md", "CONTENT OF good.md")
	srv, rev, c, id := k.reviewed()
	srv.makeFaulty().lose.Store(3)
	began := time.Now()
	says(t, k.finish(c, good), replies.NextStep)
	testkit.True(t, time.Since(began) < 10*time.Second, "it took %v", time.Since(began))
	testkit.Equal(t, [3]int{s.runs(), rev.calls(), len(k.record(id).Progress("one").Submissions)}, [3]int{1, 1, 1},
		"runs of the check, of the reviewer, and submissions")
}

// What has changed since it was handed in is not judged any more when its server was killed: the next call has it
// judged as it is now.
func TestAKilledServersReviewOfWhatHasChanged(t *testing.T) {
	p := newProject(t).reviewedJob(reviewedStep)
	stores, end, with := p.killable(time.Minute)
	_, rev, c, id := p.reviewedBy(with)
	rev.left(c)
	kill(t, stores, end)
	rev.unset("wait")
	p.write("good.md", "CONTENT OF bad.md")

	c = p.reopen(rev).Connect("local")
	var one *machine.StepProgress
	testkit.Until(t, "void", func() bool {
		one = p.record(id).Progress("one")
		return !one.Newest().Open()
	})
	testkit.Equal(t, one.Newest().State, machine.TryVoid, "the try")
	testkit.ContainsAll(t, *one.Newest().Error, []string{"what was handed in has changed since"})
	says(t, p.finish(c, `{"outputs":{"report":"good.md"},"session_id":"`+id+`"}`), replies.NeedsWork, "bad.md was read")
	testkit.Equal(t, rev.calls(), 2, "calls of the reviewer")
}

// left makes a call whose reviewer waits, and whose caller leaves once it runs.
func (r *reviewer) left(c *Conn) {
	r.t.Helper()
	leaving, leave := context.WithCancel(ctx)
	r.set("wait", "")
	got := beside(r.t, leaving, c, good)
	r.runs(1)
	leave()
	testkit.FailsWith(r.t, (<-got).err, context.Canceled)
}
