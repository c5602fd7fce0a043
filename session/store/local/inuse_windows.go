package local

// inUse returns nil: Windows does not rename files that a process has open.
func inUse(string) error { return nil }
