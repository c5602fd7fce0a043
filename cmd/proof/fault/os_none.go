//go:build !linux

package fault

import "errors"

// Exchange is not supported.
func Exchange(_, _ string) error { return errors.ErrUnsupported }

// Pipe is not supported.
func Pipe(string) error { return errors.ErrUnsupported }
