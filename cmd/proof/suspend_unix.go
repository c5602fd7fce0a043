//go:build unix

package main

import "syscall"

// suspend stops a process until resume, or does nothing if it has ended.
func (p *process) suspend() { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }

func (p *process) resume() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }
