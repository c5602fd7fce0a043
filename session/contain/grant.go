package contain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"deepwork/actor/process"
	"deepwork/catalog/config"
	"deepwork/catalog/hosts"
)

// Grant lets the program reach what the config says, apart from the mode and the home. apart are folders that neither
// read nor write may touch.
func (p *Plan) Grant(ctx context.Context, c config.Contain, apart ...string) error {
	for i, paths := range [][]string{c.Read, c.Write} {
		for _, path := range paths {
			if err := CheckFolder(path, i == 1, apart...); err != nil {
				return fmt.Errorf("%s under contain: %w", []string{"read", "write"}[i], err)
			}
		}
		p.add(i == 1, paths)
	}
	allow, env, err := Resolve(ctx, c.Allow)
	if err != nil {
		return fmt.Errorf("allow under contain: %w", err)
	}
	p.Reach(allow, c.Forward...)
	p.Env = process.With(p.Env, env...)
	p.Env = process.With(p.Env, Passed(c.PassEnv)...)
	return nil
}

// CheckFolder returns why a folder, or a file that is only read, cannot be given to contained programs, or nil. It must
// be neither in one of the folders apart nor around it.
func CheckFolder(path string, write bool, apart ...string) error {
	fi, err := os.Stat(path)
	switch real := process.Resolved(path); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s does not exist: create it, or leave it out", path)
	case err != nil:
		return err
	case real != filepath.Clean(path):
		return fmt.Errorf("%s is a link, or in one: give the folder to which it leads, %s", path, real)
	case write && !fi.IsDir():
		return fmt.Errorf("%s is not a folder: give the folder in which it is", path)
	case process.Inside(path, process.Resolved(process.Home())):
		return fmt.Errorf("%s contains your whole home folder: give a folder in it", path)
	}
	for _, folder := range append([]string{"/proc", "/sys", "/dev"}, apart...) {
		if folder = process.Resolved(folder); process.Inside(folder, path) || process.Inside(path, folder) {
			return fmt.Errorf("%s must be neither in %s nor around it: give another folder", path, folder)
		}
	}
	return nil
}

// agentFolders are the folders of a home in which agents keep their logins, settings and conversations. Each is mounted
// whole: a mount point inside of one could be replaced by a link.
var agentFolders = []string{".claude", ".codex", ".gemini", ".cursor", ".config", ".local/share/opencode"}

// UseHome gives the program an agent's home, which it creates: a folder outside of it from which what agents keep is
// mounted into the program's own, empty one.
func (p *Plan) UseHome(folder string) error {
	for _, name := range agentFolders {
		source := filepath.Join(folder, name)
		if err := os.MkdirAll(source, 0o700); err != nil {
			return fmt.Errorf("making the agent's home: %w", err)
		}
		p.Mounts = append(p.Mounts, Mount{Path: filepath.Join(p.Home, name), Source: source, Write: true})
	}
	p.Env = process.With(p.Env, "CLAUDE_CONFIG_DIR="+filepath.Join(p.Home, ".claude"))
	return nil
}

// presetPatience limits how long a tool may take to say its hosts.
const presetPatience = 20 * time.Second

// presets are the commands with which tools say where they get packages from.
var presets = map[string][]string{
	"go":  {"go", "env", "GOPROXY", "GOSUMDB"},
	"npm": {"npm", "config", "get", "registry"},
	"pip": {"pip", "config", "list"},
}

var (
	packageURL = regexp.MustCompile(`https?://[^\s'"\\,|]+`)
	userInURL  = regexp.MustCompile(`(https?://)[^/@\s]*@`)
	pipIndex   = regexp.MustCompile(`(?m)\.index-url=.*$`)
	pipExtra   = regexp.MustCompile(`(?m)\.extra-index-url=.*$`)
)

// Resolve replaces the presets in a list of allowed hosts by those that the user's own tools name. It returns the
// variables that make these tools use the same hosts for a program which does not have the user's settings.
func Resolve(ctx context.Context, allow hosts.List) (all hosts.List, env []string, err error) {
	for _, item := range allow {
		if presets[item] == nil {
			all = append(all, item)
			continue
		}
		urls, more, err := ask(ctx, item)
		if err != nil {
			return nil, nil, fmt.Errorf("it has %s: %w; give the hosts that it uses in its place, such as "+
				"packages.example.com:443", item, err)
		}
		for _, url := range urls {
			host, err := hostOf(url)
			if err != nil {
				return nil, nil, fmt.Errorf("it has %s, which connects to %s: %w", item, url, err)
			}
			all = append(all, host)
		}
		env = append(env, more...)
	}
	return all, env, nil
}

// ask returns the URLs from which a tool of the user gets packages, without passwords, and the variables that say so.
// The tool is asked in the home folder, where no project has settings.
func ask(ctx context.Context, tool string) (urls, env []string, err error) {
	command := presets[tool]
	program, err := process.Look(command[0])
	if err != nil {
		return nil, nil, errors.New("that is not installed here")
	}
	ctx, cancel := context.WithTimeout(ctx, presetPatience)
	defer cancel()
	said, err := process.Run(ctx, process.Spec{Command: append([]string{program}, command[1:]...), Dir: process.Home(),
		Env: process.With(os.Environ(), "GOTOOLCHAIN=local")})
	if err != nil {
		return nil, nil, fmt.Errorf("%s failed: %w", strings.Join(command, " "), err)
	}
	text := strings.TrimSpace(userInURL.ReplaceAllString(string(said.Stdout), "$1"))

	switch tool {
	case "go":
		proxy, sums, _ := strings.Cut(text, "\n")
		env = []string{"GOPROXY=" + proxy, "GOSUMDB=" + sums}
		if name, _, _ := strings.Cut(sums, "+"); packageURL.FindString(sums) == "" && name != "off" && name != "" {
			text += " https://" + name
		}
	case "npm":
		env = []string{"npm_config_registry=" + text}
	case "pip":
		index := packageURL.FindString(pipIndex.FindString(text)) // the one that counts is first
		extra := packageURL.FindAllString(strings.Join(pipExtra.FindAllString(text, -1), " "), -1)
		env = []string{"PIP_INDEX_URL=" + index, "PIP_EXTRA_INDEX_URL=" + strings.Join(extra, " ")}
		if text = ""; index != "" {
			text = index + " " + strings.Join(extra, " ")
		}
	}
	if urls = packageURL.FindAllString(text, -1); urls == nil {
		return nil, nil, fmt.Errorf("%s names no host", strings.Join(command, " "))
	}
	return urls, env, nil
}

// hostOf returns the host of a URL, with its port.
func hostOf(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", errors.New("that is not a URL")
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	return hosts.Parse(net.JoinHostPort(u.Hostname(), port))
}
