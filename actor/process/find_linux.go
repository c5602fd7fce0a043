package process

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"deepwork/actor/wait"
)

// endFor limits the attempts to kill descendants. Only a process that the system cannot end, in the middle of
// I/O, takes that long.
const endFor = 5 * time.Second

// becomeReaper makes orphaned descendants children of this process, whatever session they have moved to.
func becomeReaper() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// dieWithParent makes the system send the child, but not its descendants, a signal when this process
// is killed.
func dieWithParent(a *syscall.SysProcAttr, signal syscall.Signal) { a.Pdeathsig = signal }

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
func StartOf(pid int) string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}

	// The name in parentheses may contain anything, even parentheses.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 20 {
		return ""
	}
	return string(fields[19])
}

// children returns the children of this process, including adopted ones.
func children() (pids []int) {
	threads, _ := filepath.Glob("/proc/self/task/*/children")
	for _, thread := range threads {
		list, _ := os.ReadFile(thread)
		for _, field := range strings.Fields(string(list)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// detached reports whether Detach started a child, which a variable of its environment shows.
func detached(pid int) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	begin := []byte(detachedEnv + "=")
	return err == nil && (bytes.HasPrefix(env, begin) || bytes.Contains(env, append([]byte{0}, begin...)))
}

// endDescendants kills and reaps the children of this process, except detached ones, until none is left.
// Since this process is the reaper of its descendants, all of them become its children. It reports whether
// some do not end.
func (g *group) endDescendants() (left bool) {
	if !g.all {
		return false
	}

	ctx, cancel := context.WithTimeout(context.Background(), endFor)
	defer cancel()
	for pause := (wait.Backoff{Min: time.Millisecond, Max: 50 * time.Millisecond}); ; {
		left = false
		for _, pid := range children() { // their numbers are not reused before they are reaped
			if g.detachedToo || !detached(pid) {
				left = true
				unix.Kill(pid, unix.SIGKILL)
			}
		}

		g.reap()
		if !left || pause.Wait(ctx) != nil {
			return left
		}
	}
}

// strays reports whether descendants of this process still run, even outside the group, if all is set and the
// leader has ended.
func (g *group) strays() bool {
	if !g.all {
		return false
	}
	g.reap()
	return len(children()) > 0
}
