package filestore

import "deepwork/actor/durable"

// An Op is one change that a store is about to make on disk, or one sync.
type Op = durable.Op

// What a store does to the disk, as an Op names it.
const (
	OpCreate   = durable.OpCreate
	OpWrite    = durable.OpWrite
	OpTruncate = durable.OpTruncate
	OpSync     = durable.OpSync
	OpMove     = durable.OpMove
	OpExchange = durable.OpExchange
	OpLink     = durable.OpLink
	OpRemove   = durable.OpRemove
	OpSyncDir  = durable.OpSyncDir
)

// Intercept, where it is set, carries out every Op of every store in this
// process, as durable.Disk.Carry does. It is for simulations of faults (issue 8),
// which set it in a binary of their own before the first store is opened; nothing
// in the program does.
var Intercept func(op Op, do func() error) error

func carryOut(op Op, do func() error) error {
	if Intercept == nil {
		return do()
	}
	return Intercept(op, do)
}
