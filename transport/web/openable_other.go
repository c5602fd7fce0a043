//go:build !unix

package web

import "math"

// openable is how many connections the process may have open: there is no limit
// to open files that could be told.
func openable() int { return math.MaxInt32 }
