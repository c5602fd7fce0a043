package task

import (
	"encoding/json"
	"fmt"
	"time"
)

// A Place is the folder of a project on one machine, where work lies that other machines cannot
// reach. The zero value is that of a store which only one machine uses.
type Place struct {
	MachineID   string `json:"machine_id"`   // of the installation: 8 hexadecimal digits; a name may change, or be another's, too
	MachineName string `json:"machine_name"` // of the host, for people
	Root        string `json:"root"`         // the project root there, absolute
}

// Is reports whether two places are the same folder of the same machine.
func (p Place) Is(o Place) bool { return p.MachineID == o.MachineID && p.Root == o.Root }

// Elsewhere reports whether p is known and is not here.
func (p Place) Elsewhere(here Place) bool { return p.MachineID != "" && !p.Is(here) }

// Key identifies a place.
func (p Place) Key() string { return p.MachineID + ":" + p.Root }

// Describe returns the place as "NAME (ID), in FOLDER".
func (p Place) Describe() string {
	return fmt.Sprintf("%s (%s), in %s", p.MachineName, p.MachineID, p.Root)
}

// A Claim says what a process may run: of a store that several machines share, follow-ups of the
// attempts at its place, and attempts at no place yet whose executor and repositories it has; and of
// runs, one alone.
type Claim struct {
	Place     Place // zero in a store of one machine
	Executors []string
	Repos     []string // ids
	Run       string   // the attempt of the only run that it leads; "" means any
}

// Room bounds which tasks servers start without a call.
type Room struct {
	InReview int   // of all tasks, fewer are in review, are worked on by an agent, or have failed
	Slots    int   // fewer executions than that wait, or run at Place; of the whole board if that is zero
	Place    Place // of the server
	Limits   Limits
}

// MaxReady is how many tasks are listed as ready.
const MaxReady = 1000

// Ready is a task that servers may start without a call.
type Ready struct{ ID, ProjectID string }

// A Report is what other machines can read of an attempt. What was never saved is nil.
type Report struct {
	Output   json.RawMessage // the last entries of its output
	OutputAt *time.Time
	Diff     json.RawMessage // its changes at the end of its last execution
	DiffAt   *time.Time
}
