package session

import (
	"fmt"
	"os"

	"deepwork/catalog/task"
	"deepwork/session/state"
)

// PlaceOf returns the place of a project on this machine, for a store that other machines use, too.
// It creates the key of the installation, which identifies the machine, if it is missing.
func PlaceOf(f *state.Folder) (task.Place, error) {
	key, err := f.Key(true)
	if err != nil {
		return task.Place{}, fmt.Errorf("identifying this machine: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return task.Place{MachineID: key.ID(), MachineName: host, Root: f.Root}, nil
}
