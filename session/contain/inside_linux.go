package contain

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// insideCommand is the first argument of a process that bubblewrap starts, which becomes the contained program.
const insideCommand = "contain-inside"

// A process with that command line opens its ports in its own network, hands them to the process outside, which
// answers on them, and becomes the program: nothing of deepwork's is left inside that the program could reach. It runs
// before the rest of the program is initialized.
func init() {
	if len(os.Args) < 5 || os.Args[1] != insideCommand {
		return
	}
	fmt.Fprintf(os.Stderr, "starting it contained: %v\n", inside(os.Args[2], os.Args[3], os.Args[4:]))
	os.Exit(126)
}

// inside returns only if it fails.
func inside(socket, ports string, command []string) error {
	to, err := strconv.Atoi(socket)
	if err != nil {
		return err
	}
	var fds []int
	for _, port := range strings.FieldsFunc(ports, func(r rune) bool { return r == ',' || r == ';' }) {
		n, _ := strconv.Atoi(port)
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: n})
		if err != nil {
			return err
		}
		f, err := l.File()
		if err != nil {
			return err
		}
		fds = append(fds, int(f.Fd()))
	}
	if len(fds) > 0 {
		if err := unix.Sendmsg(to, []byte{0}, unix.UnixRights(fds...), nil, 0); err != nil {
			return fmt.Errorf("handing over its ports: %w", err)
		}
	}

	program, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	// Caught signals get their default back when the program is started; ignored ones would stay so.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT)
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return err
	}
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return err
	}
	return syscall.Exec(program, command, os.Environ())
}
