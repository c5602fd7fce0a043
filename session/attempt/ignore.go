package attempt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ignoredByGit are the lines of .deepwork/.gitignore that keep what servers
// write out of the project's repository (DESIGN "Sessions").
var ignoredByGit = []string{"tmp/", "worktrees/", "board.db*", "logs/"}

// ignore sees to it that git does not take the board's files and the worktrees
// for the project's own: missing lines are added to .deepwork/.gitignore, all
// others left alone. A worktrees folder elsewhere in the project gets a
// .gitignore of its own.
func ignore(root, worktrees string) error {
	home := filepath.Join(root, ".deepwork")
	lines := ignoredByGit
	if rel, inside := below(home, worktrees); inside {
		lines = append(slices.Clone(lines), "/"+rel+"/")
		if rel == "worktrees" {
			lines = ignoredByGit
		}
	} else if _, inside := below(root, worktrees); inside {
		if err := addLines(filepath.Join(worktrees, ".gitignore"), []string{"*"}); err != nil {
			return err
		}
	}
	return addLines(filepath.Join(home, ".gitignore"), lines)
}

// below returns the path of what is inside a folder, with slashes.
func below(folder, path string) (rel string, inside bool) {
	rel, err := filepath.Rel(folder, path)
	if err != nil || rel == "." || !filepath.IsLocal(rel) {
		return "", false
	}
	return filepath.ToSlash(rel), true
}

// addLines adds the lines that a file lacks, and makes it where it is missing.
func addLines(path string, lines []string) error {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	have := make(map[string]bool)
	for line := range strings.Lines(string(text)) {
		have[strings.TrimSpace(line)] = true
	}
	var add strings.Builder
	if len(text) > 0 && text[len(text)-1] != '\n' {
		add.WriteByte('\n')
	}
	missing := false
	for _, line := range lines {
		if !have[line] {
			missing = true
			add.WriteString(line + "\n")
		}
	}
	if !missing {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making the folder of %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	_, err = f.WriteString(add.String())
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
