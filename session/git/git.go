// Package git is the only place where this program runs git, and the place that knows what of a repository
// may run. A repository's own config, which somebody else may have written, never makes git start a program:
// no hook, fsmonitor, filter, diff or merge driver, credential helper, ssh command or gpg program of it runs.
// What the user's own config has for the same works: filters with Command.Filters, identity and signing with
// Command.User, credentials with Command.Network. Programs that run as the user and edit that config at that
// very moment are not held off.
//
// The concepts:
//
//   - Command: one run of git; Run, Output, Line and Once run it.
//   - settings: -c overrides for every command.
//   - guard: -c overrides for the programs that the config of the command's repository names, whose
//     names are not known in advance. Commands that only read the repository do without.
//   - Environ, Bound: the environment without the variables that point to another repository.
//   - Error, ExitCode, Said, NotFetched: why git failed, with the remedy in situations that are known.
//   - Signing, CheckFilters: which programs of the repository do not run for a signature, or a file.
//   - Changes: what git status has, without what a checkout alone makes differ.
//   - Check: the version of git; TopLevel, CheckBranch: what else a prepared folder may lead astray.
//   - InProgress: the merge or the like that a work tree is in the middle of.
//   - Identity: what identifies a repository on every machine.
package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/actor/process"
	"deepwork/actor/wait"
)

const (
	// timeout limits one git command; the longest is a checkout of a huge repository.
	timeout = 15 * time.Minute
	// lockPatience limits the wait for a lock of another git program.
	lockPatience = 30 * time.Second
	// halfMadePatience limits the wait for a half-made worktree, which may also be permanently broken.
	halfMadePatience = 3 * time.Second
)

// A Command is one run of git. The zero value of a field is its default.
type Command struct {
	Dir      string   // working directory
	GitDir   string   // default: found from Dir
	WorkTree string   // default: as git finds it
	Index    string   // an index file other than the worktree's own
	Env      []string // additional environment
	Config   []string // additional settings, key=value
	Args     []string
	Stdin    []byte
	Limit    int  // maximum size of standard output, in bytes; default: process's
	Filters  bool // run the filters of the user's own config, such as LFS; only in folders that the user has approved
	User     bool // commit as the user, with the identity and signing of the user's config
	Network  bool // reach remotes, with the user's credentials
}

// settings apply to every command: no hooks, daemons, housekeeping or signatures, no network, no bare
// repository found by chance in a folder; git waits for locks of others.
var settings = []string{
	"core.hooksPath=" + os.DevNull,
	"core.fsmonitor=false",
	"core.safecrlf=false",
	"core.quotePath=false", // names that are not ASCII are shown as they are
	"core.filesRefLockTimeout=5000",
	"core.packedRefsTimeout=10000",
	"core.bigFileThreshold=16m", // larger files are streamed, not held in memory
	"pull.twohead=ort",          // git merge obeys it, and ours would drop the work
	"gc.auto=0",
	"maintenance.auto=false",
	unsigned,
	"commit.cleanup=whitespace", // a title may begin with #
	"push.recurseSubmodules=no", // git would run in submodules by their own config
	"push.followTags=false",
	"push.negotiate=false",    // git would fetch, with the program that the config names for a URL
	"rerere.autoUpdate=false", // it makes merges fail without a conflict to show
	"submodule.recurse=false",
	"safe.bareRepository=explicit",
	"worktree.useRelativePaths=false", // paths of worktrees are compared, and either end may be moved
	// Hooks from the config, since git 2.55; git 2.54 has them without this switch.
	"hook.reference-transaction.enabled=false", "hook.post-checkout.enabled=false",
	"hook.post-index-change.enabled=false",
}

const unsigned = "commit.gpgSign=false"

// NoReflog is a setting for commands that create a branch: the content of its log would be partly up to those
// who prepared the repository.
const NoReflog = "core.logAllRefUpdates=false"

// reading lists commands that run nothing that guard would have to find. Like worktree list, they neither
// read files in a work tree nor write refs or an index, which makes git check recently changed files.
var reading = []string{
	"cat-file", "check-ignore", "check-ref-format", "commit-tree", "config", "diff-tree", "for-each-ref", "log",
	"ls-files", "ls-tree", "merge-base",
	"rev-list", "rev-parse", "show", "show-ref",
}

// Bound lists the variables that point git to another repository than its working directory's. A program that
// git has started has them.
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
	"GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE",
	"GIT_TRACE", "GIT_TRACE2", "GIT_TRACE_SETUP", "GIT_EDITOR", "GIT_CEILING_DIRECTORIES",
}, Bound...)

// Environ returns this process's environment without the variables of Bound.
func Environ() []string { return process.Without(os.Environ(), foreign...) }

// Run runs git and returns its standard output and standard error. While another git program holds a lock, or
// is creating a worktree of the repository, Run waits and tries again. It blocks until git has ended. Errors:
// *Error, with the context's cause if the context ends during the wait.
func Run(ctx context.Context, c Command) (out, warnings string, err error) {
	began := time.Now()
	var held error // why git is run again
	for pause := (wait.Backoff{Min: 20 * time.Millisecond, Max: time.Second}); ; {
		r, err := Once(ctx, c)
		if err != nil && held != nil && ctx.Err() != nil {
			return "", "", fmt.Errorf("%w (%w)", held, context.Cause(ctx))
		}

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

		if ended := pause.Wait(ctx); ended != nil {
			return "", "", fmt.Errorf("%w (%w)", err, ended)
		}

		held = err
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
var lockHeld = regexp.MustCompile(
	`(?m)Unable to create '(.*\.lock)': File exists|could not lock config file .*: File exists`)

// halfMade matches git's message that it found another worktree of the repository while another program was
// creating it, with files that are still empty. Git then ends before doing anything.
var halfMade = regexp.MustCompile(`failed to read (.*[/\\]worktrees[/\\][^/\\]+)[/\\](?:commondir|gitdir|HEAD)\b`)

// Once is like Run but does not wait for locks.
func Once(ctx context.Context, c Command) (r process.Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := Check(ctx); err != nil {
		return r, err
	}

	reads := slices.Contains(reading, c.Args[0]) || len(c.Args) > 1 && c.Args[0] == "worktree" && c.Args[1] == "list"
	overrides := inert
	simple := !c.User && reads
	at := c.Dir + "\x00" + c.GitDir
	if _, known := looked.Load(at); !simple || !known {
		found, err := guard(ctx, c)
		if err != nil {
			return r, err
		}
		looked.Store(at, true)
		if !simple {
			overrides = found
		}
	}
	return once(ctx, c, overrides)
}

// looked has the repositories whose config was read once. Before some commands git does not read it first,
// and then waits forever for a pipe in the place of a file.
var looked sync.Map

// once runs git with these settings in addition to its own.
func once(ctx context.Context, c Command, overrides []string) (process.Result, error) {
	command := []string{"git", "--no-pager", "--no-optional-locks"}
	for _, s := range slices.Concat(settings, overrides, c.Config) {
		if !c.User || s != unsigned {
			command = append(command, "-c", s)
		}
	}

	env := append(Environ(), "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_NO_LAZY_FETCH=1",
		// what is shown and compared must be what is merged
		"GIT_NO_REPLACE_OBJECTS=1", "GIT_GRAFT_FILE="+filepath.Join(os.DevNull, "none"),
		"GIT_EDITOR=true", "GIT_SEQUENCE_EDITOR=true", "GIT_PROXY_COMMAND="+os.Getenv("GIT_PROXY_COMMAND"))
	if c.Network {
		env = append(env, "GIT_ALLOW_PROTOCOL=file:git:http:https:ssh") // run no program named by a URL
	} else {
		env = append(env, "GIT_ALLOW_PROTOCOL=none")
	}
	if !c.User {
		env = append(env, "GIT_AUTHOR_NAME=deepwork", "GIT_AUTHOR_EMAIL=deepwork@localhost",
			"GIT_COMMITTER_NAME=deepwork", "GIT_COMMITTER_EMAIL=deepwork@localhost")
	}
	for name, value := range map[string]string{
		"GIT_DIR":        c.GitDir,
		"GIT_WORK_TREE":  c.WorkTree,
		"GIT_INDEX_FILE": c.Index,
	} {
		if value != "" {
			env = append(env, name+"="+value)
		}
	}

	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer time.AfterFunc(pipePatience, func() {
		if pipe := pipeOf(ctx, c); pipe != "" {
			end(fmt.Errorf("it waits for %s, which is a named pipe: remove it", pipe))
		}
	}).Stop()
	r, err := process.Run(ctx, process.Spec{
		Command: append(command, alone(c.Args)...), Dir: c.Dir, Env: append(env, c.Env...),
		Stdin: c.Stdin, StdoutLimit: c.Limit, Tidy: true,
	})
	if err != nil {
		return r, &Error{Command: c.Args[0], Dir: c.Dir, Err: err}
	}
	return r, nil
}

// alone returns the arguments that keep git out of the work trees of submodules, where it would run the
// programs of their own config, and let it show differences without other programs.
func alone(args []string) []string {
	switch args[0] {
	case "status":
		return slices.Insert(slices.Clone(args), 1, "--ignore-submodules=dirty")
	case "diff":
		return slices.Insert(slices.Clone(args), 1, "--ignore-submodules=dirty", "--submodule=short", "--no-ext-diff",
			"--no-textconv")
	}
	return args
}

// An Error is a git command that failed.
type Error struct {
	Command string // git's subcommand
	Dir     string // its working directory
	Err     error  // usually a *process.Error
}

// Error returns git's last message, or why it could not be run.
func (e *Error) Error() string {
	p, ok := errors.AsType[*process.Error](e.Err)
	switch {
	case ok && p.Kind == process.NotFound:
		return "the git program is not in PATH; install git, or start deepwork where it is found"
	case ok && p.Kind == process.Exit && p.Tail != "":
		if text := known(p.Tail, e.Dir); text != "" {
			return text
		}
		return fmt.Sprintf("git %s: %s%s", e.Command, p.Tail, leftOver(p.Tail))
	}
	return fmt.Sprintf("git %s: %v", e.Command, e.Err)
}

// Git's messages about repositories that it cannot use as they are.
var (
	otherOwner = regexp.MustCompile(`dubious ownership in repository at '(.+)'`)
	notFetched = regexp.MustCompile(`lazy fetching disabled|from promisor remote`)
	readOnly   = regexp.MustCompile(`(?m)^(?:error|fatal): .*(?:insufficient permission for adding an object|` +
		`(?:[Uu]nable to|[Cc]annot|[Cc]ould not|[Ff]ailed to) (?:create|write|append to|make) ` +
		`(?:temporary|loose|object|.*\.(?:git|lock)).*: (?:Permission denied|Read-only file system)).*$`)
)

// known explains a known message of git, with its remedy, or returns "".
func known(said, dir string) string {
	if m := otherOwner.FindStringSubmatch(said); m != nil {
		return fmt.Sprintf("the repository at %s belongs to another user, and git does not use it unless you say "+
			"that you trust it: git config --global --add safe.directory %s", m[1], process.InShell(m[1]))
	}
	if notFetched.MatchString(said) {
		return fmt.Sprintf("the repository at %s is a partial clone, and objects that are needed here were not "+
			"fetched yet, which deepwork does not do. This fetches all of them: git -C %s fetch --refetch --no-filter",
			dir, process.InShell(dir))
	}
	if line := readOnly.FindString(said); line != "" {
		return fmt.Sprintf("git may not write to the repository of %s (%s): let this user write to its git folder, "+
			"with the objects and refs in it", dir, strings.TrimSpace(line))
	}

	return ""
}

// NotFetched reports whether git failed because a partial clone lacks objects.
func NotFetched(err error) bool {
	return Said(err, "lazy fetching disabled") || Said(err, "from promisor remote")
}

// leftOver says what to do about a file that a killed git has left behind.
func leftOver(said string) string {
	if m := lockHeld.FindStringSubmatch(said); m != nil && m[1] != "" {
		return fmt.Sprintf("\nIf no git is running there, one that was killed has left this file; remove it: rm %s",
			process.InShell(m[1]))
	}
	if m := halfMade.FindStringSubmatch(said); m != nil {
		return fmt.Sprintf("\nIf no git is running there, one that was killed has left this worktree half-made; "+
			"remove it: rm -r %s", process.InShell(m[1]))
	}
	if m := inTheWay.FindStringSubmatch(said); m != nil {
		return fmt.Sprintf("\nWith the branch %s git allows none below that name, such as %s; rename it: git branch "+
			"-m %[1]s NEW-NAME", m[1], m[2])
	}

	return ""
}

// inTheWay matches git's message that a branch has the name of another one's folder.
var inTheWay = regexp.MustCompile(`'refs/heads/([^']+)' exists; cannot create 'refs/heads/([^']+)'`)

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

// oldest is the first git version that has everything this program uses.
const oldest = "2.38"

var checked atomic.Bool

// Check returns an error if git is missing or older than 2.38. It runs git once per process.
func Check(ctx context.Context) error {
	if checked.Load() {
		return nil
	}

	r, err := once(ctx, Command{Args: []string{"version"}}, nil)
	if err != nil {
		return err
	}

	var major, minor int
	version := strings.TrimSpace(strings.TrimPrefix(string(r.Stdout), "git version "))
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err == nil && (major < 2 || major == 2 && minor < 38) {
		return &Error{
			Command: "version",
			Err: fmt.Errorf("the git program in PATH is %s, and deepwork needs %s or later: install a newer one",
				version, oldest),
		}
	}

	checked.Store(true)
	return nil
}

// TopLevel returns the top of the work tree around a folder. It is an error if the repository's config names
// another folder.
func TopLevel(ctx context.Context, dir string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, configTimeout)
	defer cancel()
	r, err := once(ctx, Command{Dir: dir, Args: []string{"rev-parse", "--show-toplevel"}}, inert) // used by guard
	if err != nil {
		return "", err
	}
	top := filepath.FromSlash(strings.TrimRight(string(r.Stdout), "\r\n"))
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	if rel, err := filepath.Rel(top, dir); err != nil || !filepath.IsLocal(rel) {
		return "", &Error{
			Command: "config",
			Err: fmt.Errorf("core.worktree of the repository at %s names the folder %s, which is not around it: "+
				"remove that setting", dir, top),
		}
	}
	return top, nil
}

// operations are the files of a git folder that exist while an operation is in progress.
var operations = [][2]string{{"MERGE_HEAD", "merge"}, {"rebase-merge", "rebase"}, {"rebase-apply/applying", "am"},
	{"rebase-apply", "rebase"}, {"CHERRY_PICK_HEAD", "cherry-pick"},
	{"REVERT_HEAD", "revert"}, {"BISECT_LOG", "bisect"}, {"sequencer", "cherry-pick"}}

// InProgress returns the operation, such as merge, that is in progress in the work tree of a git folder,
// or "".
func InProgress(gitDir string) string {
	for _, o := range operations {
		if _, err := os.Lstat(filepath.Join(gitDir, filepath.FromSlash(o[0]))); err == nil {
			return o[1]
		}
	}
	return ""
}

// identityTime limits Identity. Without a commit-graph, the history of the largest repositories takes ten
// seconds.
const identityTime = 30 * time.Second

// Identity returns what identifies a folder's repository on every machine: the URL of its remote (origin,
// else the first), as configured, and the hash of its first commit. Each is "" if it does not exist; both are
// outside a repository. A shallow clone has no first commit. It takes at most 30 s.
func Identity(ctx context.Context, dir string) (remote, root string, err error) {
	ctx, cancel := context.WithTimeout(ctx, identityTime)
	defer cancel()
	var shallow []string
	said := func(args ...string) (lines []string) {
		if err != nil {
			return nil
		}

		out, failed := Output(ctx, Command{Dir: dir, Args: args})
		if failed != nil && (ExitCode(failed) != 1 || shallow == nil) { // exit code 1 means that it does not exist
			err = fmt.Errorf("looking at the repository of %s: %w", dir, failed)
		}
		if failed != nil && ctx.Err() == context.DeadlineExceeded {
			err = fmt.Errorf("%w; if it is a large one, run git commit-graph write --reachable in it", err)
		}
		return strings.FieldsFunc(out, func(r rune) bool { return r == '\n' || r == '\r' })
	}
	shallow = said("rev-parse", "--is-shallow-repository")

	if Said(err, "not a git repository (or any") {
		return "", "", nil
	}

	for _, line := range said("config", "--get-regexp", `^remote\..*\.url$`) {
		name, url, _ := strings.Cut(line, " ")
		if remote == "" || name == "remote.origin.url" {
			remote = url
		}
	}
	if len(shallow) == 1 && shallow[0] == "false" && len(said("rev-parse", "--verify", "--quiet", "HEAD")) > 0 {
		if roots := said("rev-list", "--max-parents=0", "HEAD"); len(roots) > 0 {
			root = roots[len(roots)-1] // the oldest
		}
	}
	if err != nil {
		return "", "", err
	}
	return remote, root, nil
}
