//go:build faults

package workflow

import (
	"math/rand/v2"
	"os"
	"strconv"
)

// With this variable, a share of the transitions is not written at first, as if another process had been faster: the
// command is applied again to the same state.
func init() {
	if share, err := strconv.ParseFloat(os.Getenv("DEEPWORK_FAULT_OVERTAKEN"), 64); err == nil {
		overtaken = func() bool { return rand.Float64() < share }
	}
}
