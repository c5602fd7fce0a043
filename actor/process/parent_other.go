//go:build unix && !linux

package process

import "syscall"

// dieWithParent does nothing: here a child outlives a process that is killed.
func dieWithParent(*syscall.SysProcAttr) {}
