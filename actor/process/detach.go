package process

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
)

// detachedEnv is set in the environment of a process that Detach has started.
const detachedEnv = "PROCESS_DETACHED"

// Detach starts a command that outlives this process. It is not a child of this process and has its own
// session, so a client that ends this process with all its children does not reach it. It must be a program
// that calls Detached first. Its environment is env, and its working directory is the root. Detach returns
// the text passed to Answer, or "" if the command ends without an answer, and a pipe that ends with the
// command and that the caller closes. If ctx ends, Detach returns its error, and the command may run anyway.
func Detach(ctx context.Context, command, env []string) (answer string, life *os.File, err error) {
	if ctx.Err() != nil {
		return "", nil, ctx.Err()
	}

	hear, say, err := os.Pipe()
	if err != nil {
		return "", nil, err
	}
	defer func() {
		if err != nil {
			hear.Close()
		}
	}()

	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(Without(env, detachedEnv), detachedEnv+"=1")
	cmd.Dir = rootDir()
	cmd.Stdout = say
	err = startDetached(cmd)
	say.Close()
	if err != nil {
		return "", nil, err
	}

	// Only the command also holds this pipe.
	stop := context.AfterFunc(ctx, func() { hear.Close() })
	defer stop()
	words, err := bufio.NewReader(io.LimitReader(hear, 4000)).ReadString(0)

	if ctx.Err() != nil {
		return "", nil, ctx.Err()
	}

	if err != nil && err != io.EOF {
		return "", nil, fmt.Errorf("listening to it: %w", err)
	}
	return strings.Trim(words, "\x00 \n"), hear, nil
}

// Detached gives this process, which Detach has started, its own session, and makes it survive the signals
// that terminals and people send.
func Detached() {
	os.Unsetenv(detachedEnv)
	leaveSession()
	// Receive them instead of ignoring them, since children inherit ignored signals.
	signal.Notify(make(chan os.Signal, 1), survived...)
}

// Answer answers the Detach that started this process. Nothing else may be written to standard output, which
// from then on ends with this process. Only the first call has an effect.
func Answer(text string) {
	answer.Do(func() { io.WriteString(os.Stdout, text+"\x00") })
}

var answer sync.Once // per process, which has one standard output

// Home returns the user's home folder. Programs that nothing in a project may influence start there.
func Home() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return rootDir()
	}
	return home
}

// rootDir is a folder that is never removed or unmounted.
func rootDir() string {
	self, _ := os.Executable()
	return filepath.VolumeName(self) + string(filepath.Separator)
}
