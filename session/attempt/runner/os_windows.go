package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// stopLook is how often a shim looks for a request to stop; there is no signal
// that could be quicker.
const stopLook = 100 * time.Millisecond

// stopSignal stands for the signal of other systems; nobody sends it.
const stopSignal = syscall.Signal(0)

// survived are the events that a shim does not end by.
var survived = []os.Signal{os.Interrupt, syscall.SIGTERM}

// firstEnv is the environment of the process that is to be the shim: here it can
// be started as one at once.
func firstEnv(dir string) []string { return []string{shimEnv + "=" + dir} }

// detach gives the shim a group and a console, without a window, of its own, in
// which its agent can be sent a break.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_NO_WINDOW | windows.CREATE_BREAKAWAY_FROM_JOB,
	}
}

// startDetached starts the shim outside the job of this process, so that it does
// not end with it, where the job lets it go.
func startDetached(cmd *exec.Cmd) error {
	// Not bound to a context: the shim is to outlive whoever has started it.
	free := &exec.Cmd{Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir, Stdout: cmd.Stdout, Err: cmd.Err, SysProcAttr: cmd.SysProcAttr}
	err := free.Start()
	if errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		attr := *cmd.SysProcAttr
		attr.CreationFlags &^= windows.CREATE_BREAKAWAY_FROM_JOB
		free = &exec.Cmd{Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir, Stdout: cmd.Stdout, SysProcAttr: &attr}
		err = free.Start()
	}
	if err != nil {
		return err
	}
	return free.Process.Release()
}

// leave starts this command line again as the shim.
func leave(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("starting a shim: %w", err)
	}
	cmd := &exec.Cmd{
		Path: self, Args: os.Args, Dir: filepath.VolumeName(dir) + `\`, Stdout: os.Stdout,
		Env: append(without(os.Environ(), shimEnv), firstEnv(dir)...),
	}
	detach(cmd)
	if err := startDetached(cmd); err != nil {
		return fmt.Errorf("starting a shim: %w", err)
	}
	return nil
}

// hangUp ends the line to the Runner.
func hangUp() { os.Stdout.Close() }

// A group is an agent and all it has started: a job object that ends with the shim.
type group struct {
	job    windows.Handle
	pid    uint32
	ended  chan ending // has the agent's end, once
	waiter sync.WaitGroup
}

// An ending is how an agent has ended; there are no signals here.
type ending struct {
	code   int
	signal string
}

// startGroup starts a command in a job object of its own.
func startGroup(cmd *exec.Cmd) (*group, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_SUSPENDED,
	}
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, fmt.Errorf("creating a job object: %w", err)
	}
	g := &group{job: job, ended: make(chan ending, 1)}
	if err := cmd.Start(); err != nil {
		windows.CloseHandle(job)
		return nil, err
	}
	g.pid = uint32(cmd.Process.Pid)
	if err := g.take(cmd.Process); err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		windows.CloseHandle(job)
		return nil, err
	}
	g.waiter.Go(func() {
		cmd.Wait() // what it says is in ProcessState too
		g.ended <- ending{code: cmd.ProcessState.ExitCode()}
	})
	return g, nil
}

// take puts a suspended process into the job and lets it run.
func (g *group) take(p *os.Process) error {
	info := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{
			LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | windows.JOB_OBJECT_LIMIT_BREAKAWAY_OK,
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
	return g.resume()
}

// resume wakes the only thread of the suspended process.
func (g *group) resume() error {
	snapshot, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return fmt.Errorf("letting the process run: %w", err)
	}
	defer windows.CloseHandle(snapshot)
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(snapshot, &entry); err == nil; err = windows.Thread32Next(snapshot, &entry) {
		if entry.OwnerProcessID != g.pid {
			continue
		}
		thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err == nil {
			_, err = windows.ResumeThread(thread)
			windows.CloseHandle(thread)
		}
		if err != nil {
			return fmt.Errorf("letting the process run: %w", err)
		}
		return nil
	}
	return errors.New("letting the process run: it has no thread")
}

// terminate asks the group to end.
func (g *group) terminate() { windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, g.pid) }

// kill ends the group.
func (g *group) kill() { windows.TerminateJobObject(g.job, 1) }

// accounting is JOBOBJECT_BASIC_ACCOUNTING_INFORMATION.
type accounting struct {
	totalUser, totalKernel, periodUser, periodKernel int64
	pageFaults, processes, active, terminated        uint32
}

// alive tells whether something of the group is left.
func (g *group) alive() bool {
	var a accounting
	err := windows.QueryInformationJobObject(g.job, windows.JobObjectBasicAccountingInformation,
		uintptr(unsafe.Pointer(&a)), uint32(unsafe.Sizeof(a)), nil)
	return err == nil && a.active > 0
}

// close ends what is left of the group. It is called once the agent itself has
// ended.
func (g *group) close() {
	g.waiter.Wait()
	g.kill()
	windows.CloseHandle(g.job)
}

// nudge does nothing: a shim looks by itself.
func nudge(*startedRecord) bool { return false }

// bootID is not needed here: a process's number and start time are never those
// of another.
func bootID() string { return "" }

// startOf is when a process was started, in 100 ns since 1601.
func startOf(pid int) (string, bool) {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return "", false
	}
	defer windows.CloseHandle(h)
	var created, exited, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(h, &created, &exited, &kernel, &user); err != nil {
		return "", false
	}
	return fmt.Sprint(uint64(created.HighDateTime)<<32 | uint64(created.LowDateTime)), true
}

// endLeftovers does nothing: the job of a shim that has ended has ended with it.
func endLeftovers(context.Context, *startedRecord, string) error { return nil }

// endMarked does nothing: a command that is run has ended with its job.
func endMarked(context.Context, string) error { return nil }
