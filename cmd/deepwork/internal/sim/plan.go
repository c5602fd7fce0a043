//go:build unix

package sim

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"deepwork/session/attempt/runner"
)

// Env is the environment variable that holds the Plan of a server, as JSON.
const Env = "DEEPWORK_FAULT"

// A Plan is what a server process is to suffer.
type Plan struct {
	Tied    bool          `json:"tied,omitempty"`     // it ends when its stdin does, so that none is left of a test that was killed
	Ledger  string        `json:"ledger"`             // the file in which it writes down what is on disk
	Point   string        `json:"point,omitempty"`    // where it is killed: "before sync", "after move"; an Op of durable
	PointAt int           `json:"point_at,omitempty"` // at the how manieth time, from 1
	FullAt  int           `json:"full_at,omitempty"`  // from which write on the disk is full
	FullFor int           `json:"full_for,omitempty"` // for how many
	Torn    bool          `json:"torn,omitempty"`     // half of a write is made before it fails or kills
	Slow    time.Duration `json:"slow,omitempty"`     // how long a sync takes at most
	Commit  int           `json:"commit,omitempty"`   // at the how manieth commit to the board it is killed, from 1
	Late    time.Duration `json:"late,omitempty"`     // how long after that commit has begun
	Pages   int           `json:"pages,omitempty"`    // by how many pages less one the board may grow; 0: without a bound
	Clock   time.Duration `json:"clock,omitempty"`    // by how much its clock is wrong
}

// full tells whether the disk has no room at some time.
func (p Plan) full() bool { return p.FullAt > 0 }

func (p Plan) env() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // a struct of plain fields
	}
	return Env + "=" + string(text)
}

func planOf(text string) (p Plan, err error) {
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return p, fmt.Errorf("reading %s: %w", Env, err)
	}
	return p, nil
}

// Suffer puts the faults of the Plan in the environment between this process and
// its disk and clock. Without a Plan it does nothing. It is called before
// anything else, in test binaries alone.
func Suffer() error {
	text := os.Getenv(Env)
	if text == "" || slices.Contains(os.Args, runner.ShimCommand) {
		return nil // what runs an agent has the environment of its server
	}
	p, err := planOf(text)
	if err != nil {
		return err
	}
	return suffer(p)
}
