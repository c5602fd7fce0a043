//go:build unix && !linux

package filestore

// renameNew moves a file, and fails with fs.ErrExist if anything stands at to.
func renameNew(from, to string) error { return linkNew(from, to) }
