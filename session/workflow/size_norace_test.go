//go:build !race

package workflow

const (
	modelSeeds = 300  // runs of the machine beside its model
	stateSeeds = 12   // histories whose states must stay as they were
	deep       = 1000 // sessions on one stack
)
