package session

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"deepwork/actor/durable"
)

// Ignored returns the lines of .deepwork/.gitignore. They keep the files that servers write there out of the
// project's repository (DESIGN "Sessions").
func Ignored() []string { return []string{"tmp/"} }

// maxIgnore is the maximum size of a .gitignore that is added to.
const maxIgnore = 1 << 20

// Ignore adds the lines that a .gitignore lacks, with the line breaks of the file, and creates the
// file and its folder if they are missing. It replaces the file atomically. Other lines do not
// change. A line that is present with a leading slash is not missing. added reports whether a line
// was added. It blocks for the disk.
func Ignore(path string, lines []string) (added bool, err error) {
	text, fi, err := durable.Read(path, maxIgnore)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("adding lines to a .gitignore: %w", err)
	}

	end := "\n"
	if bytes.Contains(text, []byte("\r\n")) {
		end = "\r\n"
	}

	have := make(map[string]bool)
	for line := range bytes.Lines(text) {
		have[string(bytes.TrimSpace(line))] = true
	}

	var add []byte
	for _, line := range lines {
		if !have[line] && !have["/"+line] {
			add = append(add, line+end...)
		}
	}
	if len(add) == 0 {
		return false, nil
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		add = append([]byte(end), add...)
	}

	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, fmt.Errorf("adding lines to %s: %w", path, err)
	}

	mode := fs.FileMode(0o644)
	if fi != nil {
		mode = fi.Mode().Perm()
	}
	// Replace it, since a hard link may make a file outside of the project the same file.
	if err := (durable.Disk{}).Put(path, append(text, add...), durable.PutOptions{Mode: mode}); err != nil {
		return false, fmt.Errorf("adding lines to a .gitignore: %w", err)
	}
	return true, nil
}
