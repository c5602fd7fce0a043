//go:build !linux

package export

import (
	"errors"
	"os"
)

// exchange is supported on Linux only.
func exchange(*os.File, string, string) error { return errors.ErrUnsupported }
