package fault

import (
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"deepwork/actor/durable"
)

// tracked reports whether a folder is one that loses what was not synced: of session
// files, or of definitions.
func tracked(dir string) bool {
	dir = filepath.Clean(dir)
	return filepath.Base(dir) == "definitions" || strings.HasSuffix(dir, string(filepath.Separator)+filepath.Join(".deepwork", "tmp"))
}

// A disk injects faults into the file operations of a server.
type disk struct {
	plan   Plan
	image  Image
	writes atomic.Int64
	points atomic.Int64
}

func (d *disk) carryOut(op durable.Op, do func() error) error {
	d.killAt("before "+op.Do, op)
	if d.isFull(op) {
		return &fs.PathError{Op: op.Do, Path: op.Path, Err: syscall.ENOSPC}
	}
	err := d.recorded(op, do)
	if err == nil {
		d.killAt("after "+op.Do, op)
	}
	return err
}

// recorded executes an Op, and records in the image what it makes durable.
func (d *disk) recorded(op durable.Op, do func() error) error {
	slowly := func() error {
		if d.plan.Slow > 0 {
			time.Sleep(rand.N(d.plan.Slow))
		}
		return do()
	}
	switch {
	case op.Do == durable.OpSyncDir && tracked(op.Path):
		return d.image.of(op.Path).naming(op.Path, slowly)
	case op.Do == durable.OpSync && tracked(filepath.Dir(op.Path)):
		return d.image.of(filepath.Dir(op.Path)).syncing(op.Path, slowly)
	case op.Do == durable.OpSync || op.Do == durable.OpSyncDir:
		return slowly()
	case op.Do == durable.OpWrite:
		if err := d.writing(op); err != nil {
			return err
		}
	}
	return do()
}

// writing records in the image that a file is being overwritten.
func (d *disk) writing(op durable.Op) error {
	if !tracked(filepath.Dir(op.Path)) {
		return nil
	}
	return d.image.of(filepath.Dir(op.Path)).writing(op.Path)
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
	if d.plan.Torn && d.writing(op) == nil {
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
