package local

// inUse returns nil: a file that a process has open cannot be renamed here.
func inUse(string) error { return nil }
