package contain

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
	"deepwork/catalog/hosts"
)

// A scene is what attacks are about: a user's home on the host with a repository and an agent's worktree in it, and
// servers of the host.
type scene struct {
	Home     string // with everything below
	Worktree string // of the agent: it writes there
	Repo     string // of the user
	PID      int    // of a process of the user
	Loopback string // TCP server of the host
	LoopbackV6,
	Neighbour string // the same on another address of the host; "" if it has none
	UDP      string
	Socket   string // unix socket, a path
	Abstract string
	Proxied  int // port of the host that is reached by forward; 0 means that it is not
}

// secret is what attacks look for.
const secret = "the-host's-secret"

// attacks are tried inside, where each must fail, and outside, where most come through.
var attacks = map[string]func(s *scene) error{
	// Files.
	"read a key in the home":    func(s *scene) error { return readSecret(s.Home, ".ssh", "id") },
	"read another folder":       func(s *scene) error { return readSecret(s.Home, "other", "notes") },
	"read the server's state":   func(s *scene) error { return readSecret(s.Home, "state", "board.db") },
	"read the main checkout":    func(s *scene) error { return readSecret(s.Repo, "main.txt") },
	"read the real git config":  func(s *scene) error { return readSecret(s.Repo, ".git", "config") },
	"read through the worktree": func(s *scene) error { return readSecret(s.Worktree, "..", "other", "notes") },
	"read by a link": func(s *scene) error {
		link := filepath.Join(s.Worktree, "link")
		os.Remove(link)
		return first(os.Symlink(filepath.Join(s.Home, ".ssh"), link), readSecret(link, "id"))
	},
	"read by a hard link": func(s *scene) error {
		link := filepath.Join(s.Worktree, "hard")
		os.Remove(link)
		return first(os.Link(filepath.Join(s.Home, ".ssh", "id"), link), readSecret(link))
	},
	"read the shadow file": func(s *scene) error { return readAny("/etc/shadow") },
	"read the old root":    func(s *scene) error { return readSecret("/oldroot"+s.Home, ".ssh", "id") },
	"read the host's tmp":  func(s *scene) error { return readSecret(os.Getenv("HOST_TMP_FILE")) },
	"read shared memory":   func(s *scene) error { return readSecret(os.Getenv("HOST_SHM_FILE")) },
	"write a program":      func(s *scene) error { return writeAny("/usr/bin/deepwork-attack") },
	"replace deepwork": func(s *scene) error {
		self, err := os.Readlink("/proc/self/exe")
		return first(err, os.Rename(self, self+".old"))
	},
	"write deepwork": func(s *scene) error {
		self, err := os.Executable()
		return first(err, os.Chmod(self, 0o755))
	},
	"write the git pointer":  func(s *scene) error { return appendTo(filepath.Join(s.Worktree, ".git")) },
	"rename the git pointer": func(s *scene) error { return renamed(filepath.Join(s.Worktree, ".git")) },
	"remove the git pointer": func(s *scene) error { return os.Remove(filepath.Join(s.Worktree, ".git")) },
	"write a job":            func(s *scene) error { return appendTo(s.Worktree + "/.deepwork/jobs/job.yml") },
	"rename the jobs":        func(s *scene) error { return renamed(filepath.Join(s.Worktree, ".deepwork", "jobs")) },
	"rename .deepwork":       func(s *scene) error { return renamed(filepath.Join(s.Worktree, ".deepwork")) },
	"write a hook":           func(s *scene) error { return hostWrite(s, s.Repo+"/.git/hooks/pre-commit") },
	"write the git config":   func(s *scene) error { return hostWrite(s, s.Repo+"/.git/config") },
	"move main":              func(s *scene) error { return hostWrite(s, s.Repo+"/.git/refs/heads/main") },
	"write the packed refs":  func(s *scene) error { return hostWrite(s, s.Repo+"/.git/packed-refs") },
	"write the objects":      func(s *scene) error { return hostWrite(s, filepath.Join(Objects, "poison")) },
	"write in /etc":          func(s *scene) error { return writeAny("/etc/deepwork-attack") },
	"write at the root":      func(s *scene) error { return writeAny("/deepwork-attack") },
	"write in /dev":          func(s *scene) error { return writeAny("/dev/deepwork-attack") },
	"write in /sys":          func(s *scene) error { return appendTo("/sys/kernel/mm/transparent_hugepage/enabled") },
	"open core_pattern":      func(s *scene) error { return appendTo("/proc/sys/kernel/core_pattern") },
	"open sysrq-trigger":     func(s *scene) error { return appendTo("/proc/sysrq-trigger") },
	"open a sysctl of the net": func(s *scene) error {
		return appendTo("/proc/sys/net/ipv4/ip_forward")
	},
	"make a device": func(s *scene) error {
		return unix.Mknod(filepath.Join(s.Worktree, "device"), unix.S_IFBLK|0o600, int(unix.Mkdev(259, 0)))
	},
	"use what pid 1 has open": func(s *scene) error { return openFilesOf(1, s) },
	"use what it inherited": func(s *scene) error {
		for fd := 3; fd < 64; fd++ {
			if unix.Fchdir(fd) == nil {
				return nil
			}
		}
		return errors.New("no folder is open")
	},

	// Processes.
	"see a process":         func(s *scene) error { return unix.Kill(s.PID, 0) },
	"end a process":         func(s *scene) error { return unix.Kill(s.PID, syscall.SIGCONT) },
	"read its environment":  func(s *scene) error { return readAny(fmt.Sprintf("/proc/%d/environ", s.PID)) },
	"read its command line": func(s *scene) error { return processNamed("HOST_PROCESS") },
	"trace a process": func(s *scene) error {
		runtime.LockOSThread()
		err := syscall.PtraceAttach(s.PID)
		if err == nil {
			var status syscall.WaitStatus
			syscall.Wait4(s.PID, &status, 0, nil)
			err = syscall.PtraceDetach(s.PID)
		}
		return err
	},
	"reach the host by its root": func(s *scene) error { return readSecret("/proc/1/root"+s.Home, ".ssh", "id") },
	"gain rights": func(s *scene) error {
		on, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
		if err == nil && on == 1 {
			err = errors.New("no new rights")
		}
		return err
	},
	"have capabilities": func(s *scene) error {
		text, err := os.ReadFile("/proc/self/status")
		if err == nil && strings.Contains(string(text), "CapBnd:\t0000000000000000") {
			err = errors.New("it has none")
		}
		return err
	},
	"type at the terminal": func(s *scene) error {
		return unix.IoctlSetPointerInt(0, unix.TIOCSTI, 'x')
	},

	// Network.
	"tcp to the host's loopback":    func(s *scene) error { return dial("tcp", s.Loopback) },
	"tcp to its loopback, IPv6":     func(s *scene) error { return dial("tcp", s.LoopbackV6) },
	"tcp to its address":            func(s *scene) error { return dial("tcp", s.Neighbour) },
	"udp to its loopback":           func(s *scene) error { return dial("udp", s.UDP) },
	"tcp to the internet":           func(s *scene) error { return dial("tcp", "192.0.2.1:443") },
	"metadata of a cloud":           func(s *scene) error { return dial("tcp", "169.254.169.254:80") },
	"a name by DNS":                 func(s *scene) error { return dial("udp", "9.9.9.9:53") },
	"an abstract socket":            func(s *scene) error { return dial("unix", s.Abstract) },
	"a socket by its path":          func(s *scene) error { return dial("unix", s.Socket) },
	"an interface of the host":      func(s *scene) error { return interfaces() },
	"proxy: loopback by name":       proxied("localhost"),
	"proxy: loopback":               proxied("127.0.0.1"),
	"proxy: loopback, short":        proxied("127.1"),
	"proxy: loopback, decimal":      proxied("2130706433"),
	"proxy: loopback, octal":        proxied("0177.0.0.1"),
	"proxy: loopback, hexadecimal":  proxied("0x7f000001"),
	"proxy: loopback, IPv6":         proxied("[::1]"),
	"proxy: loopback, mapped":       proxied("[::ffff:127.0.0.1]"),
	"proxy: any address":            proxied("0.0.0.0"),
	"proxy: a suffix":               proxied("allowed.example.evil.localhost"),
	"proxy: a prefix":               proxied("evilallowed.example"),
	"proxy: a user part":            proxied("allowed.example:443@localhost"),
	"proxy: a plain request":        plainRequest("http://%s/"),
	"proxy: a plain user part":      plainRequest("http://allowed.example@%s/"),
	"proxy: a header of its own":    plainRequest("http://allowed.example/\r\nHost: %s"),
	"proxy: the name's second dot":  proxied("localhost."),
	"proxy: a zone":                 proxied("[::1%25lo]"),
	"proxy: another port, allowed":  func(s *scene) error { return connectBy("allowed.example:22") },
	"proxy: metadata":               func(s *scene) error { return connectBy("169.254.169.254:80") },
	"proxy: an allowed host inside": func(s *scene) error { return connectBy("inside.example:443") },

	// System calls.
	"unshare": func(s *scene) error { return unix.Unshare(unix.CLONE_NEWUSER) },
	"clone": func(s *scene) error {
		return exec.Command("/usr/bin/unshare", "--user", "true").Run()
	},
	"clone3": func(s *scene) error {
		args := struct{ flags, rest [11]uint64 }{}
		args.flags[0] = unix.CLONE_NEWUSER
		pid, _, e := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), 88, 0)
		if e == 0 && pid == 0 {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
		return errno(e)
	},
	"mount": func(s *scene) error {
		return first(unix.Mount("none", s.Worktree, "tmpfs", 0, ""), unix.Unmount(s.Worktree, 0))
	},
	"open a mount": func(s *scene) error {
		_, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE)
		return err
	},
	"unmount": func(s *scene) error { return unix.Unmount(filepath.Join(s.Worktree, ".git"), unix.MNT_DETACH) },
	"enter a namespace": func(s *scene) error {
		fd, err := unix.Open("/proc/1/ns/mnt", unix.O_RDONLY, 0)
		return first(err, unix.Setns(fd, 0))
	},
	"chroot":   func(s *scene) error { return unix.Chroot("/") },
	"io_uring": func(s *scene) error { return call(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&[256]byte{}))) },
	"the keyring": func(s *scene) error {
		_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, true)
		return err
	},
	"bpf": func(s *scene) error {
		return call(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&[]uint32{2, 4, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0}[0])), 48)
	},
	"perf":        func(s *scene) error { return call(unix.SYS_PERF_EVENT_OPEN, 0, 0, ^uintptr(0), ^uintptr(0), 0) },
	"userfaultfd": func(s *scene) error { return call(unix.SYS_USERFAULTFD, 1) },
	"vsock":       func(s *scene) error { return socket(unix.AF_VSOCK, unix.SOCK_STREAM) },
	"af_alg":      func(s *scene) error { return socket(unix.AF_ALG, unix.SOCK_SEQPACKET) },
	"packets":     func(s *scene) error { return socket(unix.AF_PACKET, unix.SOCK_RAW) },
	"raw packets": func(s *scene) error { return socket(unix.AF_INET, unix.SOCK_RAW) },
	"the clock":   func(s *scene) error { return unix.ClockSettime(unix.CLOCK_REALTIME, &unix.Timespec{Nsec: -1}) },
	"the host's name": func(s *scene) error {
		name, _ := os.Hostname()
		return unix.Sethostname([]byte(name))
	},
	"32-bit calls": machineCode(0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3), // mov eax, 20; int 0x80; ret
	"x32 calls":    func(s *scene) error { return call(0x40000000 + unix.SYS_GETPID) },
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func errno(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

func call(number uintptr, args ...uintptr) error {
	args = append(args, 0, 0, 0, 0, 0, 0)
	_, _, e := unix.Syscall6(number, args[0], args[1], args[2], args[3], args[4], args[5])
	return errno(e)
}

func socket(family, kind int) error {
	fd, err := unix.Socket(family, kind, 0)
	return first(err, unix.Close(fd))
}

func readSecret(path ...string) error {
	text, err := os.ReadFile(filepath.Join(path...))
	if err == nil && !strings.Contains(string(text), secret) {
		err = errors.New("it has no secret")
	}
	return err
}

func readAny(path string) error {
	text, err := os.ReadFile(path)
	if err == nil && len(text) == 0 {
		err = errors.New("it is empty")
	}
	return err
}

func writeAny(path string) error {
	return first(os.WriteFile(path, nil, 0o644), os.Remove(path))
}

func appendTo(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

func renamed(path string) error {
	return first(os.Rename(path, path+".old"), os.Rename(path+".old", path))
}

// hostWrite writes a file of the host: what the test looks at afterwards is the host's file.
func hostWrite(s *scene, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte("attack\n"), 0o644); err != nil {
		return err
	}
	if os.Getenv(insideEnv) != "" && !strings.HasPrefix(path, Objects) {
		return errors.New("it is the agent's own") // the test checks the host's
	}
	return nil
}

func processNamed(text string) error {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, at := range all {
		if env, err := os.ReadFile(at); err == nil && strings.Contains(string(env), text+"=") {
			return nil
		}
	}
	return errors.New("it is not among the processes")
}

func openFilesOf(pid int, s *scene) error {
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	for _, f := range all {
		at := fmt.Sprintf("/proc/%d/fd/%s", pid, f.Name())
		if readSecret(at+s.Home, ".ssh", "id") == nil {
			return nil
		}
		if to, err := os.Readlink(at); err == nil && strings.HasPrefix(to, "/") && filepath.Dir(to) != "/dev" {
			return nil
		}
	}
	return cmpErr(err, errors.New("nothing of the host is open"))
}

func cmpErr(errs ...error) error { return first(errs...) }

func dial(network, address string) error {
	if address == "" {
		return errors.New("the host has none")
	}
	conn, err := net.DialTimeout(network, address, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("x\n")); err != nil {
		return err
	}
	text, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.Contains(text, secret) {
		err = errors.New("somebody else answers")
	}
	return err
}

func interfaces() error {
	all, err := net.Interfaces()
	for _, i := range all {
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
			return nil
		}
	}
	return cmpErr(err, errors.New("there is only its own loopback"))
}

// proxied returns an attack that asks the proxy for the host's server by a name for its address.
func proxied(host string) func(*scene) error {
	return func(s *scene) error {
		_, port, _ := net.SplitHostPort(s.Loopback)
		return connectBy(host + ":" + port)
	}
}

func connectBy(target string) error {
	return throughProxy("CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n")
}

func plainRequest(form string) func(*scene) error {
	return func(s *scene) error {
		return throughProxy("GET " + fmt.Sprintf(form, s.Loopback) + " HTTP/1.1\r\nHost: allowed.example\r\n\r\n")
	}
}

// throughProxy sends a request to the proxy. What comes after it is for the server to which the proxy has connected.
func throughProxy(request string) error {
	conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", ProxyPort), time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * time.Second))
	io.WriteString(conn, request+"x\n")
	text, _ := io.ReadAll(conn)
	if !strings.Contains(string(text), secret) && !strings.HasPrefix(string(text), "HTTP/1.1 200") {
		return fmt.Errorf("the proxy answers %q", strings.SplitN(string(text), "\r\n", 2)[0])
	}
	return nil
}

// machineCode returns an attack that runs code for amd64.
func machineCode(code ...byte) func(*scene) error {
	return func(*scene) error {
		if runtime.GOARCH != "amd64" {
			return errors.New("it is for another processor")
		}
		page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return err
		}
		copy(page, code)
		if err := unix.Mprotect(page, unix.PROT_READ|unix.PROT_EXEC); err != nil {
			return err
		}
		at := uintptr(unsafe.Pointer(&page[0]))
		function := &at
		(*(*func())(unsafe.Pointer(&function)))()
		return nil
	}
}

const (
	attackEnv = "CONTAIN_ATTACK" // the name of the attack that this process tries
	sceneEnv  = "CONTAIN_SCENE"
	insideEnv = "CONTAIN_INSIDE"
)

// init tries an attack in a process of its own, and says how that went.
func init() {
	name := os.Getenv(attackEnv)
	if name == "" {
		return
	}
	var s scene
	if err := json.Unmarshal([]byte(os.Getenv(sceneEnv)), &s); err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
	if err := attacks[name](&s); err != nil {
		fmt.Println("held:", err)
		os.Exit(1)
	}
	fmt.Println("came through")
	os.Exit(0)
}

// newScene makes a home, and servers of the host until the test's end.
func newScene(t *testing.T) *scene {
	home := t.TempDir()
	testkit.Must(t, os.Chmod(home, 0o755))
	t.Setenv("HOME", home)
	s := &scene{Home: home, Repo: filepath.Join(home, "repo"), Worktree: filepath.Join(home, "work", "repo"),
		Socket: filepath.Join(home, "socket"), Abstract: "@deepwork-attack-" + filepath.Base(filepath.Dir(home))}
	testkit.WriteAll(t, home, map[string]string{
		".ssh/id": secret, "other/notes": secret, "state/board.db": secret, "repo/main.txt": secret,
		"work/repo/.deepwork/jobs/job.yml": "name: job\n",
		"work/repo/.git":                   "gitdir: " + s.Repo + "/.git/worktrees/repo\n",
		"repo/.git/config":                 secret, "repo/.git/hooks/README": "x",
		"repo/.git/objects/ab/cd":   "object\n",
		"repo/.git/refs/heads/main": "0123\n", "private/HEAD": "ref: refs/heads/work\n",
	})

	serve := func(network, address string) string {
		l, err := net.Listen(network, address)
		if err != nil {
			return ""
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				io.WriteString(conn, secret+"\n")
				conn.Close()
			}
		}()
		return l.Addr().String()
	}
	s.Loopback = serve("tcp", "127.0.0.1:0")
	s.LoopbackV6 = serve("tcp", "[::1]:0")
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses {
		if ip := a.(*net.IPNet).IP; s.Neighbour == "" && ip.IsGlobalUnicast() && ip.To4() != nil {
			s.Neighbour = serve("tcp", ip.String()+":0")
		}
	}
	serve("unix", s.Socket)
	serve("unix", s.Abstract)
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	testkit.Must(t, err)
	t.Cleanup(func() { udp.Close() })
	s.UDP = udp.LocalAddr().String()
	go func() {
		for buf := make([]byte, 10); ; {
			_, from, err := udp.ReadFrom(buf)
			if err != nil {
				return
			}
			udp.WriteTo([]byte(secret+"\n"), from)
		}
	}()

	sleeper := exec.Command("sleep", "600")
	sleeper.Env = []string{"HOST_PROCESS=1"}
	testkit.Must(t, sleeper.Start())
	t.Cleanup(func() {
		sleeper.Process.Kill()
		sleeper.Wait()
	})
	s.PID = sleeper.Process.Pid
	return s
}

// plan returns how the agent of the scene is contained.
func (s *scene) plan(t *testing.T) *Plan {
	p := testkit.Get(New(s.Worktree)).Must(t)
	p.Write(s.Worktree)
	p.Read(filepath.Join(s.Worktree, ".git"), filepath.Join(s.Worktree, ".deepwork"))
	p.Mounts = append(p.Mounts, Mount{Path: filepath.Join(s.Repo, ".git"), Source: filepath.Join(s.Home, "private"),
		Write: true}, Mount{Path: Objects, Source: filepath.Join(s.Repo, ".git", "objects")})
	p.Reach(hosts.List{"allowed.example:443", "inside.example:443"})
	return p
}

// needContain skips a test where nothing can be contained, or fails it where that must work.
func needContain(t *testing.T) {
	t.Helper()
	_, err := Check(context.Background())
	if _, ok := errors.AsType[*Unavailable](err); ok && os.Getenv("DEEPWORK_TEST_CONTAIN_REQUIRED") == "" {
		t.Skip(err)
	}
	testkit.Must(t, err)
}

// env returns the environment of an attack.
func (s *scene) env(t *testing.T, name string) []string {
	text := testkit.Get(json.Marshal(s)).Must(t)
	return []string{attackEnv + "=" + name, sceneEnv + "=" + string(text), "PATH=" + os.Getenv("PATH"),
		"HOST_TMP_FILE=" + filepath.Join(os.TempDir(), "deepwork-attack", "file"),
		"HOST_SHM_FILE=/dev/shm/deepwork-attack"}
}

// Everything that an agent could try is held inside. Outside, enough of it comes through: the attacks are real.
func TestAttacksAreHeld(t *testing.T) {
	needContain(t)
	if os.Getuid() == 0 && os.Getenv("CONTAIN_AS_USER") == "" {
		t.Run("as a user", asUser)
	}
	testkit.Write(t, filepath.Join(os.TempDir(), "deepwork-attack", "file"), secret)
	shm := os.WriteFile("/dev/shm/deepwork-attack", []byte(secret), 0o644)
	t.Cleanup(func() {
		os.RemoveAll(filepath.Join(os.TempDir(), "deepwork-attack"))
		os.Remove("/dev/shm/deepwork-attack")
	})

	s := newScene(t)
	p := s.plan(t)
	t.Run("inside", func(t *testing.T) {
		for name := range attacks {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if name == "read shared memory" && shm != nil {
					t.Skip(shm)
				}
				own := *p
				own.Env = append(s.env(t, name), insideEnv+"=1")
				r, err := own.Run(t.Context(), process.Spec{Command: []string{ownSelf}}, func(Refusal) {})
				testkit.True(t, r.ExitCode != 0, "it came through: %s%s", r.Stdout, r.Stderr)
				// The filter kills some.
				held := strings.HasPrefix(string(r.Stdout), "held:") || r.Signal != "" || r.ExitCode > 128
				testkit.True(t, held, "it was not tried: %v %s%s", err, r.Stdout, r.Stderr)
			})
		}
	})
	for path, want := range map[string]string{".git/config": secret, ".git/refs/heads/main": "0123\n",
		".git/objects/ab/cd": "object\n"} {
		now := testkit.Get(os.ReadFile(filepath.Join(s.Repo, path))).Must(t)
		testkit.Equal(t, string(now), want, "the host's", path)
	}
	for _, path := range []string{"hooks/pre-commit", "packed-refs", "objects/poison"} {
		_, err := os.Lstat(filepath.Join(s.Repo, ".git", path))
		testkit.FailsWith(t, err, fs.ErrNotExist, "the host's", path)
	}

	self := testkit.Get(os.Executable()).Must(t)
	through := 0
	for name := range attacks {
		if strings.HasPrefix(name, "write") || name == "replace deepwork" {
			continue // they would change the host
		}
		cmd := exec.Command(self)
		cmd.Env, cmd.Dir = append(s.env(t, name), "HOME="+s.Home), s.Worktree
		if out, err := cmd.CombinedOutput(); err == nil && strings.HasPrefix(string(out), "came through") {
			through++
		}
	}
	testkit.True(t, through >= 25, "only %d of %d attacks come through without containment", through, len(attacks))
	t.Logf("%d attacks are held inside; %d come through outside", len(attacks), through)
}

// asUser runs the attacks as a user without rights.
func asUser(t *testing.T) {
	dir := testkit.Get(os.MkdirTemp("", "contain-user-*")).Must(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	testkit.Must(t, os.Chmod(dir, 0o755))
	self := testkit.Get(os.ReadFile(testkit.Get(os.Executable()).Must(t))).Must(t)
	binary := filepath.Join(dir, "contain.test")
	testkit.Must(t, os.WriteFile(binary, self, 0o755))
	home := filepath.Join(dir, "home")
	testkit.Must(t, first(os.Mkdir(home, 0o755), os.Chown(home, 65534, 65534)))

	cmd := exec.Command(binary, "-test.run=^TestAttacksAreHeld$", "-test.v")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home, "CONTAIN_AS_USER=1",
		"DEEPWORK_TEST_CONTAIN_REQUIRED=" + os.Getenv("DEEPWORK_TEST_CONTAIN_REQUIRED")}
	cmd.Dir = home
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	testkit.True(t, err == nil && strings.Contains(string(out), "--- PASS: TestAttacksAreHeld"), "%v\n%s", err, out)
}
