package contain

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// denied are the system calls that a contained program does not get, in addition to what it lacks the rights for:
// those that make namespaces and mounts, those of the kernel's younger and less tried parts, and those that reach what
// has no namespace, such as the user's keyring.
var denied = []uint32{
	unix.SYS_ACCT, unix.SYS_ADD_KEY, unix.SYS_BPF, unix.SYS_CHROOT, unix.SYS_CLOCK_SETTIME, unix.SYS_DELETE_MODULE,
	unix.SYS_FINIT_MODULE, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSOPEN, unix.SYS_FSPICK, unix.SYS_INIT_MODULE,
	unix.SYS_KCMP, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_KEXEC_LOAD, unix.SYS_KEYCTL, unix.SYS_LOOKUP_DCOOKIE,
	unix.SYS_MOUNT, unix.SYS_MOUNT_SETATTR, unix.SYS_MOVE_MOUNT, unix.SYS_NFSSERVCTL, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_OPEN_TREE, unix.SYS_PERF_EVENT_OPEN, unix.SYS_PIVOT_ROOT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	unix.SYS_REBOOT, unix.SYS_REQUEST_KEY, unix.SYS_SETDOMAINNAME, unix.SYS_SETHOSTNAME, unix.SYS_SETNS,
	unix.SYS_SETTIMEOFDAY, unix.SYS_SWAPOFF, unix.SYS_SWAPON, unix.SYS_SYSLOG, unix.SYS_UMOUNT2,
	unix.SYS_USERFAULTFD, unix.SYS_VHANGUP,
}

// missing are the calls that programs try and do without if the kernel seems not to have them. The arguments of
// clone3 cannot be looked at.
var missing = []uint32{
	unix.SYS_CLONE3, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
}

// families are the kinds of sockets that a program gets.
var families = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

// terminal are the requests with which a program types at its terminal.
var terminal = []uint32{unix.TIOCSTI, unix.TIOCLINUX}

const (
	newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	// In struct seccomp_data, by seccomp(2).
	atNumber, atArchitecture, atFirst, atSecond = 0, 4, 16, 24

	otherABI = 0x40000000 // numbers from here on are those of x32
)

// filter returns the filter of system calls, as seccomp(2) takes it.
func filter() ([]byte, error) {
	architecture := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if architecture == 0 {
		return nil, &Unavailable{Why: "its filter of system calls is for amd64 and arm64, and this is " +
			runtime.GOARCH, Remedy: "Run deepwork on such a machine, or set contain: off"}
	}
	load := func(at uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: at, Size: 4} }
	fail := func(e unix.Errno) bpf.Instruction { return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(e)} }
	kill := bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS}
	allow := bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}

	program := []bpf.Instruction{
		load(atArchitecture),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: architecture, SkipTrue: 1},
		kill,
		load(atNumber),
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: otherABI, SkipTrue: 1},
		kill,
	}
	// on runs instructions for one call; they end it.
	on := func(call uint32, do ...bpf.Instruction) {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: call, SkipTrue: uint8(len(do))})
		program = append(program, do...)
	}
	for _, call := range denied {
		on(call, fail(unix.EPERM))
	}
	for _, call := range missing {
		on(call, fail(unix.ENOSYS))
	}
	for call, flags := range map[uint32]uint32{
		unix.SYS_CLONE: newNamespaces, unix.SYS_UNSHARE: newNamespaces | unix.CLONE_NEWTIME,
	} {
		on(call, load(atFirst), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: flags, SkipFalse: 1}, fail(unix.EPERM), allow)
	}
	for _, call := range []uint32{unix.SYS_SOCKET, unix.SYS_SOCKETPAIR} {
		on(call, append([]bpf.Instruction{load(atFirst)}, oneOf(families, allow, fail(unix.EAFNOSUPPORT))...)...)
	}
	on(unix.SYS_IOCTL, append([]bpf.Instruction{load(atSecond)}, oneOf(terminal, fail(unix.EPERM), allow)...)...)
	program = append(program, allow)

	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, fmt.Errorf("assembling the filter of system calls: %w", err)
	}
	out := &bytes.Buffer{}
	for _, i := range raw { // struct sock_filter
		if err := binary.Write(out, binary.NativeEndian, i); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// oneOf returns instructions that end a call in one way if what was loaded is one of some values, or else in another.
func oneOf(values []uint32, is, not bpf.Instruction) (program []bpf.Instruction) {
	for _, v := range values {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: v, SkipTrue: 1}, is)
	}
	return append(program, not)
}
