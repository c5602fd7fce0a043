package process

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// contained runs a shell script.
func contained(t *testing.T, script string, limit time.Duration) Outcome {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("uses a shell")
	}
	o, err := Contain(t.Context(), Contained{Command: []string{"/bin/sh", "-c", script}, Dir: t.TempDir(), Env: os.Environ(), Timeout: limit, Output: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestContainReportsHowACommandEnded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, script string
		limit        time.Duration
		ok           bool
		is           func(Outcome) bool
	}{
		{"passes", "echo out; echo err >&2", time.Minute, true, func(o Outcome) bool { return o.Output == "out\nerr" }},
		{"fails", "echo no; exit 3", time.Minute, false, func(o Outcome) bool { return o.Code == 3 && o.Output == "no" }},
		{"dies", "kill -SEGV $$", time.Minute, false, func(o Outcome) bool { return o.Signal == "SIGSEGV" }},
		{"takes too long", "echo begun; exec sleep 600", 200 * time.Millisecond, false, func(o Outcome) bool { return o.TimedOut && o.Output == "begun" }},
		{"ignores its end", "trap '' TERM; echo begun; while :; do sleep 1; done", 200 * time.Millisecond, false, func(o Outcome) bool { return o.TimedOut && !o.Surviving }},
		{"leaves a child", "sleep 600 >/dev/null 2>&1 &", time.Minute, false, func(o Outcome) bool { return o.Left && o.Code == 0 }},
		{"floods", "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done", time.Minute, true, func(o Outcome) bool { return len(o.Output) <= 1000 && strings.HasSuffix(o.Output, "line 19999") }},
		{"has a child that ends soon", "(sleep 0.1) >/dev/null 2>&1 &", time.Minute, true, func(o Outcome) bool { return !o.Left }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if o := contained(t, c.script, c.limit); o.Passed() != c.ok || !c.is(o) {
				t.Errorf("outcome %+v", o)
			}
		})
	}
}

// A daemon that has left the group, and says that it was detached on purpose, is ended too.
func TestContainLeavesNoDaemon(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("needs a reaper of orphans")
	}
	mark := filepath.Join(t.TempDir(), "pid")
	o := contained(t, "PROCESS_DETACHED=1 setsid sh -c 'echo $$ > "+mark+"; exec sleep 600' >/dev/null 2>&1 & while [ ! -s "+mark+" ]; do sleep 0.02; done", time.Minute)
	pid, err := os.ReadFile(mark)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/" + strings.TrimSpace(string(pid))); !o.Left || o.Passed() || err == nil {
		t.Errorf("outcome %+v, the daemon: %v", o, err)
	}
}

func TestContainNamesAProgramThatIsMissing(t *testing.T) {
	t.Parallel()
	o, err := Contain(t.Context(), Contained{Command: []string{"/no/such/program"}, Dir: t.TempDir(), Env: os.Environ(), Timeout: time.Minute})
	if err != nil || o.NotStarted == "" || !o.Missing || o.Passed() {
		t.Errorf("outcome %+v, %v", o, err)
	}
}

func TestContainEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	mark := filepath.Join(t.TempDir(), "pid")
	ended := make(chan error, 1)
	go func() {
		_, err := Contain(ctx, Contained{Command: []string{"/bin/sh", "-c", "echo $$ > " + mark + "; exec sleep 600"}, Env: os.Environ(), Timeout: time.Hour})
		ended <- err
	}()
	for data := []byte(nil); len(data) == 0; data, _ = os.ReadFile(mark) {
		time.Sleep(5 * time.Millisecond)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("no error")
	}
	pid, _ := os.ReadFile(mark)
	if _, err := os.Stat("/proc/" + strings.TrimSpace(string(pid))); err == nil && runtime.GOOS == "linux" {
		t.Error("the command still runs")
	}
}
