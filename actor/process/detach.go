package process

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// detachedEnv is set in the environment of a process started by Detach.
const detachedEnv = "PROCESS_DETACHED"

// Detach starts a command that outlives this process: it is not its child and has its own session.
// It must be a program that calls Detached first. Its environment is env, its working directory the
// root. Detach returns the text passed to Answer, or "" if the command ends without an answer. When
// ctx ends, Detach returns its error, and the command may start nevertheless.
func Detach(ctx context.Context, command, env []string) (answer string, err error) {
	hear, say, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer hear.Close()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(Without(env, detachedEnv), firstEnv...)
	cmd.Dir = rootDir()
	cmd.Stdout = say
	err = startDetached(cmd)
	say.Close()
	if err != nil {
		return "", err
	}
	// The only other holder of the pipe is the command.
	stop := context.AfterFunc(ctx, func() { hear.Close() })
	defer stop()
	words, err := io.ReadAll(io.LimitReader(hear, 4000))
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", fmt.Errorf("listening to it: %w", err)
	}
	return strings.TrimSpace(string(words)), nil
}

// Detached makes this process one that outlives its parent. In a process that Detach did not start,
// it starts this command line again as a detached process and returns false: the caller must return
// at once. Otherwise the process from then on ignores the signals that terminals and people send.
func Detached() (bool, error) {
	if os.Getenv(detachedEnv) == "" {
		self, err := os.Executable()
		if err != nil {
			return false, err
		}
		return false, leave(&exec.Cmd{
			Path: self, Args: os.Args, Dir: rootDir(), Stdout: os.Stdout, Env: append(os.Environ(), detachedEnv+"=1"),
		})
	}
	os.Unsetenv(detachedEnv)
	// They are received, not ignored: children inherit ignored signals.
	signal.Notify(make(chan os.Signal, 1), survived...)
	return true, nil
}

// Answer answers the Detach that started this process and closes the connection to it; nothing else
// may be written to standard output. Only the first call has an effect.
func Answer(text string) {
	answer.Do(func() {
		io.WriteString(os.Stdout, text)
		hangUp()
	})
}

var answer sync.Once // of this process, which has one standard output

// rootDir is a folder that is never removed or unmounted.
func rootDir() string {
	self, _ := os.Executable()
	return filepath.VolumeName(self) + string(filepath.Separator)
}

// With returns a copy of an environment with changes: NAME=value sets a variable, and NAME alone
// removes it.
func With(env []string, changes ...string) []string {
	var gone, more []string
	for _, c := range changes {
		if strings.Contains(c, "=") {
			more = append(more, c)
		} else {
			gone = append(gone, c)
		}
	}
	return append(Without(env, gone...), more...)
}

// Without returns a copy of an environment without some variables, whatever their case.
func Without(env []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
	})
}
