//go:build faults

package main

import "deepwork/cmd/proof/fault"

// This tag is only set when the simulation builds the program.
func init() { fault.Install() }
