//go:build race

package machine

// Under the race detector everything takes ten times as long, and where one
// goroutine does all of it there is nothing to detect: less of it is done there.
const (
	modelSeeds = 40 // runs of the machine beside its model
	stateSeeds = 3  // histories whose states must stay as they were
)
