package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// The environment by which processes of ours know each other.
const (
	// shimEnv holds the run's folder in a shim that is on its own already.
	shimEnv = "DEEPWORK_ATTEMPT_SHIM"
	// markEnv holds the run's mark in the agent and in all that it starts.
	markEnv = "DEEPWORK_ATTEMPT_RUN"
)

// elsewhere are variables by which git works on another repository than that of
// its working directory. A server may have them, when git itself has started it;
// an agent would commit to the main checkout.
var elsewhere = []string{
	"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY",
	"GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_QUARANTINE_PATH", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_IMPLICIT_WORK_TREE",
}

// launch starts the shim of a folder and returns when it has recorded that the
// agent runs, or that it does not, or has ended. said is why it could record
// neither.
func (r *Runner) launch(ctx context.Context, dir string) (said string, err error) {
	if len(r.Shim) == 0 {
		return "", errors.New("no command line of the shim is set")
	}
	hear, tell, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer hear.Close()
	cmd := exec.CommandContext(ctx, r.Shim[0], append(slices.Clone(r.Shim[1:]), dir)...)
	cmd.Env = append(without(os.Environ(), append(slices.Clone(elsewhere), markEnv, shimEnv)...), firstEnv(dir)...)
	cmd.Dir = filepath.VolumeName(dir) + string(filepath.Separator)
	cmd.Stdout = tell
	detach(cmd)
	err = startDetached(cmd)
	tell.Close()
	if err != nil {
		return "", err
	}
	// Everybody who may tell has the other end: the shim and nobody else.
	stop := context.AfterFunc(ctx, func() { hear.Close() })
	defer stop()
	words, err := io.ReadAll(io.LimitReader(hear, 4000))
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", fmt.Errorf("listening to the shim: %w", err)
	}
	return strings.TrimSpace(string(words)), nil
}

// without is an environment that lacks some keys.
func without(env []string, keys ...string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		key, _, _ := strings.Cut(kv, "=")
		return slices.Contains(keys, key)
	})
}
