//go:build unix && !linux

package durable

import "os"

// renameNew moves a file, and fails with fs.ErrExist if anything stands at to.
func renameNew(from, to string) error { return linkNew(from, to) }

// syncData is the full sync: on macOS os.File.Sync also has the drive write out
// its cache.
func syncData(f *os.File) error { return f.Sync() }
