//go:build !race

package machine

const (
	modelSeeds = 300 // runs of the machine beside its model
	stateSeeds = 12  // histories whose states must stay as they were
)
