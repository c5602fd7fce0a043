package contain

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"deepwork/actor/process"
)

// A Box is one contained program. The caller starts Command with Env and Files, which that closes, and calls Close when
// the program has ended, or could not be started.
type Box struct {
	Command []string
	Env     []string
	Files   []*os.File // that it inherits, from number 3 on

	ports []int          // on which it is answered, in the order in which it opens them; 0 is the proxy
	hand  *net.UnixConn  // on which it hands them over
	taker sync.WaitGroup // the goroutine that takes them
	relay *relay
}

// Open prepares a contained program. The refused connections are passed to a function, which may be called from several
// goroutines at once.
func (p *Plan) Open(command []string, refused func(Refusal)) (_ *Box, err error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	filter, err := filter()
	if err != nil {
		return nil, err
	}
	b := &Box{ports: slices.Clone(p.Forward), Env: p.Env, relay: newRelay(p.Allow, refused)}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	inside := slices.Clone(p.Forward)
	if len(p.Allow) > 0 {
		b.ports, inside = append(b.ports, 0), append(inside, p.proxyPort())
	}

	const theirs, filterFile, argumentsFile = 3, 4, 5 // their numbers inside
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("making a socket: %w", err)
	}
	ours := os.NewFile(uintptr(pair[0]), "ports")
	b.Files = []*os.File{os.NewFile(uintptr(pair[1]), "ports inside")}
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		return nil, fmt.Errorf("using a socket: %w", err)
	}
	b.hand = conn.(*net.UnixConn)
	args := p.arguments(filterFile)
	for _, data := range [][]byte{filter, []byte(strings.Join(args, "\x00") + "\x00")} {
		f, err := memoryFile(data)
		if err != nil {
			return nil, err
		}
		b.Files = append(b.Files, f)
	}
	var ports []string
	for _, port := range inside {
		ports = append(ports, strconv.Itoa(port))
	}
	// The program is asked to end by a signal to its group. Bubblewrap must not end before it, which would kill it.
	b.Command = append([]string{"/bin/sh", "-c", `trap "" TERM; exec "$@"`, "sh",
		p.Bwrap, "--args", strconv.Itoa(argumentsFile), "--",
		ownSelf, insideCommand, strconv.Itoa(theirs), strings.Join(ports, ",") + ";"}, command...)
	b.taker.Go(b.take)
	return b, nil
}

// memoryFile returns a file in memory, at its beginning.
func memoryFile(data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("deepwork", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	if _, err = f.Write(data); err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("filling a file in memory: %w", err)
	}
	return f, nil
}

// take takes over the ports of the program, when it has opened them, and answers on them until Close. If it opens none,
// it says why itself, and ends.
func (b *Box) take() {
	if len(b.ports) == 0 {
		return
	}
	space := make([]byte, unix.CmsgSpace(4*len(b.ports)))
	_, used, _, _, err := b.hand.ReadMsgUnix(make([]byte, 1), space)
	if err != nil {
		return
	}
	messages, err := unix.ParseSocketControlMessage(space[:used])
	if err != nil || len(messages) != 1 {
		return
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "port")
		if i < len(b.ports) && err == nil {
			if l, err := net.FileListener(f); err == nil {
				b.relay.serve(l, b.ports[i])
			}
		}
		f.Close()
	}
}

// Close ends the connections of the program, and waits for that.
func (b *Box) Close() {
	for _, f := range b.Files {
		f.Close() // closing twice is harmless
	}
	if b.hand != nil {
		b.hand.Close()
	}
	b.taker.Wait()
	b.relay.close()
}

// Run runs a contained program until it ends, and returns how, as process.Run does.
func (p *Plan) Run(ctx context.Context, spec process.Spec, refused func(Refusal)) (process.Result, error) {
	b, err := p.Open(spec.Command, refused)
	if err != nil {
		return process.Result{ExitCode: -1}, err
	}
	defer b.Close()
	spec.Command, spec.Env, spec.Files, spec.Dir = b.Command, b.Env, b.Files, "/"
	return process.Run(ctx, spec)
}

// Attach runs a contained program at the terminal of this process until it ends.
func (p *Plan) Attach(ctx context.Context, command []string, refused func(Refusal)) error {
	b, err := p.Open(command, refused)
	if err != nil {
		return err
	}
	defer b.Close()
	cmd := exec.CommandContext(ctx, b.Command[0], b.Command[1:]...)
	cmd.Dir, cmd.Env, cmd.ExtraFiles = "/", b.Env, b.Files
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// bubblewraps are the places of bubblewrap: distributions allow it user namespaces by its path.
var bubblewraps = []string{"/usr/bin/bwrap", "/run/current-system/sw/bin/bwrap"}

// Oldest is the first version of bubblewrap that has everything this program uses.
const Oldest = "0.8"

// find returns the system's bubblewrap, or an *Unavailable.
func find() (path, version string, err error) {
	for _, path := range bubblewraps {
		out, err := exec.Command(path, "--version").Output()
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		version := strings.TrimSpace(strings.TrimPrefix(string(out), "bubblewrap "))
		var major, minor int
		if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
			return "", "", &Unavailable{Why: fmt.Sprintf("%s does not say its version: %q", path, version),
				Remedy: "Install bubblewrap " + Oldest + " or later in its place"}
		} else if major == 0 && minor < 8 {
			return "", "", &Unavailable{Why: fmt.Sprintf("%s has the version %s, and %s or later is needed", path,
				version, Oldest), Remedy: "Install a newer one, as Debian 12, Ubuntu 23.04 and later have it"}
		}
		return path, version, nil
	}
	return "", "", &Unavailable{Why: "bubblewrap is not installed (" + bubblewraps[0] + ")",
		Remedy: "Install it: sudo apt install bubblewrap, sudo dnf install bubblewrap or sudo pacman -S bubblewrap"}
}

// checkPatience limits a try.
const checkPatience = 10 * time.Second

// Check contains a program that does nothing, and returns an *Unavailable if that is not possible. It takes about
// 20 ms.
func Check(ctx context.Context) (*Plan, error) {
	p, err := New("/")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	p.Alone = true
	_, err = p.Run(ctx, process.Spec{Command: []string{"true"}}, func(Refusal) {})
	if failed, ok := errors.AsType[*process.Error](err); ok && ctx.Err() == nil {
		return nil, remedy(failed.Tail)
	}
	return p, err
}
