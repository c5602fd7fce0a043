//go:build !unix

package fault

import "os"

// Suspend does nothing here.
func Suspend(*os.Process) {}

// Resume does nothing here.
func Resume(*os.Process) {}
