//go:build unix && !linux

package durable

import "os"

// renameNew moves a file, and fails with fs.ErrExist if to exists.
func renameNew(from, to string) error { return linkNew(from, to) }

// syncData does a full sync: on macOS os.File.Sync also flushes the drive's cache.
func syncData(f *os.File) error { return f.Sync() }
