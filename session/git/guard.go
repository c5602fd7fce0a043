package git

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"deepwork/actor/process"
	"deepwork/actor/xslices"
)

// inert overrides settings that would run a program, for commands that do not need the user's programs
// either.
var inert = []string{
	"core.sshCommand=false", "core.askPass=false", "core.editor=false", "core.alternateRefsCommand=false",
	"core.pager=false",
	"credential.helper=", "diff.external=false", "gpg.program=false", "log.showSignature=false", "protocol.allow=never",
	"fetch.bundleURI=",
}

// driver merges a file as git does without a driver.
const driver = "git merge-file --marker-size=%L -L ours -L base -L theirs %A %O %B || exit 1"

// programs are the settings with which git, or Git LFS, starts a program or gives the user's credentials to
// somebody, and what overrides them if only the repository's config has them, not the user's. One setting
// cannot remove another.
var programs = []struct{ names, instead string }{
	{`^core\.sshcommand$`, "ssh"},
	{`^core\.askpass$`, os.Getenv("SSH_ASKPASS")},
	{`^core\.alternaterefscommand$`, "false"},
	{`^diff\.(external|.*\.(command|textconv))$`, "false"},
	{`^merge\.default$`, "text"},
	{`^merge\..*\.driver$`, driver},
	{`^gpg\.(openpgp\.)?program$`, "gpg"},
	{`^gpg\.x509\.program$`, "gpgsm"},
	{`^gpg\.ssh\.program$`, "ssh-keygen"},
	{`^gpg\.ssh\.defaultkeycommand$`, "false"},
	{`^lfs\.(customtransfer\..*\.path|extension\..*\.(clean|smudge))$`, "false"},
	{`^lfs\.(.*\.)?standalonetransferagent$`, ""},
	{`^http\.(.*\.)?sslverify$`, "true"},
	{`^(http\.(.*\.)?|remote\..*\.)(proxy|sslcert|sslkey|sslcainfo|sslcapath|pinnedpubkey|cookiefile|` +
		`savecookies|curloptresolve)$`, ""},
	{`^alias\.lfs$`, "lfs"}, // git refuses this name
}

// patterns are the names of programs, compiled when first needed.
var patterns = sync.OnceValue(func() (all []*regexp.Regexp) {
	for _, p := range programs {
		all = append(all, regexp.MustCompile(p.names))
	}
	return all
})

// configTimeout limits reading a repository's config: git waits forever for a pipe in the place of a file.
const configTimeout = 8 * time.Second

// configLimit limits a config's size in bytes: it has sections for each branch that was ever checked out.
const configLimit = 64 << 20

// guard returns settings that override the programs in the config of a command's repository with
// those of the user's own config, or with nothing. It runs git once.
func guard(ctx context.Context, c Command) (overrides []string, err error) {
	s, err := scopesOf(ctx, c)
	if err != nil {
		return nil, err
	}

	// A command with only GitDir does not use a work tree.
	if _, own := s.own["core.worktree"]; own && c.GitDir == "" && c.WorkTree == "" {
		if _, err := TopLevel(ctx, c.Dir); err != nil {
			return nil, err
		}
	}

	override := func(name, value string) {
		if strings.Contains(name, "=") { // -c would set another setting
			err = &Error{
				Command: "config",
				Err: fmt.Errorf("the config of the repository at %s has the setting %q, which cannot be switched "+
					"off because of the = in it: remove or rename it", c.Dir, name),
			}
		}
		overrides = append(overrides, name+"="+value)
	}
	s.programs(override)
	s.filter(c.Filters, override)
	if s.ownHelper {
		overrides = append(overrides, s.helpers...)
	}
	if !c.Network && !c.Filters && !c.User {
		overrides = append(overrides, inert...)
	}
	return overrides, err
}

// Signing returns whether the commits of a command are signed. If so, unused has the settings of the
// repository's own config that name a program for it, with their values: such a program does not run, unless
// the user's config names it, too. It runs git.
func Signing(ctx context.Context, c Command) (signs bool, unused map[string]string, err error) {
	value := func(name string, kind ...string) string {
		c.Args = append(append([]string{"config"}, kind...), "--get", name)
		text, failed := Line(ctx, c)
		if failed != nil && ExitCode(failed) != 1 && err == nil {
			err = failed
		}
		return text
	}
	if value("commit.gpgSign", "--type=bool") != "true" || err != nil {
		return false, nil, err
	}
	format := cmp.Or(value("gpg.format"), "openpgp")
	if err != nil {
		return false, nil, err
	}

	s, err := scopesOf(ctx, c)
	if err != nil {
		return false, nil, err
	}

	return true, s.onlyOwn(func(name, program string) bool {
		return (strings.HasPrefix(name, "gpg."+format+".") || format == "openpgp" && name == "gpg.program") &&
			instead(name) != nil && *instead(name) != program
	}), nil
}

// CheckFilters returns an error, with the commands that allow them, if files in the index of a command's work tree have
// filters by their attributes that only the repository's own config has: such filters do not run, so that what git
// writes, there and into commits, would not be what the repository expects. It runs git.
func CheckFilters(ctx context.Context, c Command) error {
	c.Filters = true
	s, err := scopesOf(ctx, c)
	if err != nil {
		return err
	}
	unused := s.unusedFilters()
	if len(unused) == 0 {
		return nil
	}

	c.Args, c.Limit = []string{"ls-files", "-z", "--", ":/"}, filesLimit
	files, err := Output(ctx, c)
	if err != nil || files == "" {
		return err
	}
	c.Args, c.Stdin = []string{"check-attr", "-z", "--stdin", "filter"}, []byte(files)
	out, err := Output(ctx, c)
	if err != nil {
		return err
	}
	for fields := Fields(out); len(fields) >= 3; fields = fields[3:] { // path, "filter", value
		filter := fields[2]
		if settings := unused[filter]; settings != nil {
			return fmt.Errorf("files such as %s go through the filter %s of the repository's own git config, which "+
				"does not run, since programs that a repository names do not: they would be stored in another form "+
				"than the repository's. If you trust it, set it in your own config: %s", fields[0], filter,
				InUsers(settings))
		}
	}
	return nil
}

// InUsers returns the commands that make settings, by their names, in the user's own config.
func InUsers(settings map[string]string) string {
	commands := xslices.Map(slices.Sorted(maps.Keys(settings)), func(name string) string {
		return "git config --global " + process.InShell(name) + " " + process.InShell(settings[name])
	})
	return strings.Join(commands, " && ")
}

// filesLimit bounds a list of a repository's files with an attribute of each, in bytes.
const filesLimit = 512 << 20

// unusedFilters returns the settings, with their values, of each filter that only the repository has.
func (s *scopes) unusedFilters() map[string]map[string]string {
	unused := map[string]map[string]string{}
	for filter := range s.filters {
		_, process := s.users["filter."+filter+".process"] // git uses it instead of the others
		settings := s.onlyOwn(func(name, value string) bool {
			of, ok := section(name, "filter.")
			return ok && of == filter && value != "" && !process
		})
		if _, required := settings["filter."+filter+".required"]; len(settings) > 1 || len(settings) == 1 && !required {
			unused[filter] = settings
		}
	}
	return unused
}

// onlyOwn returns the settings, with their values, that the repository has and the user has not, if they match.
func (s *scopes) onlyOwn(matches func(name, value string) bool) map[string]string {
	only := maps.Clone(s.own)
	maps.DeleteFunc(only, func(name, value string) bool {
		_, users := s.users[name]
		return users || !matches(name, value)
	})
	return only
}

// reaches matches the settings that say how remotes are reached.
var reaches = regexp.MustCompile(`^(core\.(sshcommand|askpass)|(credential|http|remote)\..*)$`)

// Unreached returns the settings of the repository's own config that say how its remotes are reached, but which a
// command does not follow, unless the user's config has them too: those that name a program, with their values, and
// those that say whom the user's credentials reach, with VALUE, since theirs may have a password. It runs git.
func Unreached(ctx context.Context, c Command) (unused map[string]string, err error) {
	s, err := scopesOf(ctx, c)
	if err != nil {
		return nil, err
	}

	unused = s.onlyOwn(func(name, _ string) bool {
		return reaches.MatchString(name) && (instead(name) != nil || isHelper(name))
	})
	for name := range unused {
		if strings.HasPrefix(name, "http.") || strings.HasPrefix(name, "remote.") {
			unused[name] = "VALUE"
		}
	}
	return unused, nil
}

// isHelper reports whether a setting names a credential helper.
func isHelper(name string) bool {
	return strings.HasPrefix(name, "credential.") && strings.HasSuffix(name, ".helper")
}

// scopesOf reads the config of a command's repository.
func scopesOf(ctx context.Context, c Command) (*scopes, error) {
	c.Args = []string{"config", "--list", "--show-scope", "--includes", "-z"}
	c.Stdin, c.Limit = nil, configLimit
	bounded, cancel := context.WithTimeout(ctx, configTimeout)
	defer cancel()
	r, err := once(bounded, c, nil)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return nil, &Error{
			Command: "config",
			Err: fmt.Errorf("git does not read the config of the repository at %s within %v: see whether one of "+
				"its files, or of those that it includes, is a pipe or a device", c.Dir, configTimeout),
		}
	}
	if err != nil {
		return nil, err
	}
	return readScopes(string(r.Stdout), c.Filters), nil
}

// pipePatience is how long a command may take before it is looked for a pipe that it waits for.
const pipePatience = 2 * time.Second

// pipeOf returns a named pipe in the place of a file in which a command looks for what to ignore or for attributes: git
// waits for it forever.
func pipeOf(ctx context.Context, c Command) (found string) {
	if slices.Contains([]string{"config", "rev-parse", "version"}, c.Args[0]) {
		return "" // they read no such file
	}

	c.Stdin = nil
	for _, c.Args = range [][]string{{"rev-parse", "--git-path", "info/exclude"},
		{"rev-parse", "--git-path", "info/attributes"}, {"config", "--path", "core.excludesFile"},
		{"config", "--path", "core.attributesFile"}} {
		r, _ := once(ctx, c, nil)
		name := strings.TrimRight(string(r.Stdout), "\r\n")
		if !filepath.IsAbs(name) {
			name = filepath.Join(c.Dir, name)
		}
		if fi, err := os.Stat(name); err == nil && fi.Mode().Type() == fs.ModeNamedPipe {
			return name
		}
	}
	_ = filepath.WalkDir(cmp.Or(c.WorkTree, c.Dir), func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type() == fs.ModeNamedPipe && strings.HasPrefix(d.Name(), ".git") {
			found = name
			return fs.SkipAll
		}
		return ctx.Err()
	})
	return found
}

// instead returns what overrides a setting that names a program, or nil for other settings.
func instead(name string) *string {
	for i, pattern := range patterns() {
		if pattern.MatchString(name) {
			return &programs[i].instead
		}
	}
	return nil
}

// scopes are a repository's settings, by who made them.
type scopes struct {
	users     map[string]string // of the user and the system
	own       map[string]string // of the repository
	filters   map[string]bool   // names of the filters set by the repository or, if none may run, by anybody
	helpers   []string          // overrides that name the user's credential helpers
	ownHelper bool              // the repository has a credential helper
}

// readScopes reads the output of git config --list.
func readScopes(listed string, filters bool) *scopes {
	// The empty helper removes those before it.
	s := &scopes{
		users:   map[string]string{},
		own:     map[string]string{},
		filters: map[string]bool{},
		helpers: []string{"credential.helper="},
	}

	for fields := Fields(listed); len(fields) >= 2; fields = fields[2:] {
		name, value, _ := strings.Cut(fields[1], "\n")
		isOwn := fields[0] == "local" || fields[0] == "worktree"
		switch {
		case fields[0] == "command": // settings by once, and by the user's environment
			continue
		case isOwn:
			s.own[name] = value
			s.ownHelper = s.ownHelper || isHelper(name)
		default:
			s.users[name] = value
			if isHelper(name) {
				s.helpers = append(s.helpers, name+"="+value)
			}
		}
		if filter, ok := section(name, "filter."); ok && (isOwn || !filters) {
			s.filters[filter] = true
		}
	}

	return s
}

// section returns the subsection of a setting's name, after a prefix.
func section(name, prefix string) (sub string, ok bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	dot := strings.LastIndexByte(rest, '.')
	return rest[:max(dot, 0)], ok && dot >= 0
}

// programs overrides the repository's hooks and programs.
func (s *scopes) programs(override func(name, value string)) {
	for name, own := range s.own {
		if hook, ok := section(name, "hook."); ok {
			override("hook."+hook+".enabled", "false")
		}
		if program := instead(name); program != nil {
			value, has := s.users[name]
			if !has {
				value = *program
			}
			if !has && *program == driver && own == "true" {
				continue // the usual way to keep one's own side of a file; runs nothing of the repository
			}
			override(name, value)
		}
	}
}

// filter overrides the filters: by the user's, if these may run.
func (s *scopes) filter(usersRun bool, override func(name, value string)) {
	for filter := range s.filters {
		_, process := s.users["filter."+filter+".process"]
		_, own := s.own["filter."+filter+".process"]
		works := usersRun && (process || !own)
		for _, key := range []string{"clean", "smudge", "process", "required"} {
			name := "filter." + filter + "." + key
			value, has := s.users[name]
			switch {
			case works && has:
				override(name, value)
			case works && key == "process": // an empty one would disable the others
			case key == "required":
				override(name, "false")
			default:
				override(name, "")
			}
		}
	}
}

// CheckBranch returns an error if creating or deleting a branch would write through a symbolic link in the
// place of the git folder or below it, for example out of the repository: git follows links in the places of
// refs and their logs. more are other paths to be written, relative to the git folder, with slashes.
func CheckBranch(gitDir, branch string, more ...string) error {
	for _, path := range append(
		[]string{"packed-refs", "reftable", "refs/heads/" + branch, "logs/refs/heads/" + branch}, more...) {
		at := gitDir
		for part := range strings.SplitSeq("./"+path, "/") {
			at = filepath.Join(at, part)
			fi, err := os.Lstat(at)
			if err != nil {
				break // missing, so there is nothing below it
			}
			if fi.Mode()&(fs.ModeSymlink|fs.ModeIrregular) != 0 {
				return fmt.Errorf("%s is a link, and git would write where it leads: replace it with what it points to",
					at)
			}
		}
	}

	return nil
}
