package durable

import "os"

// The operations of a Disk, as named in an Op.
const (
	OpCreate  = "create"  // an empty file
	OpWrite   = "write"   // Data, to File
	OpSync    = "sync"    // the content of a file
	OpMove    = "move"    // a file to another name, To, replacing a file there if allowed
	OpRemove  = "remove"  // a name
	OpSyncDir = "syncdir" // the names of a folder
)

// An Op is one change that a Disk is about to make, or one sync.
type Op struct {
	Do   string   // one of the constants above
	Path string   // of the file or folder, as the caller gave it
	To   string   // the other name, of a move
	File *os.File // of a write or a sync
	Data []byte   // of a write
}

// A Disk changes files. The zero Disk makes the changes and nothing else; its methods block for the
// real disk, and may be called concurrently. Errors name the file.
type Disk struct {
	// Carry, if set, executes every Op instead of the Disk: it calls do, or returns an error, or
	// ends the process. It may be called concurrently. It is for tests and simulations of faults.
	Carry func(op Op, do func() error) error
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
