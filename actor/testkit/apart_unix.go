//go:build unix

package testkit

import "syscall"

// apart makes a child leave the session and the process group of its parent.
var apart = &syscall.SysProcAttr{Setsid: true}
