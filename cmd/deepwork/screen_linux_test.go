package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"deepwork/cmd/proof/tty"
)

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
