package main

import (
	"bytes"
	"context"
	"math/rand/v2"
	"time"

	"deepwork/actor/wait"
	"deepwork/cmd/proof/fault"
	"deepwork/session/store/postgres/pgtest"
)

// longest is the longest fault of a machine or of the database: less than a call waits for it at most.
const longest = 9 * time.Second

// duration chooses how long a fault lasts: most are short, and after some calls fail at once until the end of it.
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
var ways = []int{killed, killed, stopped, suspended, suspended, frozen, refused, cutAnywhere, cutAnywhere, noReply, noReply, notSent, heldBack, slowed}

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
		p, way, d := m.current(), ways[r.IntN(len(ways))], duration(r)
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
