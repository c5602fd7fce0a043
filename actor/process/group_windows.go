package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// A group is a child and all it has started: a job object, which its members
// cannot leave.
type group struct {
	job windows.Handle
	pid uint32
}

// isolate lets the child begin suspended, so that it is in its job object before
// it can start anything, and in a console group of its own, so that it alone can
// be sent a break.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_SUSPENDED,
	}
}

// adopt puts a child that was started isolated into a job object and lets it run.
func adopt(p *os.Process) (*group, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, fmt.Errorf("creating a job object: %w", err)
	}
	g := &group{job: job, pid: uint32(p.Pid)}
	if err := g.take(p); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

func (g *group) take(p *os.Process) error {
	info := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{
			LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
		},
	}
	if _, err := windows.SetInformationJobObject(g.job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info))); err != nil {
		return fmt.Errorf("setting up a job object: %w", err)
	}
	var assigned error
	if err := p.WithHandle(func(h uintptr) {
		assigned = windows.AssignProcessToJobObject(g.job, windows.Handle(h))
	}); err != nil {
		return fmt.Errorf("opening the process: %w", err)
	}
	if assigned != nil {
		return fmt.Errorf("putting the process into a job object: %w", assigned)
	}
	if err := resume(g.pid); err != nil {
		return fmt.Errorf("letting the process run: %w", err)
	}
	return nil
}

// resume wakes the only thread of a process that was started suspended.
func resume(pid uint32) error {
	snapshot, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return err
	}
	defer windows.CloseHandle(snapshot)
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(snapshot, &entry); err == nil; err = windows.Thread32Next(snapshot, &entry) {
		if entry.OwnerProcessID != pid {
			continue
		}
		thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err != nil {
			return err
		}
		defer windows.CloseHandle(thread)
		_, err = windows.ResumeThread(thread)
		return err
	}
	return errors.New("it has no thread")
}

// terminate asks the group to end. Where there is no console it cannot be asked.
func (g *group) terminate() error {
	return windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, g.pid)
}

// kill ends the group. It tells whether there was something to end.
func (g *group) kill() bool {
	was := g.alive()
	windows.TerminateJobObject(g.job, 1)
	return was
}

// accounting is JOBOBJECT_BASIC_ACCOUNTING_INFORMATION.
type accounting struct {
	totalUser, totalKernel, periodUser, periodKernel int64
	pageFaults, processes, active, terminated        uint32
}

// alive tells whether a process of the group is left.
func (g *group) alive() bool {
	var a accounting
	err := windows.QueryInformationJobObject(g.job, windows.JobObjectBasicAccountingInformation,
		uintptr(unsafe.Pointer(&a)), uint32(unsafe.Sizeof(a)), nil)
	return err == nil && a.active > 0
}

// waitGone waits until nothing is left, but no longer than limit.
func (g *group) waitGone(limit time.Duration) {
	for end := time.Now().Add(limit); g.alive() && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
}

func (g *group) close() { windows.CloseHandle(g.job) }

// signalName is "": there are no signals here.
func signalName(*os.ProcessState) string { return "" }
