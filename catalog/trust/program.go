package trust

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"deepwork/actor/durable"
)

// A file is one inside the project that a command names.
type file struct {
	name string // relative to the root, with slashes
	path string // without links
}

// filesOf returns the files inside the project that are a command's program or its
// first argument, options left aside.
func filesOf(root string, command []string) (all []file) {
	for n, word := range command {
		if n > 1 && !strings.HasPrefix(command[n-1], "-") {
			break
		}
		if word == "" || n == 0 && !hasSeparator(word) {
			continue // found in PATH, and never inside the project
		}
		path := word
		if !filepath.IsAbs(path) {
			path = filepath.Join(root, path)
		}
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			continue // missing, or an argument that is no path
		}
		if fi, err := os.Stat(real); err != nil || fi.IsDir() {
			continue
		}
		// By its name in the project too: a link to a program outside may be changed.
		for _, p := range []string{path, real} {
			if rel, err := filepath.Rel(root, p); err == nil && filepath.IsLocal(rel) {
				all = append(all, file{filepath.ToSlash(rel), real})
				break
			}
		}
	}
	return all
}

// read returns the SHA-256 of the content, and why nobody should trust it, or "".
func (f file) read() (sum, fault string, err error) {
	r, fi, err := durable.OpenRegular(f.path, os.O_RDONLY)
	if err != nil {
		return "", "", fmt.Errorf("reading %s: %w", f.name, err)
	}
	defer r.Close()
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", "", fmt.Errorf("reading %s: %w", f.name, err)
	}
	return hex.EncodeToString(h.Sum(nil)), FaultOf(f.name, fi), nil
}

// Find returns the path of a command's program. Entries of PATH that are relative or
// inside the project do not count, so that a checkout cannot put a program in the place
// of one of the system's. A program with a slash is relative to the project's root.
func Find(root, program string) (string, error) {
	if hasSeparator(program) {
		if !filepath.IsAbs(program) {
			program = filepath.Join(root, program)
		}
		return exec.LookPath(program)
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if !filepath.IsAbs(dir) || inside(root, dir) {
			continue
		}
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil && !inside(root, path) {
			return path, nil
		}
	}
	return "", &exec.Error{Name: program, Err: exec.ErrNotFound}
}

func hasSeparator(name string) bool {
	return strings.ContainsRune(name, '/') || strings.ContainsRune(name, filepath.Separator)
}

// inside reports whether a path is in a folder, wherever links lead.
func inside(folder, path string) bool {
	for _, p := range []string{path, canonical(path)} {
		for _, f := range []string{folder, canonical(folder)} {
			if rel, err := filepath.Rel(f, p); err == nil && filepath.IsLocal(rel) {
				return true
			}
		}
	}
	return false
}

func canonical(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}

// ErrChanged says that a file which a command names is not what was approved.
var ErrChanged = errors.New("is not what was approved")

// FaultOf returns why a file that says what to run cannot be trusted, or "": everybody
// may write to it, or it belongs to a user who is neither this one nor root.
func FaultOf(name string, fi fs.FileInfo) string { return faultOf(name, fi) }
