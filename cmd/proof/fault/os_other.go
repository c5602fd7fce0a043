//go:build !unix

package fault

import "errors"

func identity(string) (string, error) { return "", errors.ErrUnsupported }
