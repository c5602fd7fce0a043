//go:build !unix

package load

// syncFolder does nothing: folders cannot be synced here, and names are durable
// with the file system's journal.
func syncFolder(string) error { return nil }
