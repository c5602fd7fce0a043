//go:build unix

package sim

import (
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"modernc.org/sqlite"

	"deepwork/actor/durable"
	"deepwork/session"
)

// A disk is what stands between a server and its files.
type disk struct {
	plan   Plan
	ledger *ledger
	writes atomic.Int64
	points atomic.Int64
}

func suffer(p Plan) error {
	l, err := openLedger(p.Ledger)
	if err != nil {
		return err
	}
	d := &disk{plan: p, ledger: l}
	durable.Intercept = d.carryOut
	if p.Commit > 0 || p.Pages > 0 || p.Slow > 0 {
		sqlite.RegisterConnectionHook((&database{plan: p}).connected)
	}
	if p.Tied {
		go func() { // ends with the process
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		}()
	}
	if p.Clock != 0 {
		session.Clock = func() time.Time { return time.Now().Add(p.Clock) }
	}
	return nil
}

func (d *disk) carryOut(op durable.Op, do func() error) error {
	d.at("before "+op.Do, op)
	if d.full(op) {
		return &fs.PathError{Op: op.Do, Path: op.Path, Err: syscall.ENOSPC}
	}
	err := d.recorded(op, do)
	if err == nil {
		d.at("after "+op.Do, op)
	}
	return err
}

// tracked are the folders of which the ledger tells, below the project.
var tracked = []string{filepath.Join(".deepwork", "tmp"), filepath.Join(".deepwork", "tmp", "runs")}

// recorded carries out an Op and writes down what it makes durable.
func (d *disk) recorded(op durable.Op, do func() error) error {
	dir := op.Path
	if op.Do != durable.OpSyncDir {
		dir = filepath.Dir(op.Path)
	}
	if !slices.ContainsFunc(tracked, func(t string) bool { return strings.HasSuffix(filepath.Clean(dir), string(filepath.Separator)+t) }) {
		d.slow(op)
		return do()
	}
	switch op.Do {
	case durable.OpCreate:
		if err := do(); err != nil {
			return err
		}
		return d.ledger.created(op.Path)
	case durable.OpSync:
		done, err := d.ledger.syncing(op.Path)
		if err != nil {
			return err
		}
		d.slow(op)
		return done(do())
	case durable.OpSyncDir:
		done, err := d.ledger.naming(op.Path)
		if err != nil {
			return err
		}
		d.slow(op)
		return done(do())
	}
	return do()
}

// slow lets a sync take its time.
func (d *disk) slow(op durable.Op) {
	if d.plan.Slow > 0 && (op.Do == durable.OpSync || op.Do == durable.OpSyncDir) {
		time.Sleep(rand.N(d.plan.Slow))
	}
}

// full tells whether the disk has no room for an Op.
func (d *disk) full(op durable.Op) bool {
	if op.Do != durable.OpWrite || d.plan.FullAt == 0 {
		return false
	}
	n := int(d.writes.Add(1))
	if n < d.plan.FullAt || n >= d.plan.FullAt+d.plan.FullFor {
		return false
	}
	d.tear(op)
	return true
}

// tear makes half of a write.
func (d *disk) tear(op durable.Op) {
	if d.plan.Torn && op.Do == durable.OpWrite {
		_, _ = op.File.Write(op.Data[:len(op.Data)/2]) // that it is not whole is the point
	}
}

// at ends the process where the plan says so.
func (d *disk) at(point string, op durable.Op) {
	if point != d.plan.Point || int(d.points.Add(1)) != d.plan.PointAt {
		return
	}
	if point == "before "+durable.OpWrite {
		d.tear(op)
	}
	die()
}

// die ends the process as kill -9 does.
func die() {
	p, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		panic(err)
	}
	select {} // it takes an instant
}
