//go:build unix

package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"deepwork/actor/durable"
)

// points are where servers are killed.
var points = []string{
	durable.OpCreate, durable.OpWrite, durable.OpSync, durable.OpMove, durable.OpExchange, durable.OpSyncDir,
}

// plan makes up what the next process is to suffer.
func (w *world) plan() Plan {
	p := Plan{Ledger: w.ledger}
	r := w.random
	switch r.IntN(8) {
	case 0, 1:
		p.Point = []string{"before ", "after "}[r.IntN(2)] + points[r.IntN(len(points))]
		p.PointAt = 1 + r.IntN(40)
	case 2:
		p.FullAt, p.FullFor = 1+r.IntN(30), 1+r.IntN(10)
	case 3:
		p.Slow = time.Duration(1+r.IntN(20)) * time.Millisecond
	case 4:
		// Not by a day: what was done that long ago is not looked for when a client
		// repeats a call.
		p.Clock = time.Duration(r.IntN(1400)-700) * time.Minute
	case 5:
		p.Commit = 1 + r.IntN(40)
		if r.IntN(4) > 0 {
			p.Late = time.Duration(1+r.IntN(3000)) * time.Microsecond
		}
	case 6:
		p.Pages = 1 + r.IntN(4)
	}
	p.Torn = r.IntN(2) == 0
	return p
}

// rage does what is bad for servers until ctx ends, and leaves all of them up.
func (w *world) rage(ctx context.Context) error {
	for ctx.Err() == nil {
		pause(ctx, time.Duration(50+w.random.IntN(400))*time.Millisecond)
		var err error
		switch s := w.servers[w.random.IntN(len(w.servers))]; w.random.IntN(10) {
		case 0, 1, 2, 3:
			if r, _ := s.current(); r != nil {
				w.result.Kills++
				err = r.kill()
			}
		case 4:
			if r, _ := s.current(); r != nil {
				if err := r.stop(); err != nil {
					w.history.fault("server %d: %v", s.number, err)
				}
			}
		case 5, 6, 7:
			err = w.cutPower()
		case 8:
			if len(w.history.damaged) == 0 { // only this goroutine writes to it
				but := underWay
				if len(w.history.journals) > 0 {
					but = slices.Concat(but, journalFindings)
				}
				w.judge(context.WithoutCancel(ctx), "beside running servers", but...)
			}
		case 9:
			if err = w.endSource(); err == nil {
				pause(ctx, time.Duration(w.random.IntN(50))*time.Millisecond)
				err = w.startSource()
			}
		}
		if err == nil {
			err = w.startAll(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// startAll starts what has ended, by the world's hand or by its plan.
func (w *world) startAll(ctx context.Context) error {
	for _, s := range w.servers {
		if r, _ := s.current(); r == nil {
			if err := s.start(context.WithoutCancel(ctx), w.o, w.plan()); err != nil {
				return err
			}
		}
	}
	return nil
}

// cutPower ends all servers at once and takes from the disk what was not synced.
// Now and then files are damaged too.
func (w *world) cutPower() error {
	w.cuts.Add(1)
	for _, s := range w.servers {
		if r, _ := s.current(); r != nil {
			if err := r.cmd.Process.Kill(); err != nil {
				continue // it has ended by itself
			}
		}
	}
	for _, s := range w.servers {
		if r, _ := s.current(); r != nil {
			<-r.ended
		}
	}
	w.calls.Lock() // whoever was called has got what there is to get
	defer w.calls.Unlock()
	if err := powerCut(w.folders(), w.ledger, w.random.IntN(3) == 0, w.random.IntN(2) == 0); err != nil {
		return fmt.Errorf("cutting the power: %w", err)
	}
	return w.damage()
}

// folders are those that lose what was not synced when the power fails. Agents, and
// what they and git write, do not: it is the servers' power.
func (w *world) folders() []string {
	var all []string
	for _, dir := range tracked {
		all = append(all, w.project(dir))
	}
	return all
}
