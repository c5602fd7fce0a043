package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// chooseProject sets the project of init if --path does not: the current folder or, if that is inside
// another project, the one that the person at the terminal chooses.
func (a *app) chooseProject() error {
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
	parent, why := parentProject(here)
	if parent == "" {
		return nil
	}
	a.toldParent = true
	if !isTerminal(a.in) {
		fmt.Fprintf(a.err, "deepwork: warning: this folder is inside %s, %s; the current folder is prepared all the same: for the other one, run deepwork init --path %s\n",
			inline(parent), why, inline(relative(here, parent)))
		return nil
	}
	fmt.Fprintf(a.err, "This folder is inside %s, %s.\nPrepare that one, or the current folder?\nType p for that one (the default), c for the current one: ", inline(parent), why)
	line, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}
	switch answer := strings.ToLower(strings.TrimSpace(line)); {
	case errors.Is(err, io.EOF) && answer == "":
		fmt.Fprintln(a.err)
		return errors.New("nothing was chosen, and nothing done")
	case answer == "" || answer == "p":
		a.path = relative(here, parent)
	case answer != "c":
		return fmt.Errorf("%q is neither p nor c; nothing was done", answer)
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
	_, _, is := terminalSize(file)
	return is
}
