// Package contain starts programs that reach only what they need: agents that work while nobody looks, and all that
// they start. On Linux, bubblewrap puts each into namespaces of its own, with an empty home (issue "contained agents";
// cmd/deepwork/docs/reference/contain.md says what is promised).
//
// The concepts:
//
//   - Plan: what a contained program gets, as a value that can be stored: files, network, environment.
//   - Mount: one file or folder that it sees.
//   - Box: one contained program: its command line, and the connections that it is allowed.
//   - Check, Unavailable: whether programs can be contained here, or why not and what to do.
package contain

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/actor/process"
	"deepwork/catalog/hosts"
)

// A Plan says what a contained program gets. It is stored with an execution, so that its shim can carry it out.
type Plan struct {
	Bwrap   string     `json:"bwrap"`             // path of bubblewrap
	Version string     `json:"version"`           // its version
	Home    string     `json:"home"`              // an empty folder, made for this program
	Dir     string     `json:"dir"`               // working directory, absolute
	Mounts  []Mount    `json:"mounts"`            // in this order; everything else is missing
	Env     []string   `json:"env"`               // the whole environment
	Allow   hosts.List `json:"allow,omitempty"`   // reached through the proxy; none means no proxy
	Forward []int      `json:"forward,omitempty"` // ports of this machine that it reaches as its own
	// Alone makes the program the first process of its own, which saves one: it must wait for all that it starts.
	Alone bool `json:"alone,omitempty"`
}

// A Mount is a file or folder that a contained program sees.
type Mount struct {
	Path   string `json:"path"`             // where it sees it, absolute
	Source string `json:"source,omitempty"` // what it is outside; "" means an empty folder in memory
	Write  bool   `json:"write,omitempty"`
}

// Places of a contained program's own.
const (
	ownFolder = "/run/deepwork"
	ownSelf   = ownFolder + "/deepwork" // this program, which opens its ports and then becomes the program
	// Objects is the beginning of the paths of the objects of repositories.
	Objects = ownFolder + "/objects"
)

// ProxyPort is the port of the proxy in a contained program's own network.
const ProxyPort = 3128

// memory is the size of each folder in memory, in bytes.
const memory = "1073741824"

// systemFiles are what programs of the system need of /etc. It has nothing that only some users may read.
var systemFiles = []string{
	"alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "crypto-policies", "debian_version",
	"fonts", "group", "hosts", "inputrc", "java-17-openjdk", "java-21-openjdk", "ld.so.cache", "ld.so.conf",
	"ld.so.conf.d", "localtime", "locale.alias", "locale.conf", "magic", "mime.types", "nsswitch.conf", "os-release",
	"passwd", "pki", "profile", "protocols", "services", "ssl", "static", "terminfo", "timezone", "xattr.conf",
}

// New returns the plan of a program that works in a folder and gets only the system's programs.
func New(dir string) (*Plan, error) {
	bwrap, version, err := find()
	if err != nil {
		return nil, err
	}
	p := &Plan{Bwrap: bwrap, Version: version, Dir: dir, Home: process.Home()}
	if p.Home == "/" || !filepath.IsAbs(p.Home) {
		p.Home = "/home/agent"
	}

	p.Mounts = []Mount{{Path: "/usr", Source: "/usr"}}
	for _, name := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store",
		"/run/current-system/sw"} {
		if isThere(name) {
			p.Mounts = append(p.Mounts, Mount{Path: name, Source: name})
		}
	}
	for _, name := range systemFiles {
		if at := "/etc/" + name; isThere(at) {
			p.Mounts = append(p.Mounts, Mount{Path: at, Source: at})
		}
	}
	p.Mounts = append(p.Mounts, Mount{Path: "/tmp", Write: true}, Mount{Path: "/var/tmp", Write: true},
		Mount{Path: p.Home, Write: true})

	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	p.Mounts = append(p.Mounts, Mount{Path: ownSelf, Source: self})
	p.Env = append(Passed(basicEnv), "HOME="+p.Home, "TMPDIR=/tmp")
	return p, nil
}

// basicEnv are the variables that every program gets, if they are set.
var basicEnv = []string{
	"PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "TZ", "TERM", "COLORTERM", "NO_COLOR", "USER",
	"LOGNAME", "SHELL",
}

// Passed returns those of some variables that are set.
func Passed(names []string) (env []string) {
	for _, name := range names {
		if value, set := os.LookupEnv(name); set {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// Read lets the program read files and folders where they are.
func (p *Plan) Read(paths ...string) { p.add(false, paths) }

// Write lets the program write in folders where they are.
func (p *Plan) Write(paths ...string) { p.add(true, paths) }

func (p *Plan) add(write bool, paths []string) {
	for _, path := range paths {
		p.Mounts = append(p.Mounts, Mount{Path: path, Source: path, Write: write})
	}
}

// Program lets the program run another one, which may be outside of the system's folders: the file with what it
// leads to and, for a script of npm's, its package. It returns the path to run.
func (p *Plan) Program(path string) string {
	real := process.Resolved(path)
	if p.sees(real) {
		return path
	}
	whole := real
	for dir := filepath.Dir(real); dir != filepath.Dir(dir) && dir != p.Home; dir = filepath.Dir(dir) {
		if isThere(filepath.Join(dir, "package.json")) {
			whole = dir
			break
		}
	}
	p.Read(whole)
	return real
}

// sees reports whether the program sees a file or folder of the host, where it is.
func (p *Plan) sees(path string) bool {
	at := Mount{}
	for _, m := range p.Mounts { // the last one that contains it counts
		if process.Inside(m.Path, path) {
			at = m
		}
	}
	return at.Source != "" && at.Source == at.Path
}

// UseCache gives the program a folder for the caches of compilers and package managers, and for large temporary
// files. It creates the folder.
func (p *Plan) UseCache(folder string) error {
	if err := os.MkdirAll(filepath.Join(folder, "tmp"), 0o700); err != nil {
		return err
	}
	at := filepath.Join(p.Home, ".cache")
	p.Mounts = append(p.Mounts, Mount{Path: at, Source: folder, Write: true})
	p.Env = process.With(p.Env, "XDG_CACHE_HOME="+at, "GOPATH="+at+"/go", "GOFLAGS=-modcacherw",
		"npm_config_cache="+at+"/npm", "CARGO_HOME="+at+"/cargo", "TMPDIR="+at+"/tmp")
	return nil
}

// Reach lets the program connect to hosts, and to ports of this machine.
func (p *Plan) Reach(allow hosts.List, ports ...int) {
	for _, h := range allow {
		if !slices.Contains(p.Allow, h) {
			p.Allow = append(p.Allow, h)
		}
	}
	p.Forward = append(p.Forward, ports...)
	slices.Sort(p.Forward)
	p.Forward = slices.Compact(p.Forward)
	if len(p.Allow) == 0 {
		return
	}
	proxy := fmt.Sprintf("http://127.0.0.1:%d", p.proxyPort())
	p.Env = process.With(p.Env, "HTTP_PROXY="+proxy, "HTTPS_PROXY="+proxy, "http_proxy="+proxy, "https_proxy="+proxy,
		"NO_PROXY=127.0.0.1,localhost,::1", "no_proxy=127.0.0.1,localhost,::1", "NODE_USE_ENV_PROXY=1")
}

// proxyPort returns the port of the proxy, which is not one of those forwarded.
func (p *Plan) proxyPort() int {
	port := ProxyPort
	for slices.Contains(p.Forward, port) {
		port++
	}
	return port
}

// String says under what the program runs, such as "contained (bubblewrap 0.11.0; 3 hosts)".
func (p *Plan) String() string {
	network := "no network"
	if n := len(p.Allow); n == 1 {
		network = "1 host"
	} else if n > 1 {
		network = fmt.Sprintf("%d hosts", n)
	}
	if n := len(p.Forward); n == 1 {
		network += ", 1 port of this machine"
	} else if n > 1 {
		network += fmt.Sprintf(", %d ports of this machine", n)
	}
	return fmt.Sprintf("contained (bubblewrap %s; %s)", p.Version, network)
}

// check returns an error for a plan whose mounts are not what they were meant to be. A link in the place of one would
// lead to something else, and a folder of an agent's own would get a mount point at the end of one.
func (p *Plan) check() error {
	for i, m := range p.Mounts {
		if !filepath.IsAbs(m.Path) || filepath.Clean(m.Path) != m.Path {
			return fmt.Errorf("%q is not the absolute path of a mount", m.Path)
		}
		for _, outer := range p.Mounts[:i] {
			rel, err := filepath.Rel(outer.Path, m.Path)
			if err != nil || !filepath.IsLocal(rel) || rel == "." || outer.Source == "" || m.Source == "" {
				continue
			}
			// Only what is there already, and is no link, may be covered in a folder of the host.
			at := filepath.Join(outer.Source, rel)
			if fi, err := os.Lstat(at); err != nil || fi.Mode()&fs.ModeSymlink != 0 {
				return fmt.Errorf("%s cannot be covered in %s: it must be there, and not be a link", m.Path,
					outer.Source)
			}
			if real := process.Resolved(filepath.Dir(at)); real != process.Resolved(outer.Source) &&
				!process.Inside(process.Resolved(outer.Source), real) {
				return fmt.Errorf("%s leads out of %s by a link", at, outer.Source)
			}
		}
	}
	return nil
}

// arguments returns the arguments of bubblewrap, without the program.
func (p *Plan) arguments(filter int) []string {
	args := []string{
		"--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try",
		"--disable-userns", "--die-with-parent",
		"--cap-drop", "ALL", // root keeps them otherwise
		"--hostname", "contained",
		"--proc", "/proc",
	}
	// For root, files there could be written without any capability.
	for _, name := range []string{"sys", "bus", "irq", "fs", "sysrq-trigger"} {
		if at := "/proc/" + name; isThere(at) {
			args = append(args, "--ro-bind", at, at)
		}
	}
	args = append(args, "--dev", "/dev", "--size", memory, "--tmpfs", "/dev/shm", "--remount-ro", "/dev")

	for _, m := range p.Mounts {
		switch {
		case m.Source == "" && m.Write:
			args = append(args, "--size", memory, "--tmpfs", m.Path)
		case m.Source == "":
			args = append(args, "--tmpfs", m.Path, "--remount-ro", m.Path)
		case m.Write:
			args = append(args, "--bind", m.Source, m.Path)
		case m.link() != "":
			args = append(args, "--symlink", m.link(), m.Path)
		default:
			args = append(args, "--ro-bind", m.Source, m.Path)
		}
	}
	if p.Alone {
		args = append(args, "--as-pid-1")
	}
	return append(args, "--remount-ro", "/", "--chdir", p.Dir, "--seccomp", fmt.Sprint(filter))
}

// link returns where a folder of the system leads that is a link on this one, such as usr/bin for /bin.
func (m *Mount) link() string {
	if m.Path != m.Source || strings.Count(m.Path, "/") != 1 {
		return ""
	}
	target, _ := os.Readlink(m.Path)
	return target
}

// An Unavailable says why programs cannot be contained here, and what to do.
type Unavailable struct{ Why, Remedy string }

// Error implements error.
func (u *Unavailable) Error() string {
	return fmt.Sprintf("programs cannot be contained here: %s. %s", u.Why, u.Remedy)
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// outer is the remedy in a container.
const outer = "A container that was made for the agents alone contains them already"

// remedy tells apart why bubblewrap failed, by its own words first.
func remedy(said string) *Unavailable {
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(said, part) })
	}
	u := &Unavailable{Why: "bubblewrap failed: " + cmp.Or(strings.TrimSpace(said), "it said nothing")}
	switch {
	case has("No space left", "ENOSPC") && setting("user/max_user_namespaces") != "0" && has("_namespaces"):
		u.Why = "what is around this system, such as another bubblewrap, allows no user namespaces in it"
		u.Remedy = "Run deepwork outside of that"
	case has("No space left", "ENOSPC", "max_user_namespaces"):
		u.Why = "the system allows no more user namespaces (user.max_user_namespaces)"
		u.Remedy = "Allow them: sudo sysctl user.max_user_namespaces=15000"
	case has("Can't mount proc"):
		u.Why = "this is a container that hides parts of /proc, so no program in it can get a /proc of its own"
		u.Remedy = outer + "; or start the container with --security-opt systempaths=unconfined"
	case has("No permissions to create new namespace", "setting up uid map", "RTM_NEWADDR",
		"Creating new namespace failed", "Operation not permitted", "Permission denied"):
		switch {
		case setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
			u.Why = "AppArmor forbids bubblewrap to make user namespaces (kernel.apparmor_restrict_unprivileged_userns)"
			u.Remedy = "Load its profile for bubblewrap, once: sudo apt install apparmor-profiles && sudo cp " +
				"/usr/share/apparmor/extra-profiles/bwrap-userns-restrict /etc/apparmor.d/ && " +
				"sudo apparmor_parser -r /etc/apparmor.d/bwrap-userns-restrict"
		case setting("kernel/unprivileged_userns_clone") == "0":
			u.Why = "the system forbids user namespaces (kernel.unprivileged_userns_clone)"
			u.Remedy = "Allow them: sudo sysctl kernel.unprivileged_userns_clone=1"
		default:
			u.Why = "something around this system, such as a container's seccomp filter, forbids user namespaces (" +
				strings.TrimSpace(said) + ")"
			u.Remedy = outer + "; or start the container with --security-opt seccomp=unconfined"
		}
	case has("Unknown option"):
		u.Remedy = "Install version " + Oldest + " or later of bubblewrap"
	default:
		u.Remedy = "Correct that, and run deepwork contain check again"
	}
	return u
}

// setting returns the value of a sysctl, "" if the system does not have it.
func setting(name string) string {
	text, _ := os.ReadFile("/proc/sys/" + name)
	return strings.TrimSpace(string(text))
}
