package runner

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"deepwork/actor/testkit"
	"deepwork/session/git"
)

// A flood fills neither the disk nor the shim's memory.
func TestFlood(t *testing.T) {
	b := newBench(t)
	p := b.start(b.spec("1", "flood:100000000"))
	most := 0
	for pause := looks(20 * time.Millisecond); !exists(p.dir, exitFile); {
		most = max(most, residentKB(p.started.ShimPID))
		got := size(t, b.path("log"))
		testkit.Need(t, got <= MaxLogBytes, "the log has %d bytes", got)
		must(t, pause.Wait(t.Context()))
	}
	e := b.wait(p)
	testkit.Equal(t, e.Code, 0)
	testkit.Equal(t, e.FinalMessage, "the end, without a line break")
	testkit.True(t, most <= 100<<10 && most != 0, "the shim took %d KiB", most)

	last, _ := tailed(t, b.path("log"), nil, 10)
	testkit.True(t, last[9].Index >= 1_000_000, "it ends with entry %d", last[9].Index)
}

func residentKB(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			n, _ := strconv.Atoi(string(bytes.Fields(rest)[0]))
			return n
		}
	}
	return 0
}

// mount gives a file system of its own.
func mount(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("cannot mount: %v", err)
	}
	t.Cleanup(func() { testkit.Works(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// On a full disk the agent goes on, the log says what it lacks once it can, and the end is recorded.
func TestFullDisk(t *testing.T) {
	b := newBench(t)
	disk := mount(t, "size=512k")
	s := b.spec("1", "flood:3000000")
	s.Dir, s.Log = filepath.Join(disk, "run"), filepath.Join(disk, "log")
	e := b.run(s)
	testkit.Equal(t, e.Code, 0)
	testkit.Equal(t, e.FinalMessage, "the end, without a line break")
	testkit.True(t, !e.Interrupted, "%+v", e)

	entries, _ := tailed(t, s.Log, nil, MaxTail)
	testkit.Need(t, len(entries) >= 100, "%d entries", len(entries))
	for i, e := range entries {
		testkit.Need(t, e.Index == entries[0].Index+int64(i), "entry %d is %d", i, e.Index)
	}

	// Nothing can be begun now, and nothing is left of the attempt to.
	fillUp(t, filepath.Join(disk, "ballast"))
	s2 := b.spec("2", "echo")
	s2.Dir, s2.Log = filepath.Join(disk, "run2"), s.Log
	p, err := testRunner().Start(t.Context(), s2)
	if err == nil {
		testkit.Contains(t, b.wait(p).NotStarted, "no space left")
	} else if !strings.Contains(err.Error(), "no space left") {
		t.Error(err)
	}

	must(t, os.Remove(filepath.Join(disk, "ballast")))
	must(t, os.RemoveAll(s.Log))
	testkit.Equal(t, b.ran(), 1, "agents ran")
	// The disk has room again: it is begun.
	if err != nil {
		e := b.run(s2)
		testkit.True(t, e.Code == 0 && b.ran() == 2, "%+v, %d ran", e, b.ran())
	}
}

// fillUp takes what room there is.
func fillUp(t *testing.T, path string) {
	t.Helper()
	f := testkit.Get(os.Create(path)).Must(t)
	defer f.Close()
	var err error
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
}

// The log that could not be written says so, and how much is missing.
func TestLogSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	disk := mount(t, "size=256k")
	dir := filepath.Join(disk, "log")
	l := openedLog(t, dir)
	l.write(Stdout, []byte("zero"))
	ballast := filepath.Join(disk, "ballast")
	fillUp(t, ballast)
	line := bytes.Repeat([]byte("x"), 10_000)
	l.write(Stdout, line, line)
	l.write(Stderr, line)
	must(t, os.Remove(ballast))
	l.write(Stdout, []byte("again"))
	entries, _ := tailed(t, dir, nil, 10)
	testkit.Need(t, len(entries) == 3, "%.300v", entries)
	testkit.Need(t, entries[1].Index == 1, "%.300v", entries)
	testkit.Need(t, entries[1].Stream == System, "%.300v", entries)
	testkit.Need(t, entries[2].Text == "again", "%.300v", entries)
	testkit.ContainsAll(t, entries[1].Text, []string{"3 lines are missing here", "no space left"})
}

// What the server has inherited from its editor is not held open by its agents.
func TestInheritedFilesAreClosed(t *testing.T) {
	b := newBench(t)
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	inherited, err := unix.Dup(int(w.Fd())) // without close-on-exec
	must(t, err)
	w.Close()
	p := b.start(b.spec("1", "hang"))
	b.next()
	must(t, unix.Close(inherited))
	must(t, r.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err = r.Read(make([]byte, 1))
	testkit.True(t, err != nil && !os.IsTimeout(err), "the pipe is open: %v", err)
	b.stop(p, 0)
}

// processesOf lists the processes that were started with a text in their command line or environment, but for this one.
func processesOf(text string) []int {
	var found []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		for _, file := range []string{"cmdline", "environ"} { // both are empty for zombies
			data, err := os.ReadFile(filepath.Join(dir, file))
			if err == nil && bytes.Contains(data, []byte(text)) && pid != os.Getpid() {
				found = append(found, pid)
				break
			}
		}
	}
	return found
}

// A server that git has started has variables by which git would work on the main checkout, wherever it is called.
func TestAgentIsBoundToNoRepository(t *testing.T) {
	b := benchOf(t)
	for _, name := range git.Bound {
		t.Setenv(name, "/main/.git")
	}
	t.Setenv("GIT_SSH_COMMAND", "ssh -x")
	s := b.spec("1", "")
	s.Command = []string{"sh", "-c", "env | grep -e =/main -e ^GIT_N -e ^GIT_SSH | sort"}
	s.Env = []string{"GIT_NAMESPACE=own"} // what the config says counts
	b.run(s)
	testkit.Equal(t, texts(b.log(), Stdout), "GIT_NAMESPACE=own|GIT_SSH_COMMAND=ssh -x")
}
