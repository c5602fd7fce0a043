package durable

import (
	"fmt"
	"os"
)

// TempFolder creates a folder for temporary files like os.MkdirTemp; the caller removes it. If the system's
// temporary folder is missing or read-only, as in many containers, it creates the folder in spare, unless
// that is "".
func TempFolder(spare, pattern string) (string, error) {
	dir, err := os.MkdirTemp("", pattern)
	if err == nil {
		return dir, nil
	}

	if spare != "" {
		if dir, failed := os.MkdirTemp(spare, pattern); failed == nil {
			return dir, nil
		}
	}
	return "", ExplainTemp(err)
}

// ExplainTemp adds to the error of a temporary file or folder the place where those are created.
func ExplainTemp(err error) error {
	if err == nil {
		return nil
	}
	return &explainedError{err, fmt.Sprintf("temporary files cannot be made in %s: make it, or set TMPDIR to a folder "+
		"that can be written", os.TempDir())}
}
