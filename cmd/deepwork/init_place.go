package main

import (
	"fmt"
	"os"
	"path/filepath"

	"deepwork/session/show"
)

// checkPlace refuses to make a project of a folder inside another one, unless --path says so, and warns of the home folder.
func (a *app) checkPlace() error {
	if a.path != "" {
		return nil
	}
	here, err := filepath.Abs(".")
	if err != nil {
		return fmt.Errorf("finding the current folder: %w", err)
	}
	if home, err := os.UserHomeDir(); err == nil && relative(here, home) == "." {
		fmt.Fprintln(a.err, "deepwork: warning: this is your home folder, which is rarely a project: every folder in it would be inside this project")
	}
	if parent, why := parentProject(here); parent != "" {
		return fmt.Errorf("this folder is inside %s, %s; run deepwork init --path %s to prepare that one, or deepwork init --path . to prepare this one", inline(parent), why, inline(relative(here, parent)))
	}
	return nil
}

// relative returns a folder above here as an argument.
func relative(here, above string) string {
	if rel, err := filepath.Rel(here, above); err == nil {
		return rel
	}
	return above
}

// parentProject returns the project that a folder is in, and what makes it one, or "" if the folder
// is a project itself or in none: the nearest folder above that has .deepwork or is a repository.
func parentProject(dir string) (parent, why string) {
	is := func(dir, name string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
	if is(dir, ".deepwork") || is(dir, ".git") {
		return "", ""
	}
	for above := filepath.Dir(dir); ; above = filepath.Dir(above) {
		switch {
		case is(above, ".deepwork"):
			return above, "a project that has .deepwork"
		case is(above, ".git"):
			return above, "a git repository"
		case above == filepath.Dir(above):
			return "", ""
		}
	}
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	if !ok {
		return false
	}
	_, _, is := show.TerminalSize(file)
	return is
}
