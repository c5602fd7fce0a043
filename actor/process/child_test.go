package process_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
)

// patience bounds the waits for what is to come, on a machine that is busy too.
const patience = time.Minute

// The test binary is the child too: modeEnv says what it does.
const modeEnv = "PROCESS_TEST_MODE"

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeEnv); mode != "" {
		os.Exit(child(mode))
	}
	// A program built with -race sleeps for a second at its end, each child too.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	_ = flag.Set("test.parallel", "6") // they wait more than they compute
	goleak.VerifyTestMain(m)
}

// staying is a command that writes its id to a file and stays.
var staying = process.Spec{Command: []string{"sh", "-c", "echo $$ >\"$0\"; exec sleep 1000", os.Getenv("PID_FILE")}}

// child is what the test binary does when a test has started it.
func child(mode string) int {
	switch mode {
	case "echo":
		io.Copy(os.Stdout, os.Stdin)
	case "parent": // of a child that prints its id and stays
		process.Run(context.Background(), staying)
	case "tidying": // of a child that removes its lock file at SIGTERM, and stays otherwise
		process.Run(context.Background(), process.Spec{Tidy: true, Command: []string{"sh", "-c",
			`lock="$0.lock"; : >"$lock"; trap 'rm "$lock"; exit' TERM; echo $$ >"$0"; while :; do sleep 0.01; done`, os.Getenv("PID_FILE")}})
	case "detached":
		process.Detached()
		process.Answer(fmt.Sprint(os.Getpid(), " ", os.Getppid()))
		testkit.Forever()
	case "serving": // the same as parent with a service
		s, _ := process.Serve(staying, nil)
		<-s.Done()
	case "longline":
		fmt.Fprintln(os.Stderr, strings.Repeat("x", 1<<20))
		fmt.Fprint(os.Stderr, "\n\nlast, without an end")
	case "noread":
	case "tell":
		wd, _ := os.Getwd()
		json.NewEncoder(os.Stdout).Encode(map[string]any{"args": os.Args[1:], "dir": wd, "env": os.Getenv("TELL")})
	case "fail":
		fmt.Println("out")
		for i := range 10_000 {
			fmt.Fprintf(os.Stderr, "line %d\n", i)
		}
		return 3
	case "failout":
		fmt.Println("\x1b[31mfirst\x1b[0m\nlast\x00")
		return 4
	case "exactly":
		os.Stdout.Write(bytes.Repeat([]byte("x"), 1000))
	case "flood":
		signal.Ignore(syscall.SIGTERM)
		for line := bytes.Repeat([]byte("y\n"), 4096); ; {
			if _, err := os.Stdout.Write(line); err != nil {
				return 0
			}
		}
	case "hang", "leaf", "stubborn", "gentle":
		switch mode {
		case "gentle": // dies of SIGTERM at once; its child tidies up
			testkit.Spawn(false, modeEnv+"=tidy")
		case "stubborn":
			testkit.Spawn(false, modeEnv+"=leaf")
			fallthrough
		case "leaf":
			signal.Ignore(syscall.SIGTERM)
		}
		testkit.Attend()
		testkit.Forever()
	case "obedient", "tidy": // a tidy one takes as long to end as the test says
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		testkit.Attend()
		<-end
		if mode == "tidy" {
			testkit.Attend().Read(make([]byte, 1))
		}
		fmt.Println("tidied up")
	case "orphan":
		testkit.Spawn(false, modeEnv+"=leaf")
		fmt.Println("done")
	case "escape":
		testkit.Spawn(true, modeEnv+"=leaf")
		fmt.Println("done")
	}
	return 0
}

// spec makes the test binary the command, in a mode.
func spec(t testing.TB, mode string, h *testkit.Hub) process.Spec {
	t.Helper()
	self := testkit.Get(os.Executable()).Must(t)
	s := process.Spec{Command: []string{self}, Env: append(os.Environ(), modeEnv+"="+mode)}
	if h != nil {
		s.Env = append(s.Env, h.Env())
	}
	return s
}
