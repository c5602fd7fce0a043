//go:build unix && !linux && !darwin

package runner

// bootID is not known here: a run is then told by its lock alone.
func bootID() string { return "" }

// startOf is not known here, and so no process is ever taken for a former one.
func startOf(int) (string, bool) { return "", false }
