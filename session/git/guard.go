package git

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// inert overrides settings that would run a program, for commands that need none of the user's
// either.
var inert = []string{
	"core.sshCommand=false", "core.askPass=false", "core.editor=false", "core.alternateRefsCommand=false", "core.pager=false",
	"credential.helper=", "diff.external=false", "gpg.program=false", "log.showSignature=false", "protocol.allow=never", "fetch.bundleURI=",
}

// programs are the settings with which git, or Git LFS, starts a program or trusts somebody with the
// user's credentials, and what overrides them if the repository's own config has them and the user's
// has not. A setting cannot be removed by another one.
var programs = []struct {
	name    *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`^core\.sshcommand$`), "ssh"},
	{regexp.MustCompile(`^core\.askpass$`), os.Getenv("SSH_ASKPASS")},
	{regexp.MustCompile(`^core\.alternaterefscommand$`), "false"},
	{regexp.MustCompile(`^diff\.(external|.*\.(command|textconv))$`), "false"},
	// As git merges a file without a driver.
	{regexp.MustCompile(`^merge\..*\.driver$`), "git merge-file --marker-size=%L -L ours -L base -L theirs %A %O %B || exit 1"},
	{regexp.MustCompile(`^gpg\.(openpgp\.)?program$`), "gpg"},
	{regexp.MustCompile(`^gpg\.x509\.program$`), "gpgsm"},
	{regexp.MustCompile(`^gpg\.ssh\.program$`), "ssh-keygen"},
	{regexp.MustCompile(`^gpg\.ssh\.defaultkeycommand$`), "false"},
	{regexp.MustCompile(`^lfs\.(customtransfer\..*\.path|extension\..*\.(clean|smudge))$`), "false"},
	{regexp.MustCompile(`^lfs\.(.*\.)?standalonetransferagent$`), ""},
	{regexp.MustCompile(`^http\.(.*\.)?sslverify$`), "true"},
	{regexp.MustCompile(`^(http\.(.*\.)?|remote\..*\.)(proxy|sslcert|sslkey|sslcainfo|sslcapath|pinnedpubkey|cookiefile|savecookies|curloptresolve)$`), ""},
	{regexp.MustCompile(`^alias\.lfs$`), "lfs"}, // which git refuses
}

// configTimeout bounds reading a repository's config: git waits forever for a pipe in the place of a
// file.
const configTimeout = 8 * time.Second

// guard returns settings that override the programs in the config of a command's repository with
// those of the user's own config, or with nothing. It runs git once.
func guard(ctx context.Context, c Command) (overrides []string, err error) {
	list := Command{Dir: c.Dir, GitDir: c.GitDir, WorkTree: c.WorkTree, Args: []string{"config", "--list", "--show-scope", "--includes", "-z"}}
	bounded, cancel := context.WithTimeout(ctx, configTimeout)
	defer cancel()
	r, err := once(bounded, list, nil)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return nil, &Error{Command: "config", Err: fmt.Errorf("git does not read the config of the repository at %s within %v: see whether one of its files, or of those that it includes, is a pipe or a device", c.Dir, configTimeout)}
	}
	if err != nil {
		return nil, err
	}
	users, own, filters := map[string]string{}, map[string]bool{}, map[string]bool{}
	helpers, ownHelper := []string{"credential.helper="}, false // the empty one removes those before it
	for fields := Fields(string(r.Stdout)); len(fields) >= 2; fields = fields[2:] {
		name, value, _ := strings.Cut(fields[1], "\n")
		isOwn := fields[0] == "local" || fields[0] == "worktree"
		isHelper := strings.HasPrefix(name, "credential.") && strings.HasSuffix(name, ".helper")
		switch {
		case fields[0] == "command": // settings of once, and of the user's environment
			continue
		case isOwn:
			own[name] = true
			ownHelper = ownHelper || isHelper
		default:
			users[name] = value
			if isHelper {
				helpers = append(helpers, name+"="+value)
			}
		}
		if rest, is := strings.CutPrefix(name, "filter."); is && (isOwn || !c.Filters) {
			if dot := strings.LastIndexByte(rest, '.'); dot >= 0 {
				filters[rest[:dot]] = true
			}
		}
	}
	if own["core.worktree"] && c.WorkTree == "" {
		if _, err := TopLevel(ctx, c.Dir); err != nil {
			return nil, err
		}
	}
	override := func(name, value string) {
		if strings.Contains(name, "=") && err == nil { // -c would take it for another setting
			err = &Error{Command: "config", Err: fmt.Errorf("the config of the repository at %s has the setting %q, which cannot be switched off because of the = in it: remove or rename it", c.Dir, name)}
		}
		overrides = append(overrides, name+"="+value)
	}
	for name := range own {
		if hook, is := strings.CutPrefix(name, "hook."); is {
			if dot := strings.LastIndexByte(hook, '.'); dot >= 0 {
				override("hook."+hook[:dot]+".enabled", "false")
			}
		}
		for _, p := range programs {
			if p.name.MatchString(name) {
				value, has := users[name]
				if !has {
					value = p.instead
				}
				override(name, value)
			}
		}
	}
	for filter := range filters {
		_, process := users["filter."+filter+".process"]
		works := c.Filters && (process || !own["filter."+filter+".process"])
		for _, key := range []string{"clean", "smudge", "process", "required"} {
			name := "filter." + filter + "." + key
			value, has := users[name]
			switch {
			case works && has:
				override(name, value)
			case works && key == "process": // an empty one would switch the others off
			case key == "required":
				override(name, "false")
			default:
				override(name, "")
			}
		}
	}
	if ownHelper {
		overrides = append(overrides, helpers...)
	}
	if !c.Network && !c.Filters && !c.User {
		overrides = append(overrides, inert...)
	}
	return overrides, err
}

// CheckBranch returns an error if creating or deleting a branch would write through a symbolic link
// in the place of the git folder or below it, for example out of the repository: git follows links
// in the places of refs and their logs. more are other paths that will be written, relative to the
// git folder with slashes.
func CheckBranch(gitDir, branch string, more ...string) error {
	for _, path := range append([]string{"packed-refs", "reftable", "refs/heads/" + branch, "logs/refs/heads/" + branch}, more...) {
		at := gitDir
		for part := range strings.SplitSeq("./"+path, "/") {
			at = filepath.Join(at, part)
			fi, err := os.Lstat(at)
			if err != nil {
				break // missing, so that nothing is below it
			}
			if fi.Mode()&(fs.ModeSymlink|fs.ModeIrregular) != 0 {
				return fmt.Errorf("%s is a link, and git would write where it leads: replace it with what it points to", at)
			}
		}
	}
	return nil
}
