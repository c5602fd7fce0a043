package trust

import (
	"cmp"
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
	"deepwork/actor/process"
)

// A file is a file inside the project that a command names.
type file struct {
	name string // relative to the root, with slashes
	path string // with links resolved; "" if it is missing, or a folder

	root string
}

// filesOf returns the files inside the project that are a command's program, or its first argument that is
// not an option. Missing files count, too: if a file tool was removed, node runs tool.js or tool/index.js
// instead. dir is the folder in which the command runs.
func filesOf(root, dir string, command []string) (all []file) {
	for n, word := range command {
		if n > 1 && !strings.HasPrefix(command[n-1], "-") {
			break
		}
		if word == "" || n == 0 && process.Bare(word) {
			continue // found in PATH, which is never inside the project
		}

		path := word
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		if with, err := exec.LookPath(path); n == 0 && err == nil {
			path = with // with the extension, on Windows
		}
		real, err := filepath.EvalSymlinks(path)
		if err == nil {
			if fi, err := os.Stat(real); err != nil || fi.IsDir() {
				real = ""
			}
		}

		// Also by its name in the project, since a link to a program outside may be changed.
		for _, p := range []string{path, real} {
			if rel, err := filepath.Rel(root, p); err == nil && filepath.IsLocal(rel) {
				all = append(all, file{filepath.ToSlash(rel), real, root})
				break
			}
		}
	}
	return all
}

// unchecked returns the words of a command that name something in the project whose content filesOf does not
// cover: scripts after its first argument, and folders.
func unchecked(root, dir string, command []string) (words []string) {
	covered := map[string]bool{}
	for _, f := range filesOf(root, dir, command) {
		covered[f.name] = f.path != ""
	}

	for n, word := range command {
		path := word
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		rel, err := filepath.Rel(root, path)
		_, serr := os.Lstat(path)
		if n == 0 && process.Bare(word) || word == "" || err != nil || serr != nil || !filepath.IsLocal(rel) {
			continue
		}
		if !covered[filepath.ToSlash(rel)] {
			words = append(words, word)
		}
	}
	return words
}

// read returns the SHA-256 of the content, and why the file is not trustworthy, or "". The sum is "" if there
// is no content.
func (f file) read() (sum, fault string, err error) {
	if f.path == "" {
		return "", "", nil
	}
	r, fi, err := durable.OpenRegular(f.path, os.O_RDONLY)
	if err != nil {
		return "", "", fmt.Errorf("reading %s: %w", f.name, err)
	}
	defer r.Close()

	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", "", fmt.Errorf("reading %s: %w", f.name, err)
	}
	return hex.EncodeToString(h.Sum(nil)), f.fault(fi), nil
}

func (f file) fault(fi fs.FileInfo) string {
	fault := durable.FaultOf(f.name, fi)
	for _, path := range []string{filepath.Join(f.root, filepath.FromSlash(f.name)), f.path} {
		fault = cmp.Or(fault, foldersFault(f.root, path))
	}
	return fault
}

// FaultOf returns why the content of a file cannot be trusted, or "": durable.FaultOf for the file, or for a
// folder from the file up to the project's root, since anyone who may write to a folder can replace what is
// in it.
func FaultOf(root, path string, fi fs.FileInfo) string {
	return cmp.Or(durable.FaultOf(path, fi), foldersFault(root, path))
}

// foldersFault checks the folders from a file up to the root, or only its own folder if the file is outside.
func foldersFault(root, path string) string {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		fi, err := os.Stat(dir)
		if err != nil {
			return err.Error()
		}
		if fault := durable.FaultOf(dir, fi); fault != "" {
			return fault
		}
		if dir == root || !process.Inside(root, dir) {
			return ""
		}
	}
}

// Find returns the path of a command's program. It ignores entries of PATH that are relative or inside the
// project, so that a checkout cannot replace a program of the system. A program with a slash is relative to
// the project's root.
func Find(root, program string) (string, error) {
	if !process.Bare(program) {
		if !filepath.IsAbs(program) {
			program = filepath.Join(root, program)
		}
		return exec.LookPath(program)
	}
	return process.Look(program, root)
}

// ErrChanged means that a file that a command names differs from the approved one.
var ErrChanged = errors.New("is not what was approved")
