package workflow

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// unsteady is a disk on which every tenth write fails.
type unsteady struct {
	records
	steady atomic.Bool
}

func (u *unsteady) fails() bool { return !u.steady.Load() && rand.IntN(10) == 0 }

func (u *unsteady) Save(s *machine.State) error {
	if u.fails() {
		return notSaved(s.SessionID, errNoSpace)
	}
	return u.records.Save(s)
}

// TestNothingIsHeldWhenAllHaveLeft has agents of two servers start nested
// sessions, finish, look, and leave in the middle of calls, on connections that
// close and on shared ones, over a disk that fails now and then. When all have
// left, every session is free, and reports what was acknowledged.
func TestNothingIsHeldWhenAllHaveLeft(t *testing.T) {
	p := newProject(t)
	const steps = 60
	var list []testStep
	var ids []string
	for i := range steps {
		ids = append(ids, "s"+strconv.Itoa(i))
		list = append(list, testStep{id: ids[i]})
	}
	p.job("alpha", list, map[string]string{"main": "[" + strings.Join(ids, ", ") + "]"})
	servers := []*server{}
	disks := []*unsteady{}
	for range 2 {
		s := p.open(func(o *Options) {
			o.IdleAfter = 15 * time.Millisecond
			o.StatelessIdle = func() time.Duration { return 100 * time.Millisecond }
		})
		d := &unsteady{records: watched{s.records, t}}
		s.records = d
		servers, disks = append(servers, s), append(disks, d)
	}

	var mu sync.Mutex
	var begun []string
	finished := map[string]map[string]bool{} // by session: the steps that replies began
	lost := map[string]int{}                 // calls that may have been carried out
	pick := func() string {
		mu.Lock()
		defer mu.Unlock()
		if len(begun) == 0 {
			return ""
		}
		oldest := max(0, len(begun)-20)
		return begun[oldest+rand.IntN(len(begun)-oldest)]
	}
	one := func(c *Conn, ctx context.Context) error {
		id := pick()
		switch k := rand.IntN(10); {
		case k < 3 || id == "":
			a := StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main"}
			if id != "" && rand.IntN(3) > 0 {
				a.ParentSessionID = &id
			}
			r, err := c.Start(ctx, a)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				begun = append(begun, r.BeginStep.SessionID)
				finished[r.BeginStep.SessionID] = map[string]bool{}
			}
			return err
		case k < 5:
			_, err := c.Step(ctx, StepArgs{SessionID: &id})
			return err
		default:
			r, err := c.Finish(ctx, FinishArgs{Outputs: json.RawMessage("{}"), SessionID: &id})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil && session.CodeOf(err) == "":
				lost[id]++
			case err == nil && r.BeginStep != nil:
				if finished[id][r.BeginStep.StepID] {
					t.Errorf("session %s: two calls began step %s", id, r.BeginStep.StepID)
				}
				finished[id][r.BeginStep.StepID] = true
			}
			return err
		}
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 12 {
				srv := servers[rand.IntN(2)]
				c := srv.Connect("local")
				if rand.IntN(3) == 0 {
					c = srv.ConnectStateless("local")
				}
				for range 1 + rand.IntN(12) {
					caller, leave := ctx, context.CancelFunc(func() {})
					if rand.IntN(4) == 0 { // it does not wait for the answer
						caller, leave = context.WithTimeout(ctx, time.Duration(rand.IntN(3000))*time.Microsecond)
					}
					err := one(c, caller)
					if err != nil && session.CodeOf(err) == "" && caller.Err() == nil {
						t.Errorf("a call broke: %v", err)
					}
					leave()
				}
				c.Close()
			}
		})
	}
	wg.Wait()
	for _, d := range disks {
		d.steady.Store(true)
	}
	for i, s := range servers {
		testkit.Until(t, fmt.Sprintf("without active sessions: server %d", i), func() bool { return s.Stats().Active == 0 })
	}
	if aside := p.setAside(); aside != nil {
		t.Errorf("two servers wrote at once: %v", aside)
	}
	done := 0
	for id, acked := range finished {
		s := p.record(id)
		// A server counts it out before the write that makes it free.
		for end := time.Now().Add(patience); s.Status == machine.Active && s.Owner != "" && time.Now().Before(end); s = p.record(id) {
			time.Sleep(5 * time.Millisecond)
		}
		n := 0
		for _, pr := range s.StepProgress {
			if pr.Value.CompletedAt != nil {
				n++
			}
		}
		if n < len(acked) || n > len(acked)+lost[id]+1 { // the last step's reply begins none
			t.Errorf("session %s: %d steps were acknowledged, %d replies lost, %d are recorded", id, len(acked), lost[id], n)
		}
		if s.Status == machine.Active && s.Owner != "" {
			t.Errorf("session %s belongs to %q", id, s.Owner)
		}
		done += n
	}
	if done == 0 {
		t.Error("no step was finished: nothing was tried")
	}
}
