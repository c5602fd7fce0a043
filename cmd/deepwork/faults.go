//go:build faults

package main

import "deepwork/cmd/proof/fault"

// Only the simulation builds the program with this tag.
func init() { fault.Install() }
