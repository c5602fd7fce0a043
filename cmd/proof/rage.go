package main

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"deepwork/actor/durable"
	"deepwork/actor/wait"
	"deepwork/cmd/proof/fault"
	"deepwork/session/store/postgres/pgtest"
)

// points are where servers are killed.
var points = []string{durable.OpCreate, durable.OpWrite, durable.OpSync, durable.OpMove, durable.OpSyncDir}

// plan chooses the faults of the next process.
func (s *simulation) plan() fault.Plan {
	var p fault.Plan
	r := s.random
	switch r.IntN(8) {
	case 0, 1:
		p.Point = []string{"before ", "after "}[r.IntN(2)] + points[r.IntN(len(points))]
		p.PointAt = 1 + r.IntN(40)
	case 2:
		p.FullAt, p.FullFor = 1+r.IntN(30), 1+r.IntN(10)
	case 3:
		p.Slow = time.Duration(1+r.IntN(20)) * time.Millisecond
	case 4:
		// Less than a day: older calls are not searched when a client repeats one.
		p.Clock = time.Duration(r.IntN(1000)-500) * time.Minute // two differ by less than what is kept for a day
	case 5:
		p.Commit = 1 + r.IntN(40)
		if r.IntN(4) > 0 {
			p.Late = time.Duration(1+r.IntN(3000)) * time.Microsecond
		}
	case 6:
		if board, err := os.Stat(s.boardFile()); err == nil { // SQLite's pages have 4 KB
			p.Pages = int(board.Size()/4096) + r.IntN(4)
		}
	}
	p.Torn = r.IntN(2) == 0
	return p
}

// rage injects faults into servers until ctx ends, and leaves all of them running.
func (s *simulation) rage(ctx context.Context) error {
	for ctx.Err() == nil {
		_ = wait.For(ctx, time.Duration(50+s.random.IntN(400))*time.Millisecond)
		var err error
		p := s.servers[s.random.IntN(len(s.servers))].current()
		switch k := s.random.IntN(10); {
		case k < 4 && p != nil:
			s.kills++
			err = p.kill()
		case k == 4 && p != nil:
			s.stop(p)
		case k >= 5 && k < 8:
			err = s.crash()
		case k == 8:
			s.hiding.Lock() // a link in the place of the folder would rightly be reported
			s.verify(context.WithoutCancel(ctx), "beside running servers", underWay...)
			s.hiding.Unlock()
		case k == 9:
			if err = s.source.kill(); err == nil {
				_ = wait.For(ctx, time.Duration(s.random.IntN(50))*time.Millisecond)
				err = s.startSource(context.WithoutCancel(ctx))
			}
		}

		if err = errors.Join(err, s.startAll(context.WithoutCancel(ctx))); err != nil {
			return err
		}
	}

	return nil
}

// underWay are findings of `deepwork check` that may occur while servers are killed, until the next server or the
// client's next call.
var underWay = []string{
	" is half deleted", "the removal of attempt ", " was cut short", "and neither its server nor its agent runs",
	// of an attempt whose deletion was cut short, and is yet to be called for again
	" is gone; commits of it are on branch ",
	".deepwork/config.yml: the config cannot be read: ", // another is in its place for a moment
}

func (s *simulation) stop(p *process) {
	if err := p.stop(); err != nil {
		s.history.fault("a server that does not end", "server %d: %v", p.where.number, err)
	}
}

// startAll starts the servers that were killed here or by their plan.
func (s *simulation) startAll(ctx context.Context) error {
	for _, where := range s.all() {
		if p := where.current(); p == nil {
			plan := s.plan()
			plan.Tied = where.http
			if err := s.run(ctx, where, plan); err != nil {
				return err
			}
		}
	}
	return nil
}

// crash ends all servers at once, as the machine does when it goes down. What they wrote stays: that a commit
// is synced before its reply is SQLite's own promise, with synchronous=FULL, which the tests of package sqlite check.
func (s *simulation) crash() error {
	s.crashes++
	return s.killRunning()
}

// noted is after how long `deepwork check` notes an export that differs from its session.
const noted = 12 * time.Second

// settleTime is how long the last server may take to finish what others left.
const settleTime = time.Minute

// end stops all servers, reads each session at a last one, lets it finish the executions and the board of the others,
// and judges what is on disk.
func (s *simulation) end(ctx context.Context) error {
	for _, p := range s.running() {
		s.stop(p)
	}

	last := &server{number: len(s.servers)}
	s.servers, s.guarded = []*server{last}, nil
	if err := s.run(ctx, last, fault.Plan{}); err != nil {
		return err
	}

	a := s.agent(s.clients * 2)
	a.lose = 0
	a.goOn(ctx)
	for _, id := range s.history.known() { // which writes its export, whatever is in its place
		a.perform(ctx, input{Tool: "get_step", Session: id})
	}

	for _, c := range s.callers {
		c.home = last
		c.settle(ctx)
	}
	for _, c := range s.clerks {
		c.home = last
	}

	if len(s.tasks) > 0 { // otherwise there is no board
		if err := s.settleBoard(ctx); err != nil {
			return err
		}
		s.clerks[0].readTasks(ctx)
	}

	p, err := last.wait(ctx)
	if err != nil {
		return err
	}
	s.stop(p)

	edited := 0
	_, err = s.judge(ctx, func(k kept) {
		switch known := s.history.sessions[k.id]; {
		case known == nil: // nobody has called it again
		case !known.edited:
			s.agrees(k)
		case !k.agree() && time.Since(k.record.Updated) > noted:
			edited++
		}
	})
	if err != nil {
		return err
	}

	if err := errors.Join(s.judgeTrap(), s.judgeExecutions(), s.judgeBoard(ctx)); err != nil {
		return err
	}

	said := s.verify(ctx, "at the end")
	if note := "differ from the sessions"; edited > 0 && !strings.Contains(said, note) {
		s.history.fault("edited exports that deepwork check does not note", "there are %d:\n%s", edited, said)
	}
	return nil
}

// longest is the longest fault of a machine or the database: shorter than calls wait at most.
const longest = 9 * time.Second

// duration chooses how long a fault lasts: most are short; during the others calls soon fail at once.
func duration(r *rand.Rand) time.Duration {
	if r.IntN(3) == 0 {
		return 6*time.Second + rand.N(longest-6*time.Second)
	}
	return time.Duration(r.IntN(2500)) * time.Millisecond
}

// The faults of a machine.
const (
	killed      = iota // its server
	stopped            // its server, in good order
	suspended          // its server
	frozen             // its network
	refused            // its connections
	cutAnywhere        // its network, at any byte
	noReply            // the reply to a commit is lost, and sometimes the server is killed at once
	notSent            // so is a write
	heldBack           // a write arrives when its caller no longer waits, and the server is killed
	slowed             // its commits
)

// ways are the faults of a machine, by how often they are chosen.
var ways = []int{killed, killed, stopped, suspended, suspended, frozen, refused, cutAnywhere, cutAnywhere, noReply,
	noReply, notSent, heldBack, slowed}

// torment injects faults into a machine until ctx ends.
func (f *fleet) torment(ctx context.Context, m *machine) error {
	r := m.random
	defer m.proxy.DelayCommits(0)
	for ctx.Err() == nil {
		if m.current() == nil {
			clock := time.Duration(0)
			if r.IntN(3) == 0 { // less than a day: older calls are not searched when a client repeats one
				clock = time.Duration(r.IntN(1400)-700) * time.Minute
			}
			if err := f.serve(context.WithoutCancel(ctx), m, clock); err != nil {
				return err
			}
		}
		_ = wait.For(ctx, time.Duration(300+r.IntN(2000))*time.Millisecond)
		p := m.current()
		way := ways[r.IntN(len(ways))]
		d := duration(r)
		if p == nil {
			continue
		}
		if way > suspended {
			f.cutOff.Add(1)
		}
		switch way {
		case killed:
			f.kill(p)
		case stopped:
			f.stop(p)
		case suspended:
			f.suspensions.Add(1)
			fault.Suspend(p.cmd.Process)
			_ = wait.For(ctx, d)
			fault.Resume(p.cmd.Process)
		case frozen:
			m.proxy.Freeze(true)
			_ = wait.For(ctx, d)
			m.proxy.Freeze(false)
		case refused:
			m.proxy.Refuse(true)
			_ = wait.For(ctx, d)
			m.proxy.Refuse(false)
		case cutAnywhere:
			m.proxy.CutAfter(r.Int64N(1 << r.IntN(17)))
		case noReply, notSent:
			match := writes
			if way == noReply {
				match = func(m pgtest.Message) bool { return m.Commits }
			}
			if happens(ctx, m.proxy.CutAt(match)) && r.IntN(2) == 0 {
				f.kill(p)
			}
		case heldBack:
			match := writes
			if r.IntN(2) == 0 {
				match = func(m pgtest.Message) bool {
					return writes(m) && bytes.Contains(m.Body, []byte("move_session"))
				}
			}
			if late := 6*time.Second + d/3; happens(ctx, m.proxy.HoldAt(match, late)) {
				_ = wait.For(ctx, late)
				f.kill(p)
			}
		case slowed:
			m.proxy.DelayCommits(time.Duration(r.IntN(30)) * time.Millisecond)
		}
	}

	return nil
}

// kill kills a server.
func (f *fleet) kill(p *process) {
	f.history.with(func() { f.kills++ })
	_ = p.kill() // it may have ended
}

// happens waits a second for a fault that a proxy has been told to inject.
func happens(ctx context.Context, caught <-chan struct{}) bool {
	select {
	case <-caught:
		return true
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
	return false
}

// writes reports whether a client's message begins or commits a write.
func writes(m pgtest.Message) bool {
	if m.FromServer || m.Type != 'Q' && m.Type != 'P' {
		return false
	}

	text := bytes.ToLower(m.Body)
	for _, word := range []string{"update ", "insert ", "commit", "delete ", "call "} {
		if bytes.Contains(text, []byte(word)) {
			return true
		}
	}
	return false
}

// tormentDatabase kills, stops and exhausts the database until ctx ends, and leaves it running.
func (f *fleet) tormentDatabase(ctx context.Context) error {
	r := rand.New(rand.NewPCG(f.seed, 1<<33))
	for wait.For(ctx, time.Duration(3000+r.IntN(9000))*time.Millisecond) == nil {
		f.outages.Add(1)
		d := time.Duration(r.IntN(3000)) * time.Millisecond
		end := f.db.Kill
		switch r.IntN(4) {
		case 0:
			release, err := pgtest.Exhaust(f.db.At(""))
			if err != nil {
				return err
			}
			_ = wait.For(ctx, d)
			release()
			continue
		case 1:
			end = f.db.Stop
		}
		if err := end(); err != nil {
			return err
		}
		_ = wait.For(ctx, d)
		if err := f.db.Start(); err != nil {
			return err
		}
	}

	return nil
}
