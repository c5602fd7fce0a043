package testkit

import "syscall"

// apart gives a child a console group of its own.
var apart = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
