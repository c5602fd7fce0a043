package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"deepwork/actor/wait"
)

// endFor bounds the attempts to kill processes. Only a process that the system cannot end, in the
// middle of I/O, takes that long.
const endFor = 5 * time.Second

// becomeReaper makes orphaned descendants children of this process, whatever session they have
// moved to.
func becomeReaper() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// dieWithParent makes the system end the child, but not its descendants, when this process is
// killed.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// Boot identifies the system's current boot and the PID namespace.
func Boot() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	space, _ := os.Readlink("/proc/self/ns/pid")
	return strings.TrimSpace(string(id)) + " " + space
}

// StartOf returns the start time of a process, in ticks since boot.
func StartOf(pid int) string { return readProc(pid).start }

// A proc is what the system reports about a process.
type proc struct {
	pid, parent, group, session int // pid is 0 if there is no such process
	state                       byte
	start                       string
}

func readProc(pid int) (p proc) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return proc{}
	}
	// The name in parentheses may hold anything, parentheses too.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 20 {
		return proc{}
	}
	for field, to := range map[int]*int{1: &p.parent, 2: &p.group, 3: &p.session} {
		if *to, err = strconv.Atoi(string(fields[field])); err != nil {
			return proc{}
		}
	}
	p.pid, p.state, p.start = pid, fields[0][0], string(fields[19])
	return p
}

// eachProc calls fn for every process that has not ended.
func eachProc(fn func(proc)) error {
	dir, err := os.Open("/proc")
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p := readProc(pid); p.pid != 0 && p.state != 'Z' && p.state != 'X' {
				fn(p)
			}
		}
	}
	return nil
}

// hasEnv reports whether a process was started with an environment entry that begins like that.
func hasEnv(pid int, begin string) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return err == nil && begin != "" && (bytes.HasPrefix(env, []byte(begin)) || bytes.Contains(env, []byte("\x00"+begin)))
}

// endDescendants kills and reaps the children of this process until it has none: since it is the
// reaper of its descendants, all of them become its children. Detached processes are spared.
func (g *group) endDescendants() {
	if !g.all {
		return
	}
	self := os.Getpid()
	endAll(context.Background(), func(p proc) bool { return p.parent == self && !hasEnv(p.pid, detachedEnv+"=") })
	g.reap()
}

// EndLeftovers kills what is left of a child with Spec.Descendants whose parent was killed: every
// process with an entry in its environment (see EndMarked), and the child's group, unless it may be
// a later one of that number. parent is the process that started the child. It returns when they
// are gone.
func EndLeftovers(ctx context.Context, child int, start string, parent int, entry string) error {
	return endAll(ctx, func(p proc) bool {
		return child != 0 && p.pid == child && p.start == start ||
			child != 0 && p.group == child && p.session == parent || hasEnv(p.pid, entry)
	})
}

// EndMarked kills every process, except this one, that was started with an entry "NAME=value" in
// its environment, and returns when they are gone: descendants of a command outlive a killed
// parent. It does nothing except on Linux. It fails if ctx ends or a process does not.
func EndMarked(ctx context.Context, entry string) error {
	self := os.Getpid()
	if err := endAll(ctx, func(p proc) bool { return p.pid != self && hasEnv(p.pid, entry) }); err != nil {
		return fmt.Errorf("ending processes with %s: %w", entry, err)
	}
	return nil
}

// endAll kills processes until they are gone.
func endAll(ctx context.Context, ours func(proc) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, endFor, errors.New("it does not end"))
	defer cancel()
	for pause := (wait.Backoff{Min: time.Millisecond, Max: 50 * time.Millisecond}); ; {
		left := 0
		if err := eachProc(func(p proc) {
			if ours(p) {
				end(p)
				left++
			}
		}); err != nil || left == 0 {
			return err
		}
		if err := pause.Wait(ctx); err != nil {
			return fmt.Errorf("%d processes do not end: %w", left, err)
		}
	}
}

// end kills a process if it is still the one that was found.
func end(p proc) {
	handle, err := os.FindProcess(p.pid)
	if err != nil {
		return
	}
	defer handle.Release()
	if readProc(p.pid).start == p.start {
		handle.Kill()
	}
}
