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
	// Carry, where it is set, carries out every Op in the Disk's stead: it calls
	// do, which does what the Op says, or does not and returns an error, or ends
	// the process. It may be called by many goroutines at once. It is for tests
	// and simulations of faults.
	Carry func(op Op, do func() error) error

	// NoSync leaves out every sync: what is written survives the end of the
	// program, and not of the machine.
	NoSync bool
}

// Intercept, where it is set, carries out every Op of the Disks in this process
// that have no Carry, as that does. It is for simulations of faults,
// which set it in a binary of their own before anything else; nothing in the
// program does.
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
