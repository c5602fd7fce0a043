package fault

import (
	"io/fs"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"time"

	"deepwork/actor/durable"
)

// A disk injects faults into the file operations of a server; those of its database are not among them.
type disk struct {
	plan   Plan
	writes atomic.Int64
	points atomic.Int64
}

func (d *disk) carryOut(op durable.Op, do func() error) error {
	d.killAt("before "+op.Do, op)
	if d.isFull(op) {
		return &fs.PathError{Op: op.Do, Path: op.Path, Err: syscall.ENOSPC}
	}
	if d.plan.Slow > 0 && (op.Do == durable.OpSync || op.Do == durable.OpSyncDir) {
		time.Sleep(rand.N(d.plan.Slow))
	}

	err := do()
	if err == nil {
		d.killAt("after "+op.Do, op)
	}
	return err
}

// isFull reports whether the disk has no room for an Op.
func (d *disk) isFull(op durable.Op) bool {
	if op.Do != durable.OpWrite || d.plan.FullAt == 0 {
		return false
	}

	n := int(d.writes.Add(1))
	full := n >= d.plan.FullAt && n < d.plan.FullAt+d.plan.FullFor
	if full {
		d.tear(op)
	}
	return full
}

// tear writes half of the data, if the plan says so.
func (d *disk) tear(op durable.Op) {
	if d.plan.Torn {
		_, _ = op.File.Write(op.Data[:len(op.Data)/2]) // the write is incomplete on purpose
	}
}

// killAt ends the process where the plan says so.
func (d *disk) killAt(point string, op durable.Op) {
	if point != d.plan.Point || int(d.points.Add(1)) != d.plan.PointAt {
		return
	}
	if point == "before "+durable.OpWrite {
		d.tear(op)
	}
	die()
}
