package filestore

import "os"

// What a store does to the disk, as an Op names it.
const (
	OpCreate   = "create"   // an empty file
	OpWrite    = "write"    // Data, to File
	OpTruncate = "truncate" // File, to the length of what was written
	OpSync     = "sync"     // the content of a file
	OpMove     = "move"     // a file to another name, To, in place of what has it, if that may be
	OpExchange = "exchange" // the names of two files
	OpLink     = "link"     // a second name, To
	OpRemove   = "remove"   // a name
	OpSyncDir  = "syncdir"  // the names of the folder
)

// An Op is one change that a store is about to make on disk, or one sync.
type Op struct {
	Do   string
	Path string // absolute
	To   string // the other name
	File *os.File
	Data []byte
}

// Intercept, where it is set, carries out every Op of every store in this
// process in its stead: it calls do, which does what the Op says, or does not and
// returns an error, or ends the process. It may be called by many goroutines at
// once. It is for simulations of faults (issue 8), which set it in a binary of
// their own before the first store is opened; nothing in the program does.
var Intercept func(op Op, do func() error) error

func carryOut(op Op, do func() error) error {
	if Intercept == nil {
		return do()
	}
	return Intercept(op, do)
}
