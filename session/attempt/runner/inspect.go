package runner

import "fmt"

// Alive tells whether the run of a folder goes on, by the lock that its shim
// holds. Unlike Find it settles nothing, and makes nothing on disk. It does not
// block.
func Alive(dir string) (bool, error) {
	is, err := held(dir)
	if err != nil {
		return false, fmt.Errorf("inspecting a run: %w", err)
	}
	return is, nil
}
