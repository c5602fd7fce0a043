package process

import "syscall"

// dieWithParent has the system end the child when this process is killed; what
// the child has started it does not reach.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
