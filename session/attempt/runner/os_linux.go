package runner

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
)

// endFor bounds the attempts to end what an agent has left. Only a process that
// the system itself cannot end, in the middle of I/O, takes that long.
const endFor = 5 * time.Second

// becomeReaper makes orphans among the agent's descendants children of this
// process, whatever session they have moved to.
func becomeReaper() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// dieWithShim has the system end the agent itself when the shim is killed.
func dieWithShim(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// bootID tells apart the runs of the system, and the name spaces in which it
// numbers processes.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	space, _ := os.Readlink("/proc/self/ns/pid")
	return strings.TrimSpace(string(id)) + " " + space
}

// startOf is when a process was started, in ticks since boot.
func startOf(pid int) (string, bool) {
	p, ok := readProc(pid)
	return p.start, ok
}

// A proc is what the system says of a process.
type proc struct {
	pid, parent, group, session int
	state                       byte
	start                       string
}

// readProc reads a process's record.
func readProc(pid int) (proc, bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return proc{}, false
	}
	// The name in parentheses may hold anything, parentheses too.
	_, rest, ok := bytes.Cut(data, []byte("("))
	i := bytes.LastIndexByte(rest, ')')
	if !ok || i < 0 {
		return proc{}, false
	}
	fields := bytes.Fields(rest[i+1:])
	if len(fields) < 20 {
		return proc{}, false
	}
	p := proc{pid: pid, state: fields[0][0], start: string(fields[19])}
	for field, to := range map[int]*int{1: &p.parent, 2: &p.group, 3: &p.session} {
		if *to, err = strconv.Atoi(string(fields[field])); err != nil {
			return proc{}, false
		}
	}
	return p, true
}

// eachProc calls fn with every process there is that has not ended.
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
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readProc(pid); ok && p.state != 'Z' && p.state != 'X' {
			fn(p)
		}
	}
	return nil
}

// hasEnv tells whether a process was started with a variable whose "KEY=value"
// begins like that.
func hasEnv(pid int, begin string) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return err == nil && (bytes.HasPrefix(env, []byte(begin)) || bytes.Contains(env, []byte("\x00"+begin)))
}

// endDescendants ends and reaps the children of this process until there are no
// more: as it is the reaper of its descendants, all of them come to be its
// children. The shim of another run, which the agent has begun, is left alone.
func (g *group) endDescendants() {
	self := os.Getpid()
	for wait, end := time.Millisecond, time.Now().Add(endFor); time.Now().Before(end); wait = min(2*wait, 20*time.Millisecond) {
		g.reap()
		left := 0
		err := eachProc(func(p proc) {
			if p.parent == self && !hasEnv(p.pid, shimEnv+"=") {
				// Nobody but this goroutine reaps, so the number is still its own.
				unix.Kill(p.pid, unix.SIGKILL)
				left++
			}
		})
		if err != nil || left == 0 {
			return
		}
		time.Sleep(wait)
	}
}

// endLeftovers ends what a dead shim has left: whatever bears the run's mark, and
// the agent's group as far as it can be told from a later one. It returns when
// nothing of it is left.
func endLeftovers(ctx context.Context, s *startedRecord, mark string) error {
	return endAll(ctx, func(p proc) bool {
		return s.PID != 0 && p.pid == s.PID && p.start == s.Start ||
			s.PID != 0 && p.group == s.PID && p.session == s.ShimPID ||
			mark != "" && hasEnv(p.pid, markEnv+"="+mark)
	})
}

// endMarked ends what bears a mark.
func endMarked(ctx context.Context, mark string) error {
	self := os.Getpid() // a server may have been started by what is to end
	return endAll(ctx, func(p proc) bool { return p.pid != self && hasEnv(p.pid, markEnv+"="+mark) })
}

// endAll ends processes until none of them is left.
func endAll(ctx context.Context, ours func(proc) bool) error {
	for wait := newPace(50 * time.Millisecond); ; {
		left := 0
		if err := eachProc(func(p proc) {
			if ours(p) {
				end(p)
				left++
			}
		}); err != nil {
			return err
		}
		if left == 0 {
			return nil
		}
		if time.Since(wait.began) > endFor {
			return fmt.Errorf("%d processes do not end", left)
		}
		if err := wait.next(ctx); err != nil {
			return err
		}
	}
}

// end kills a process if it is still the one that was seen.
func end(p proc) {
	handle, err := os.FindProcess(p.pid)
	if err != nil {
		return
	}
	defer handle.Release()
	if now, ok := readProc(p.pid); ok && now.start == p.start {
		if err := handle.Kill(); errors.Is(err, os.ErrProcessDone) {
			return
		}
	}
}

func replaceStdout(fd int) error { return unix.Dup3(fd, 1, 0) }
