//go:build !unix

package web

import "math"

// openable returns how many connections the process may have open: no limit of open files is known.
func openable() int { return math.MaxInt32 }
