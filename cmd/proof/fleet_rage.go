package main

import (
	"bytes"
	"context"
	"math/rand/v2"
	"time"

	"deepwork/actor/wait"
	"deepwork/session/store/postgres/pgtest"
)

// longest is the longest fault of a machine or of the database: more than a lease lasts.
const longest = 9 * time.Second

// duration chooses how long a fault lasts: most are short, and some longer than a lease.
func duration(r *rand.Rand) time.Duration {
	if r.IntN(3) == 0 {
		return 6*time.Second + rand.N(longest-6*time.Second)
	}
	return time.Duration(r.IntN(2500)) * time.Millisecond
}

// torment injects faults into a machine until ctx ends, and leaves its server running and its
// network whole.
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
		_ = wait.For(ctx, time.Duration(100+r.IntN(900))*time.Millisecond)
		p, d := m.current(), duration(r)
		var err error
		switch k := r.IntN(14); {
		case p == nil:
		case k < 2:
			f.history.with(func() { f.kills++ })
			err = p.kill()
		case k == 2:
			f.stop(p)
		case k < 5:
			f.suspensions.Add(1)
			p.suspend()
			_ = wait.For(ctx, d)
			p.resume()
		default:
			f.cutOff.Add(1)
			f.cut(ctx, m, p, k, d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writes reports whether a client's message begins or commits a write.
func writes(m pgtest.Message) bool {
	if m.FromServer || m.Type != 'Q' && m.Type != 'P' {
		return false
	}
	text := bytes.ToLower(m.Body)
	for _, word := range []string{"update ", "insert ", "commit", "delete "} {
		if bytes.Contains(text, []byte(word)) {
			return true
		}
	}
	return false
}

// cut breaks the network of a machine in one of several ways.
func (f *fleet) cut(ctx context.Context, m *machine, p *process, way int, d time.Duration) {
	r := m.random
	var caught <-chan struct{}
	switch way {
	case 5:
		m.proxy.Freeze(true)
		_ = wait.For(ctx, d)
		m.proxy.Freeze(false)
	case 6:
		m.proxy.Refuse(true)
		_ = wait.For(ctx, d)
		m.proxy.Refuse(false)
	case 7, 8:
		m.proxy.CutAfter(r.Int64N(1 << r.IntN(17)))
	case 9, 10: // between a commit and its reply
		caught = m.proxy.CutAt(func(m pgtest.Message) bool { return m.Commits })
	case 11:
		caught = m.proxy.CutAt(writes)
	case 12:
		caught = m.proxy.HoldAt(writes, d+3*time.Second)
	case 13:
		m.proxy.DelayCommits(time.Duration(r.IntN(30)) * time.Millisecond)
	}
	if caught == nil {
		return
	}
	select {
	case <-caught:
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
	if r.IntN(3) == 0 {
		f.history.with(func() { f.kills++ })
		_ = p.kill()
	}
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
