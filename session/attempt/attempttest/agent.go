package attempttest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"deepwork/actor/testkit"
)

// Agent is the coding agent of the tests. Its prompt tells it what to do, in
// lines that begin with "! ":
//
//	write FILE TEXT     writes a file in its working directory
//	commit TEXT         commits all
//	say TEXT, prompt    prints a text, or the prompt
//	env NAME            prints a variable
//	pwd                 prints the working directory
//	touch FILE          makes an absolute file, for the test to see
//	await FILE          goes on when it is there
//	once FILE           makes a file that must not be there yet, or exits 99
//	sleep DURATION
//	flood N             prints N lines
//	fork                leaves a child that ignores SIGTERM and runs for ever
//	stubborn            ignores SIGTERM
//	slot DIR            counts itself in a folder of running agents
//	exit N
func Agent(args []string) int {
	prompt := ""
	if len(args) > 1 {
		prompt = args[1]
	} else {
		text, err := io.ReadAll(os.Stdin)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 98
		}
		prompt = string(text)
	}

	if args[0] == "stay" {
		signal.Ignore(syscall.SIGTERM)
		time.Sleep(time.Hour)
	}

	fmt.Println("agent", args[0])
	for line := range strings.Lines(prompt) {
		order, ok := strings.CutPrefix(strings.TrimSpace(line), "! ")
		if !ok {
			continue
		}
		verb, rest, _ := strings.Cut(order, " ")
		code, over, err := agentDo(verb, rest, prompt)
		if err != nil {
			fmt.Fprintln(os.Stderr, verb, err)
			return 97
		}
		if over {
			return code
		}
	}

	fmt.Println("done")
	return 0
}

func agentDo(verb, rest, prompt string) (code int, over bool, err error) {
	switch verb {
	case "write":
		name, text, _ := strings.Cut(rest, " ")
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return 0, false, err
		}
		return 0, false, os.WriteFile(name, []byte(text+"\n"), 0o644)
	case "commit":
		if _, err := testkit.TryGit(".", "add", "-A"); err != nil {
			return 0, false, err
		}
		_, err := testkit.TryGit(".", "commit", "-q", "-m", rest)
		return 0, false, err
	case "amend":
		_, err := testkit.TryGit(".", "commit", "-q", "-a", "--amend", "-m", rest)
		return 0, false, err
	case "say":
		fmt.Println(rest)
	case "prompt":
		fmt.Println(prompt)
	case "env":
		fmt.Printf("%s=%s\n", rest, os.Getenv(rest))
	case "pwd":
		dir, err := os.Getwd()
		fmt.Println("pwd", dir)
		return 0, false, err
	case "touch":
		return 0, false, os.WriteFile(rest, []byte(strconv.Itoa(os.Getpid())), 0o644)
	case "await":
		for !exists(rest) {
			time.Sleep(5 * time.Millisecond)
		}
	case "once":
		f, err := os.OpenFile(rest, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return 99, true, nil
		}
		return 0, false, f.Close()
	case "sleep":
		d, err := time.ParseDuration(rest)
		time.Sleep(d)
		return 0, false, err
	case "flood":
		n, err := strconv.Atoi(rest)
		for i := range n {
			fmt.Printf("%d %s\n", i, strings.Repeat("x", 100))
		}
		return 0, false, err
	case "fork":
		cmd := exec.Command(os.Args[0], "agent", "stay", "-")
		return 0, false, cmd.Start()
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	case "slot":
		return 0, false, agentSlot(rest)
	case "exit":
		n, err := strconv.Atoi(rest)
		return n, true, err
	default:
		return 0, false, fmt.Errorf("unknown order %q", verb)
	}

	return 0, false, nil
}

// agentSlot records how many agents are running, including itself. The first one waits for another.
func agentSlot(dir string) error {
	own := filepath.Join(dir, "running-"+strconv.Itoa(os.Getpid()))
	if err := os.WriteFile(own, nil, 0o644); err != nil {
		return err
	}

	var running []string
	met := filepath.Join(dir, "met")
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		var err error
		if running, err = filepath.Glob(filepath.Join(dir, "running-*")); err != nil {
			return err
		}
		if len(running) > 1 || exists(met) || time.Now().After(end) {
			break
		}
	}
	if len(running) > 1 {
		if err := os.WriteFile(met, nil, 0o644); err != nil {
			return err
		}
	}
	time.Sleep(30 * time.Millisecond) // so that more agents overlap
	err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("saw-%d-%d", len(running), os.Getpid())), nil, 0o644)
	if err != nil {
		return err
	}

	return os.Remove(own)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
