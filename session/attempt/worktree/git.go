package worktree

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"time"

	"deepwork/actor/process"
)

const (
	// gitTimeout bounds one git command; a checkout of a huge repository is the
	// longest.
	gitTimeout = 15 * time.Minute
	// lockPatience is how long a lock of another git program is waited for.
	lockPatience = 30 * time.Second
	// listLimit bounds what a listing of files may be, in bytes.
	listLimit = 256 << 20
)

// A call is one run of git.
type call struct {
	dir      string   // working directory
	gitDir   string   // "": found from dir
	workTree string   // "": as git finds it
	index    string   // another index file than the worktree's own
	env      []string // more environment
	config   []string // more settings, key=value
	args     []string
	stdin    []byte
	limit    int // of standard output, in bytes; 0: process's default
}

// settings hold for every run: no hooks, no daemons, no housekeeping, no
// signatures; locks of others are waited for.
var settings = []string{
	"core.hooksPath=" + os.DevNull,
	"core.fsmonitor=false",
	"core.safecrlf=false",
	"core.filesRefLockTimeout=5000",
	"core.packedRefsTimeout=10000",
	"core.bigFileThreshold=16m", // larger files are streamed, not held in memory
	"gc.auto=0",
	"maintenance.auto=false",
	"commit.gpgSign=false",
	"submodule.recurse=false",
}

// foreign are variables that would make git look at another repository, index or
// file than it is told to, or change what it prints.
var foreign = map[string]bool{
	"GIT_DIR": true, "GIT_WORK_TREE": true, "GIT_INDEX_FILE": true, "GIT_COMMON_DIR": true,
	"GIT_OBJECT_DIRECTORY": true, "GIT_ALTERNATE_OBJECT_DIRECTORIES": true, "GIT_QUARANTINE_PATH": true,
	"GIT_NAMESPACE": true, "GIT_PREFIX": true, "GIT_INTERNAL_SUPER_PREFIX": true, "GIT_IMPLICIT_WORK_TREE": true,
	"GIT_CONFIG": true, "GIT_CONFIG_PARAMETERS": true, "GIT_GRAFT_FILE": true, "GIT_SHALLOW_FILE": true,
	"GIT_NO_REPLACE_OBJECTS": true, "GIT_REPLACE_REF_BASE": true, "GIT_ATTR_SOURCE": true, "GIT_DEFAULT_HASH": true,
	"GIT_LITERAL_PATHSPECS": true, "GIT_GLOB_PATHSPECS": true, "GIT_NOGLOB_PATHSPECS": true, "GIT_ICASE_PATHSPECS": true,
	"GIT_EXTERNAL_DIFF": true, "GIT_DIFF_OPTS": true, "GIT_REFLOG_ACTION": true, "GIT_INDEX_VERSION": true,
	"GIT_AUTHOR_NAME": true, "GIT_AUTHOR_EMAIL": true, "GIT_AUTHOR_DATE": true,
	"GIT_COMMITTER_NAME": true, "GIT_COMMITTER_EMAIL": true, "GIT_COMMITTER_DATE": true,
	"GIT_TRACE": true, "GIT_TRACE2": true, "GIT_TRACE_SETUP": true, "GIT_EDITOR": true, "GIT_CEILING_DIRECTORIES": true,
}

// environ is this process's environment without what binds git to a repository.
func environ() []string {
	all := os.Environ()
	out := make([]string, 0, len(all)+8)
	for _, kv := range all {
		if name, _, _ := strings.Cut(kv, "="); !foreign[strings.ToUpper(name)] {
			out = append(out, kv)
		}
	}
	return out
}

// git runs git and returns what it wrote to standard output. A lock that another
// git program holds is waited for, and so is a worktree that another one is making.
// It blocks until git has ended.
func (k *Keeper) git(ctx context.Context, c call) (string, error) {
	out, _, err := k.gitBoth(ctx, c)
	return out, err
}

// line runs git and returns its output without the line break at its end.
func (k *Keeper) line(ctx context.Context, c call) (string, error) {
	out, err := k.git(ctx, c)
	return strings.TrimRight(out, "\r\n"), err
}

func (k *Keeper) gitBoth(ctx context.Context, c call) (out, warnings string, err error) {
	began := time.Now()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		r, err := runGit(ctx, c)
		patience := time.Duration(0)
		switch {
		case err == nil:
		case lockHeld.MatchString(r.Stderr):
			patience = lockPatience
		case halfMade.MatchString(r.Stderr):
			patience = halfPatience
		}
		if time.Since(began) >= patience {
			return string(r.Stdout), r.Stderr, err
		}
		k.at("lock held")
		if err := sleep(ctx, pause/2+rand.N(pause)); err != nil {
			return "", "", err
		}
	}
}

// lockHeld is how git says that another one holds a lock.
var lockHeld = regexp.MustCompile(`(?m)Unable to create '.*\.lock': File exists|could not lock config file .*: File exists`)

// halfMade is how git says that it found another worktree of the repository while
// another program was making it: its files are there and empty. Git ends over that
// before it does anything.
var halfMade = regexp.MustCompile(`failed to read .*[/\\]worktrees[/\\][^/\\]+[/\\](commondir|gitdir|HEAD)\b`)

// halfPatience is for how long one is waited for that may also be broken for good.
const halfPatience = 3 * time.Second

func runGit(ctx context.Context, c call) (process.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	command := []string{"git", "--no-pager", "--no-optional-locks"}
	for _, s := range settings {
		command = append(command, "-c", s)
	}
	for _, s := range c.config {
		command = append(command, "-c", s)
	}
	env := append(environ(), "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_EDITOR=true",
		"GIT_AUTHOR_NAME=deepwork", "GIT_AUTHOR_EMAIL=deepwork@localhost",
		"GIT_COMMITTER_NAME=deepwork", "GIT_COMMITTER_EMAIL=deepwork@localhost")
	for name, value := range map[string]string{"GIT_DIR": c.gitDir, "GIT_WORK_TREE": c.workTree, "GIT_INDEX_FILE": c.index} {
		if value != "" {
			env = append(env, name+"="+value)
		}
	}
	r, err := process.Run(ctx, process.Spec{
		Command: append(command, c.args...), Dir: c.dir, Env: append(env, c.env...),
		Stdin: c.stdin, StdoutLimit: c.limit,
	})
	if err != nil {
		return r, &gitError{what: c.args[0], err: err}
	}
	return r, nil
}

// A gitError says what git said.
type gitError struct {
	what string
	err  error
}

func (e *gitError) Error() string {
	p, ok := errors.AsType[*process.Error](e.err)
	switch {
	case ok && p.Kind == process.NotFound:
		return "the git program is not in PATH; install git, or start deepwork where it is found"
	case ok && p.Kind == process.Exit && p.Tail != "":
		return fmt.Sprintf("git %s: %s", e.what, p.Tail)
	}
	return fmt.Sprintf("git %s: %v", e.what, e.err)
}

func (e *gitError) Unwrap() error { return e.err }

// exitCode is the code with which git ended, or -1.
func exitCode(err error) int {
	if p, ok := errors.AsType[*process.Error](err); ok && p.Kind == process.Exit {
		return p.ExitCode
	}
	return -1
}

// said tells whether git's last words hold a text.
func said(err error, text string) bool {
	p, ok := errors.AsType[*process.Error](err)
	return ok && strings.Contains(p.Tail, text)
}

// sleep waits, but no longer than ctx lasts.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fields splits what git wrote with -z.
func fields(out string) []string {
	if out == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
}
