// Package sim simulates what goes wrong: clients with random workflows against real
// server processes on one folder, while servers are killed, the power fails, the disk
// is full or slow, files are damaged, the clock jumps and editors save. Every history
// is checked for linearizability against a model of the workflow tools, or of a task
// of the board: what was acknowledged is never lost and never done twice, what was
// not is seen whole or not at all. No agent and no workflow of another system is
// started twice, and what they have done is not lost. At the end `deepwork check` is
// the judge.
//
// The same seed makes the same choices of clients and faults. What comes of them
// is decided by the timing of processes too, so a seed that has failed may have
// to be run more than once.
//
// A test binary is both sides: Run drives, and the servers are the same binary,
// in which Suffer has put the faults of a Plan between the server and its disk.
package sim

import "time"

// Options say what to simulate.
type Options struct {
	Seed    uint64
	Time    time.Duration // how long clients work
	Clients int           // of workflows; of the board, and of runs, there are a quarter as many each
	// Server is the command that is `deepwork`, in a binary that calls Suffer
	// first; Check is `deepwork` itself; Source is a binary that calls Source.
	Server, Check, Source []string
	Dir                   string // an empty folder: the project, the ledger and the servers' logs
	Logf                  func(format string, args ...any)
}

// A Result is what happened.
type Result struct {
	Calls, Lost, Refused int // that were answered, were not, and had no effect
	Sessions, Tangled    int // that were begun; histories that were too much for the checker
	Kills, PowerCuts     int // of one server, of all at once with what was not synced
	Damaged              int // session files
	Journals, Losers     int // of runs, in which a bit was flipped; runs that have lost their last record by it
	Tasks                int // of the board, that were acknowledged
	Attempts, Agents     int // that there were in the end, and all that ever began
	Rescues              int // refs that keep work of deleted attempts
	Runs                 int // that a source of workflows was given
	Faults               []string
}
