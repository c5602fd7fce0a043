package process

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// avoided are the folders of Avoid.
var avoided struct {
	sync.Mutex
	folders []string
}

// Avoid makes every later start of a program that is named without a path pass over the entries of
// PATH in a folder, in which somebody else may have put a program of that name. It is for the start
// of a command: it holds for the whole process, and cannot be undone.
func Avoid(folder string) {
	avoided.Lock()
	defer avoided.Unlock()
	if !slices.Contains(avoided.folders, folder) {
		avoided.folders = append(slices.Clip(avoided.folders), folder)
	}
}

// Look returns the path of a program that is named without a path. It ignores entries of PATH that
// are relative, or inside one of these folders or those of Avoid. The error is an *exec.Error.
func Look(program string, outside ...string) (string, error) {
	avoided.Lock()
	outside = append(outside, avoided.folders...)
	avoided.Unlock()
	unsafe := func(path string) bool {
		return slices.ContainsFunc(outside, func(folder string) bool { return Inside(folder, path) })
	}
	err := exec.ErrNotFound
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if !filepath.IsAbs(dir) || unsafe(dir) {
			continue
		}
		path, lerr := exec.LookPath(filepath.Join(dir, program))
		if lerr == nil && !unsafe(path) {
			return path, nil
		}
		if errors.Is(lerr, fs.ErrPermission) {
			err = fs.ErrPermission
		}
	}
	return "", &exec.Error{Name: program, Err: err}
}

// Bare reports whether a program is named without a path.
func Bare(program string) bool {
	return !strings.ContainsRune(program, '/') && !strings.ContainsRune(program, filepath.Separator)
}

// Inside reports whether a path is a folder or in it, before or after links are resolved.
func Inside(folder, path string) bool {
	for _, p := range []string{path, Resolved(path)} {
		for _, f := range []string{folder, Resolved(folder)} {
			if rel, err := filepath.Rel(f, p); err == nil && filepath.IsLocal(rel) {
				return true
			}
		}
	}
	return false
}

// Resolved returns a path with its links resolved, or only cleaned if they cannot be.
func Resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}
