package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"deepwork/cmd/proof/tty"
	"deepwork/session/show"
)

// A command that takes over a second says so at a terminal, until it prints something.
func TestProgress(t *testing.T) {
	master, slave, err := tty.Open(40, 10)
	if err != nil {
		t.Skip("no terminals here:", err)
	}
	defer master.Close()
	defer slave.Close()
	must(t, master.SetReadDeadline(time.Now().Add(time.Minute)))
	env := map[string]string{"TERM": "xterm", "NO_COLOR": "1"}
	screen := show.NewScreen(slave, func(name string) string { return env[name] })
	end := screen.Progress("deepwork check")
	defer end()
	seen, shown := make([]byte, 1000), ""
	await := func(want string) {
		t.Helper()
		for !strings.HasSuffix(shown, want) {
			n, err := master.Read(seen)
			if shown += string(seen[:n]); err != nil {
				t.Fatalf("%v; the screen is %q, not %q", err, shown, want)
			}
		}
	}
	await("\rdeepwork check … 1s\x1b[K")
	fmt.Fprintln(screen, "All is well")
	await("\r\x1b[KAll is well\r\n")
	fmt.Fprintln(screen, "Again")
	await("All is well\r\nAgain\r\n")
}

func init() { programs["screen"] = onScreen }

// onScreen runs a command at a terminal, prints what is on its screen, and exits as the command does:
// screen COLUMNS COMMAND [ARG...].
func onScreen() {
	columns, err := strconv.ParseUint(os.Args[1], 10, 16)
	if err != nil {
		panic(err)
	}
	master, slave, err := tty.Open(uint16(columns), 50)
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(os.Args[2], os.Args[3:]...)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	slave.Close()
	var shown bytes.Buffer
	_, _ = shown.ReadFrom(master) // until nobody has the other end open
	_ = cmd.Wait()
	fmt.Print(strings.ReplaceAll(shown.String(), "\r\n", "\n"))
	os.Exit(cmd.ProcessState.ExitCode())
}
