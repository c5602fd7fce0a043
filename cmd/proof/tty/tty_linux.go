package tty

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Open makes a terminal: what is written to the master is typed at it, and what is read from the
// master is on its screen. The caller closes both.
func Open(columns, lines uint16) (master, slave *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR, 0); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrNone, err)
	}
	err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	if err == nil {
		err = unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: lines, Col: columns})
	}

	n := 0
	if err == nil {
		n, err = unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%w: %w", ErrNone, err), master.Close())
	}
	return master, slave, nil
}

// Run runs a command with a controlling terminal of its own, at which ahead is typed before it starts,
// and a line of answer each time it asks; \r makes several lines of one. It returns what the command printed
// on stdout and stderr, and at the terminal. The error is that of the command, or ErrNone.
func Run(cmd *exec.Cmd, ahead, answer string) (printed, screen string, err error) {
	master, slave, err := Open(80, 24)
	if err != nil {
		return "", "", err
	}
	defer master.Close()

	var out bytes.Buffer
	cmd.Stdin = slave
	cmd.Stdout = &out
	cmd.Stderr = &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if _, err = master.WriteString(ahead); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", "", errors.Join(err, slave.Close())
	}

	shown := make(chan string, 1)
	go func() { shown <- reply(master, answer) }()
	err = cmd.Wait()
	if cerr := slave.Close(); err == nil {
		err = cerr
	}
	return out.String(), <-shown, err
}

// reply types a line of the answer each time the screen shows a question, and returns everything that the screen
// showed when nobody has the other end open.
func reply(master *os.File, answer string) string {
	var all strings.Builder
	seen, lines := make([]byte, 4096), strings.Split(answer, "\n")
	for {
		n, err := master.Read(seen)
		all.Write(seen[:n])
		if n > 0 && len(lines) > 0 && question.MatchString(all.String()) {
			_, _ = master.WriteString(lines[0] + "\n")
			lines = lines[1:]
		}
		if err != nil {
			return all.String()
		}
	}
}

// question is the end of a screen that waits for an answer.
var question = regexp.MustCompile(`(Type yes: |\? |> )$`)
