package workflow

import (
	"os"
	"runtime"
	"strconv"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session/store/postgres/pgtest"

	"golang.org/x/sys/unix"
)

// apart gives a server and this process a processor each, as on two machines; until the end of the
// benchmark. It reports false if there is one processor alone, or the server was not started here.
func apart(b *testing.B, server *pgtest.Server) bool {
	b.Helper()
	pin := func(pid, cpu int) {
		b.Helper()
		var set unix.CPUSet
		set.Set(cpu)
		testkit.Must(b, unix.SchedSetaffinity(pid, &set))
	}
	if server.PID() == 0 || runtime.NumCPU() < 2 {
		return false
	}
	pin(server.PID(), 0) // its processes inherit it
	threads, err := os.ReadDir("/proc/self/task")
	testkit.Must(b, err)
	for _, thread := range threads {
		id, _ := strconv.Atoi(thread.Name())
		pin(id, 1)
	}
	before := runtime.GOMAXPROCS(1)
	b.Cleanup(func() { runtime.GOMAXPROCS(before) })
	return true
}
