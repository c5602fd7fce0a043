//go:build unix && !linux

package filestore

import "os"

// renameNew moves a file, and fails with fs.ErrExist if anything stands at to.
func renameNew(from, to string) error { return linkNew(from, to) }

func exchange(string, string) error { return errNoExchange }

func syncData(f *os.File) error { return f.Sync() }
