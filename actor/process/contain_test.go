package process_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
)

// contained runs a shell script.
func contained(t *testing.T, ctx context.Context, script string, limit time.Duration) (process.Outcome, error) {
	unixOnly(t)
	command := []string{"/bin/sh", "-c", script}
	return process.Contain(ctx, process.Contained{Command: command, Dir: t.TempDir(), Env: os.Environ(), Timeout: limit, Output: 1000})
}

func TestContainReportsHowACommandEnded(t *testing.T) {
	t.Parallel()
	type outcome = process.Outcome
	for _, c := range []struct {
		name, script string
		limit        time.Duration
		ok           bool
		is           func(outcome) bool
	}{
		{"passes", "echo out; echo err >&2", time.Minute, true, func(o outcome) bool { return o.Output == "out\nerr" }},
		{"fails", "echo no; exit 3", time.Minute, false, func(o outcome) bool { return o.Code == 3 && o.Output == "no" }},
		{"dies", "kill -SEGV $$", time.Minute, false, func(o outcome) bool { return o.Signal == "SIGSEGV" }},
		{"takes too long", "echo begun; exec sleep 600", 200 * time.Millisecond, false, func(o outcome) bool { return o.TimedOut && o.Output == "begun" }},
		{"ignores its end", "trap '' TERM; echo begun; while :; do sleep 1; done", 200 * time.Millisecond, false, func(o outcome) bool { return o.TimedOut && !o.Surviving }},
		{"leaves a child", "sleep 600 >/dev/null 2>&1 &", time.Minute, false, func(o outcome) bool { return o.Left && o.Code == 0 }},
		{"floods", "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done", time.Minute, true, func(o outcome) bool { return len(o.Output) <= 1000 && strings.HasSuffix(o.Output, "line 19999") }},
		{"has a child that ends soon", "(sleep 0.1) >/dev/null 2>&1 &", time.Minute, true, func(o outcome) bool { return !o.Left }},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := testkit.Get(contained(t, t.Context(), c.script, c.limit)).Must(t)
			testkit.True(t, o.Passed() == c.ok && c.is(o), "outcome %+v", o)
		})
	}
	o, err := process.Contain(t.Context(), process.Contained{Command: []string{"/no/such/program"}, Dir: t.TempDir(), Env: os.Environ(), Timeout: time.Minute})
	testkit.True(t, err == nil && o.NotStarted != "" && o.Missing && !o.Passed(), "a program that is missing: %+v, %v", o, err)
}

// runs reports whether the process whose id is in a file is there.
func runs(t *testing.T, file string) bool {
	pid := strings.TrimSpace(string(testkit.Get(os.ReadFile(file)).Must(t)))
	return runtime.GOOS == "linux" && exists("/proc/"+pid)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// A daemon that has left the group, and says that it was detached on purpose, is ended too.
func TestContainLeavesNoDaemon(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("needs a reaper of orphans")
	}
	mark := filepath.Join(t.TempDir(), "pid")
	o := testkit.Get(contained(t, t.Context(), "PROCESS_DETACHED=1 setsid sh -c 'echo $$ > "+mark+"; exec sleep 600' >/dev/null 2>&1 & while [ ! -s "+mark+" ]; do sleep 0.02; done", time.Minute)).Must(t)
	testkit.True(t, o.Left && !o.Passed() && !runs(t, mark), "outcome %+v", o)
}

func TestContainEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	mark := filepath.Join(t.TempDir(), "pid")
	ended := make(chan error, 1)
	go func() { ended <- testkit.Get(contained(t, ctx, "echo $$ > "+mark+"; exec sleep 600", time.Hour)).Err() }()
	testkit.Until(t, "begun", func() bool { data, _ := os.ReadFile(mark); return len(data) > 0 })
	cancel()
	testkit.Fails(t, <-ended, "")
	testkit.True(t, !runs(t, mark), "the command still runs")
}
