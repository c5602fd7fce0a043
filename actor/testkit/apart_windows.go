package testkit

import "syscall"

// apart gives a child its own console group.
var apart = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
