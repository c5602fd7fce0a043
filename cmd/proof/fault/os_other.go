//go:build !unix

package fault

import "errors"

func inodeOf(string) (uint64, error) { return 0, errors.ErrUnsupported }
