package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// A group is a child and all its descendants: a job object, which its members cannot leave unless
// all is set.
type group struct {
	all         bool // Spec.Descendants
	tidy        bool // Spec.Tidy
	detachedToo bool // Spec.detachedToo
	job         windows.Handle
	pid         uint32
}

// start starts a command in a new job object. The command begins suspended, so that it cannot start anything
// outside the job, and in a new console group, so that a break can be sent to it alone.
func (g *group) start(cmd *exec.Cmd) (err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_SUSPENDED,
	}

	if g.job, err = windows.CreateJobObject(nil, nil); err != nil {
		return fmt.Errorf("creating a job object: %w", err)
	}
	if err := cmd.Start(); err != nil {
		g.close()
		return err
	}
	g.pid = uint32(cmd.Process.Pid)
	if err := g.take(cmd.Process); err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		g.close()
		return err
	}

	return nil
}

// wait waits for the end of the command itself. Windows has no signals.
func (g *group) wait(cmd *exec.Cmd) (code int, signal string) {
	cmd.Wait() // ProcessState has its result, too
	return cmd.ProcessState.ExitCode(), ""
}

// take puts a suspended process into the job and resumes it.
func (g *group) take(p *os.Process) error {
	info := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{
			LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
		},
	}
	if g.all {
		info.BasicLimitInformation.LimitFlags |= windows.JOB_OBJECT_LIMIT_BREAKAWAY_OK
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

// resume resumes the only thread of a process that was started suspended.
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

// terminate asks the group to end, which needs a console.
func (g *group) terminate() error {
	return windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, g.pid)
}

// kill kills the group, and reports whether any process was left to kill.
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

// alive reports whether a process of the group is left.
func (g *group) alive() bool {
	var a accounting
	err := windows.QueryInformationJobObject(g.job, windows.JobObjectBasicAccountingInformation,
		uintptr(unsafe.Pointer(&a)), uint32(unsafe.Sizeof(a)), nil)
	return err == nil && a.active > 0
}

// endDescendants does nothing: members cannot leave the job unnoticed.
func (g *group) endDescendants() (left bool) { return false }

// strays reports false: members cannot leave the job unnoticed.
func (g *group) strays() bool { return false }

func (g *group) close() { windows.CloseHandle(g.job) }

// survived are the events that would end a detached process.
var survived = []os.Signal{os.Interrupt, syscall.SIGTERM}

// startDetached starts a process outside the job of this one, if the job allows that, so that it does not end
// with the job. The process gets its own group and console, without a window, so that its children can
// receive a break.
func startDetached(cmd *exec.Cmd) error {
	begin := func(flags uint32) error {
		free := &exec.Cmd{Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir, Stdout: cmd.Stdout, Err: cmd.Err,
			SysProcAttr: &syscall.SysProcAttr{
				CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_NO_WINDOW | flags,
			}}
		if err := free.Start(); err != nil {
			return err
		}
		return free.Process.Release()
	}
	err := begin(windows.CREATE_BREAKAWAY_FROM_JOB)
	if errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		err = begin(0)
	}
	return err
}

// leaveSession is not needed: Windows has no sessions of processes.
func leaveSession() {}

// Boot is not needed on Windows: number and start time identify a process.
func Boot() string { return "" }

// StartOf returns the start time of a process, in 100 ns since 1601.
func StartOf(pid int) string {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return ""
	}
	defer windows.CloseHandle(h)

	var created, exited, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(h, &created, &exited, &kernel, &user); err != nil {
		return ""
	}
	return fmt.Sprint(uint64(created.HighDateTime)<<32 | uint64(created.LowDateTime))
}

// EndGroup does nothing: a job ends with its parent process.
func EndGroup(int, string) {}
