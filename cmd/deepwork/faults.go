//go:build faults

package main

import "deepwork/cmd/proof/fault"

// The simulation builds the program with this tag.
func init() { fault.Install() }
