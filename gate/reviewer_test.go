package gate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"deepwork/actor/testkit"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// claudeEnv says what the test binary does when it is started as claude.
const claudeEnv = "GATE_TEST_CLAUDE"

// TestMain makes the test binary the reviewer too: as `gate.test reviewer MODE…`,
// or, started with claude's arguments, in the mode of the environment.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "reviewer" {
		os.Exit(reviewer(os.Args[2], os.Args[3:]))
	}
	if mode := strings.Fields(os.Getenv(claudeEnv)); len(mode) > 0 {
		os.Exit(reviewer(mode[0], mode[1:]))
	}
	// A program built with -race sleeps for a second at its end, each reviewer too.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	_ = flag.Set("test.parallel", "6") // they wait more than they compute
	goleak.VerifyTestMain(m)
}

// command is the command line of a reviewer in a mode.
func command(mode string, args ...string) []string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return append([]string{self, "reviewer", mode}, args...)
}

const passes = `{"passed": true, "feedback": "all is well"}`

// A received is what a reviewer finds around it.
type received struct {
	Args  []string
	Stdin string
	Dir   string
	Env   map[string]string
}

// reviewer is what a reviewer does.
func reviewer(mode string, args []string) int {
	switch mode {
	case "pass":
		io.Copy(io.Discard, os.Stdin)
		fmt.Println(passes)
	case "fail":
		io.Copy(io.Discard, os.Stdin)
		fmt.Println(`{"passed": false, "feedback": "the summary is missing"}`)
	case "say": // TEXT [STDERR [CODE]]
		io.Copy(io.Discard, os.Stdin)
		fmt.Print(args[0])
		if len(args) > 1 {
			fmt.Fprint(os.Stderr, args[1])
		}
		if len(args) > 2 {
			code, _ := strconv.Atoi(args[2])
			return code
		}
	case "record": // FILE [ANSWER]
		in, _ := io.ReadAll(os.Stdin)
		dir, _ := os.Getwd()
		got := received{Args: os.Args, Stdin: string(in), Dir: dir, Env: make(map[string]string)}
		for _, v := range os.Environ() {
			name, value, _ := strings.Cut(v, "=")
			got.Env[name] = value
		}
		data, _ := json.Marshal(got)
		if err := os.WriteFile(args[0], data, 0o600); err != nil {
			panic(err)
		}
		if len(args) > 1 {
			fmt.Println(strings.Join(args[1:], " "))
		} else {
			fmt.Println(passes)
		}
	case "change": // FILE
		io.Copy(io.Discard, os.Stdin)
		if err := os.WriteFile(args[0], []byte("changed by the reviewer\n"), 0o600); err != nil {
			panic(err)
		}
		fmt.Println(passes)
	case "flood":
		for line := bytes.Repeat([]byte("y\n"), 4096); ; {
			if _, err := os.Stdout.Write(line); err != nil {
				return 0
			}
		}
	case "work": // HUB TIME
		d, _ := time.ParseDuration(args[1])
		c := dial(args[0])
		r := bufio.NewReader(c)
		r.ReadString('\n') // the test lets it begin
		time.Sleep(d)
		fmt.Fprintln(c, "end")
		r.ReadString('\n')
		fmt.Println(passes)
	case "gated": // HUB: ends when the test says so, with what it says
		c := dial(args[0])
		answer, err := bufio.NewReader(c).ReadString('\n')
		if err != nil {
			return 1
		}
		fmt.Println(answer)
	case "hang": // HUB
		dial(args[0])
		testkit.Forever()
	case "stubborn": // HUB
		signal.Ignore(syscall.SIGTERM)
		cmd := exec.Command(os.Args[0], "reviewer", "leaf", args[0])
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		dial(args[0])
		testkit.Forever()
	case "leaf":
		signal.Ignore(syscall.SIGTERM)
		dial(args[0])
		testkit.Forever()
	}
	return 0
}

// dial reports to the test's hub.
func dial(hub string) net.Conn {
	os.Setenv(testkit.HubEnv, hub)
	return testkit.Attend()
}

// patience is how long a test waits for what must come, on a machine that is busy
// with other things too; it never waits that long for what does not.
const patience = time.Minute
