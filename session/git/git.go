// Package git is the only place where this program runs git: without hooks, daemons, housekeeping,
// signatures or programs of the repository's config, without environment variables that point to
// another repository, in the C locale, and with bounded time and output. It waits for locks that
// another git program holds. Commands of User have the user's identity, signing and credentials, but
// no program of the repository's config either.
package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"deepwork/actor/process"
	"deepwork/actor/wait"
)

const (
	// timeout bounds one git command; the longest is a checkout of a huge repository.
	timeout = 15 * time.Minute
	// lockPatience bounds the wait for a lock of another git program.
	lockPatience = 30 * time.Second
	// halfMadePatience bounds the wait for a half-made worktree, which may also be permanently
	// broken.
	halfMadePatience = 3 * time.Second
)

// A Command is one run of git. The zero value of a field is its default.
type Command struct {
	Dir      string   // working directory
	GitDir   string   // default: found from Dir
	WorkTree string   // default: as git finds it
	Index    string   // an index file other than the worktree's own
	Objects  string   // default: those of GitDir
	Env      []string // additional environment
	Config   []string // additional settings, key=value
	Args     []string
	Stdin    []byte
	Limit    int // of standard output, in bytes; default: process's
	// User runs the command as the user would: with the identity that the user or the repository
	// sets, and the signing, credentials and filters of the user's own config. The command runs in
	// a git folder of its own that has no refs but those of Refs, so it changes no ref.
	User    bool
	Head    string            // with User: the commit of its HEAD; default: the repository's
	Refs    map[string]string // with User: full name to commit
	Network bool              // with User: it may reach remotes
}

// settings apply to every command: no hooks, daemons, housekeeping or signatures, no network, and
// no bare repository that is only found in a folder; git waits for the locks of others.
var settings = []string{
	"core.hooksPath=" + os.DevNull,
	"core.fsmonitor=false",
	"core.safecrlf=false",
	"core.filesRefLockTimeout=5000",
	"core.packedRefsTimeout=10000",
	"core.bigFileThreshold=16m", // larger files are streamed, not held in memory
	"core.splitIndex=false",     // the other part would lie in the git folder of the command
	"gc.auto=0",
	"maintenance.auto=false",
	unsigned,
	"push.recurseSubmodules=no", // in which git would run by their own config
	"push.followTags=false",
	"submodule.recurse=false",
	"safe.bareRepository=explicit",
	"worktree.useRelativePaths=false", // the paths of worktrees are compared, and one of both ends may be moved
	// Hooks in the config, since git 2.55; git 2.54 has them without this switch.
	"hook.reference-transaction.enabled=false", "hook.post-checkout.enabled=false", "hook.post-index-change.enabled=false",
}

const unsigned = "commit.gpgSign=false"

// unused overrides settings that would run a program, for commands that need none of the user's
// either.
var unused = []string{
	"core.sshCommand=false", "core.gitProxy=false", "core.askPass=false", "core.editor=false", "core.alternateRefsCommand=false", "core.pager=false",
	"credential.helper=", "diff.external=false", "gpg.program=false", "log.showSignature=false", "protocol.allow=never", "fetch.bundleURI=",
}

// plain lists the commands that look at no content of files in a work tree, so that filters and
// drivers, whose names nobody knows in advance, do not matter to them. They run on the repository
// itself. All others run apart, also those that write an index: for that, git compares the files that
// may have changed just after the index was last written.
var plain = []string{
	"branch", "cat-file", "check-ignore", "check-ref-format", "commit-tree", "config", "diff-tree", "for-each-ref", "ls-files", "ls-tree", "merge-base",
	"rev-list", "rev-parse", "show", "show-ref", "symbolic-ref", "update-ref", "worktree",
}

// Bound lists the variables that make git work on a repository other than that of its working
// directory. A program has them if it was started by git.
var Bound = []string{
	"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY",
	"GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_QUARANTINE_PATH", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_IMPLICIT_WORK_TREE",
}

// foreign lists Bound and the variables that would change what git reads or prints.
var foreign = append([]string{
	"GIT_INTERNAL_SUPER_PREFIX", "GIT_CONFIG", "GIT_CONFIG_PARAMETERS", "GIT_GRAFT_FILE", "GIT_SHALLOW_FILE",
	"GIT_NO_REPLACE_OBJECTS", "GIT_REPLACE_REF_BASE", "GIT_ATTR_SOURCE", "GIT_DEFAULT_HASH",
	"GIT_LITERAL_PATHSPECS", "GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS", "GIT_ICASE_PATHSPECS",
	"GIT_EXTERNAL_DIFF", "GIT_DIFF_OPTS", "GIT_REFLOG_ACTION", "GIT_INDEX_VERSION",
	"GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE",
	"GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "GIT_COMMITTER_DATE",
	"GIT_TRACE", "GIT_TRACE2", "GIT_TRACE_SETUP", "GIT_EDITOR", "GIT_CEILING_DIRECTORIES",
}, Bound...)

// Environ returns this process's environment without the variables of Bound.
func Environ() []string { return process.Without(os.Environ(), foreign...) }

// Run runs git and returns its standard output and standard error. While another git program holds
// a lock, or is creating a worktree of the repository, it waits and tries again. It blocks until
// git has ended. Errors: *Error; the context's cause if that ends during a pause.
func Run(ctx context.Context, c Command) (out, warnings string, err error) {
	began := time.Now()
	for pause := (wait.Backoff{Min: 20 * time.Millisecond, Max: time.Second}); ; {
		r, err := Once(ctx, c)
		patience := time.Duration(0)
		switch {
		case err == nil:
		case lockHeld.MatchString(r.Stderr):
			patience = lockPatience
		case halfMade.MatchString(r.Stderr):
			patience = halfMadePatience
		}
		if time.Since(began) >= patience {
			return string(r.Stdout), r.Stderr, err
		}
		if err := pause.Wait(ctx); err != nil {
			return "", "", err
		}
	}
}

// Output is like Run but returns only standard output.
func Output(ctx context.Context, c Command) (string, error) {
	out, _, err := Run(ctx, c)
	return out, err
}

// Line is like Output but removes the final line break.
func Line(ctx context.Context, c Command) (string, error) {
	out, err := Output(ctx, c)
	return strings.TrimRight(out, "\r\n"), err
}

// lockHeld matches git's message that another process holds a lock.
var lockHeld = regexp.MustCompile(`(?m)Unable to create '.*\.lock': File exists|could not lock config file .*: File exists`)

// halfMade matches git's message that it found another worktree of the repository while another
// program was creating it: its files exist but are empty. Git then ends before it does anything.
var halfMade = regexp.MustCompile(`failed to read .*[/\\]worktrees[/\\][^/\\]+[/\\](commondir|gitdir|HEAD)\b`)

// once runs git with all guards.
func once(ctx context.Context, c Command, more []string) (process.Result, error) {
	command := []string{"git", "--no-pager", "--no-optional-locks"}
	for _, s := range slices.Concat(settings, more, c.Config) {
		if !c.User || s != unsigned {
			command = append(command, "-c", s)
		}
	}
	env := append(Environ(), "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_NO_LAZY_FETCH=1", "GIT_EDITOR=true")
	if c.Network {
		env = append(env, "GIT_ALLOW_PROTOCOL=file:git:http:https:ssh") // no program that a URL names
	} else {
		env = append(env, "GIT_ALLOW_PROTOCOL=none")
	}
	if !c.User {
		env = append(env, "GIT_AUTHOR_NAME=deepwork", "GIT_AUTHOR_EMAIL=deepwork@localhost",
			"GIT_COMMITTER_NAME=deepwork", "GIT_COMMITTER_EMAIL=deepwork@localhost")
	}
	for name, value := range map[string]string{"GIT_DIR": c.GitDir, "GIT_WORK_TREE": c.WorkTree, "GIT_INDEX_FILE": c.Index, "GIT_OBJECT_DIRECTORY": c.Objects} {
		if value != "" {
			env = append(env, name+"="+value)
		}
	}
	r, err := process.Run(ctx, process.Spec{
		Command: append(command, alone(c.Args)...), Dir: c.Dir, Env: append(env, c.Env...),
		Stdin: c.Stdin, StdoutLimit: c.Limit,
	})
	if err != nil {
		return r, &Error{Command: c.Args[0], Err: err}
	}
	return r, nil
}

// alone returns the arguments such that git does not look into the work trees of submodules, in
// which it would run the programs of their own config.
func alone(args []string) []string {
	switch args[0] {
	case "status":
		return slices.Insert(slices.Clone(args), 1, "--ignore-submodules=dirty")
	case "diff":
		return slices.Insert(slices.Clone(args), 1, "--ignore-submodules=dirty", "--submodule=short")
	}
	return args
}

// An Error is a git command that failed.
type Error struct {
	Command string // git's subcommand
	Err     error  // usually a *process.Error
}

// Error returns git's last message, or why it could not be run.
func (e *Error) Error() string {
	p, ok := errors.AsType[*process.Error](e.Err)
	switch {
	case ok && p.Kind == process.NotFound:
		return "the git program is not in PATH; install git, or start deepwork where it is found"
	case ok && p.Kind == process.Exit && p.Tail != "":
		return fmt.Sprintf("git %s: %s", e.Command, p.Tail)
	}
	return fmt.Sprintf("git %s: %v", e.Command, e.Err)
}

// Unwrap returns why the command failed.
func (e *Error) Unwrap() error { return e.Err }

// ExitCode returns git's exit code, or -1 if err is another error.
func ExitCode(err error) int {
	if p, ok := errors.AsType[*process.Error](err); ok && p.Kind == process.Exit {
		return p.ExitCode
	}
	return -1
}

// Said reports whether git's last message contains text.
func Said(err error, text string) bool {
	p, ok := errors.AsType[*process.Error](err)
	return ok && strings.Contains(p.Tail, text)
}

// Fields splits the output of git with -z.
func Fields(out string) []string {
	if out == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
}
