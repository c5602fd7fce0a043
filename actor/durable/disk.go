package durable

import "os"

// What a Disk does, as an Op names it.
const (
	OpCreate  = "create"  // an empty file
	OpWrite   = "write"   // Data, to File
	OpSync    = "sync"    // the content of a file
	OpMove    = "move"    // a file to another name, To, in place of what has it, if that may be
	OpLink    = "link"    // a second name, To
	OpRemove  = "remove"  // a name
	OpSyncDir = "syncdir" // the names of a folder
)

// An Op is one change that a Disk is about to make, or one sync.
type Op struct {
	Do   string   // one of the constants
	Path string   // of the file or folder, as the caller gave it
	To   string   // the other name, of a move or a link
	File *os.File // of a write or a sync
	Data []byte   // of a write
}

// A Disk makes changes to files. The zero Disk makes them and no more; its
// methods block for the real disk, and may be called concurrently. Errors name
// the file.
type Disk struct {
	// Carry, if set, executes every Op instead of the Disk: it calls do, or returns an error, or
	// ends the process. It may be called concurrently. It is for tests and simulations of faults.
	Carry func(op Op, do func() error) error

	// NoSync leaves out every sync: what is written survives the end of the
	// program, and not of the machine.
	NoSync bool
}

// Intercept, if set, is the Carry of all Disks without one. Simulations of faults set it first, in
// their own binary.
var Intercept func(op Op, do func() error) error

func (d Disk) carryOut(op Op, do func() error) error {
	switch {
	case d.Carry != nil:
		return d.Carry(op, do)
	case Intercept != nil:
		return Intercept(op, do)
	}
	return do()
}
