package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"deepwork/actor/durable"
)

// The results of writing a file that a command creates.
const (
	created = "created"
	kept    = "kept"
	keptOld = "kept*" // it is not as this version would write it
	failed  = "failed"
)

// createFile writes a file, and creates the folders above it. It does not replace an existing file.
func createFile(path string, data []byte) (done string, err error) {
	return createFileAs(path, data, 0o644)
}

// createFileAs is like createFile with a mode of the file.
func createFileAs(path string, data []byte, mode fs.FileMode) (done string, err error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return "", fmt.Errorf("it is %s, not a file; move it away and try again", durable.Kind(info.Mode()))
	}
	if _, err := os.Lstat(path); err == nil {
		return kept, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	if err := replaceWith(path, data, mode); err != nil {
		return "", err
	}
	return created, nil
}

// replaceFile replaces the content of a regular file atomically. Its mode remains; a symlink
// remains one, and its target is replaced.
func replaceFile(path string, data []byte) error {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(target)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	return replaceWith(target, data, info.Mode().Perm())
}

// replaceWith makes data the content of path atomically, even if the machine loses power.
func replaceWith(path string, data []byte, mode fs.FileMode) error {
	return durable.Disk{}.Put(path, data, durable.PutOptions{Temp: "." + filepath.Base(path) + ".*", Mode: mode})
}
