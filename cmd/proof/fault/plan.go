// Package fault injects faults between a deepwork server and its disk, its task board and its
// clock. It is linked only into a program that is built with the tag "faults", by the simulation.
package fault

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"modernc.org/sqlite"

	"deepwork/actor/durable"
	"deepwork/session"
)

// env is the environment variable that holds the Plan of a server, as JSON.
const env = "DEEPWORK_FAULT"

// A Plan is the faults of a server process.
type Plan struct {
	// it ends when its stdin does, so that none outlives a killed test
	Tied bool `json:"tied,omitempty"`
	// where it is killed: "before sync", "after move"; an Op of durable
	Point   string        `json:"point,omitempty"`
	PointAt int           `json:"point_at,omitempty"` // at which occurrence of Point, from 1
	FullAt  int           `json:"full_at,omitempty"`  // number of the write from which the disk is full
	FullFor int           `json:"full_for,omitempty"` // for how many writes
	Torn    bool          `json:"torn,omitempty"`     // half of a write is made before it fails or is killed
	Slow    time.Duration `json:"slow,omitempty"`     // the maximum duration of a sync
	// the number of the database's commit at which it is killed, from 1
	Commit int           `json:"commit,omitempty"`
	Late   time.Duration `json:"late,omitempty"`  // the delay of that kill after the commit began
	Pages  int           `json:"pages,omitempty"` // how many pages the database may have; 0 means no bound
	Clock  time.Duration `json:"clock,omitempty"` // the error of its clock
}

// Env returns the environment variable that gives a server the plan.
func (p Plan) Env() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // a struct of simple fields
	}
	return env + "=" + string(text)
}

// Install installs the faults of the Plan in the environment of a server. It does
// nothing in a process that has no Plan or does not serve, such as the shim of an agent.
// It must be called before anything else.
func Install() {
	text := os.Getenv(env)
	if text == "" || len(os.Args) < 2 || os.Args[1] != "serve" && os.Args[1] != "run" {
		return
	}

	var p Plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		fmt.Fprintf(os.Stderr, "reading %s: %v\n", env, err)
		os.Exit(1)
	}

	if p.Point != "" || p.FullAt > 0 || p.Slow > 0 {
		durable.Intercept = (&disk{plan: p}).carryOut
	}
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
