package durable

import (
	"errors"
	"fmt"
	"io/fs"
)

// An explainedError adds a remedy to a system error, once.
type explainedError struct {
	err  error
	hint string
}

func (e *explainedError) Error() string { return e.err.Error() + "; " + e.hint }
func (e *explainedError) Unwrap() error { return e.err }

// Explain adds the remedy to an error that the user can fix: a full or read-only disk, a missing
// permission, too many open files. path is the file or folder concerned. Other errors, those that
// already have a remedy, and nil are returned unchanged.
func Explain(err error, path string) error {
	if _, done := errors.AsType[*explainedError](err); done || err == nil {
		return err
	}
	var hint string
	switch {
	case isNoSpace(err):
		hint = fmt.Sprintf("free space on the disk that holds %s and call again", path)
	case isReadOnlyDisk(err):
		hint = fmt.Sprintf("the disk that holds %s is read-only: make it writable and call again", path)
	case errors.Is(err, fs.ErrPermission):
		hint = fmt.Sprintf("give the user who runs deepwork read and write permission for %s and the folder it is in, and call again", path)
	case isTooManyFiles(err):
		hint = "too many files are open: raise the limit of open files (ulimit -n) and call again"
	default:
		return err
	}
	return &explainedError{err, hint}
}
