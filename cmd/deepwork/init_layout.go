package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"deepwork/actor/durable"
	"deepwork/catalog/job"
	"deepwork/session"
)

// layOutSchema keeps an existing schema, and reports whether it differs from this binary's: a
// person may have changed it.
func layOutSchema(file string) (string, error) {
	schema := job.Schema()
	done, err := createFile(file, schema)
	if err != nil || done != kept {
		return done, err
	}
	if there, err := os.ReadFile(file); err == nil && !bytes.Equal(there, schema) {
		return keptOld, nil
	}
	return kept, nil
}

// layOutIgnores adds the lines that a .gitignore lacks and keeps the others.
func layOutIgnores(file string) (string, error) {
	_, missing := os.Lstat(file)
	added, err := session.Ignore(file, session.Ignored())
	switch {
	case err != nil:
		return "", err
	case missing != nil:
		return created, nil
	case added:
		return "extended", nil
	}
	return kept, nil
}

// layOutExample adds the example job to a jobs folder that has no job yet. It renames it into
// place, so that a running server never sees half of it.
func layOutExample(jobs string) (string, error) {
	entries, err := os.ReadDir(jobs)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if len(entries) > 0 {
		return kept, nil
	}
	if err := durable.Inside(filepath.Dir(filepath.Dir(jobs)), jobs); err != nil {
		return "", err
	}
	if err := os.MkdirAll(jobs, 0o755); err != nil {
		return "", err
	}
	staged, err := os.MkdirTemp(filepath.Dir(jobs), ".init-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(staged)
	example := filepath.Join(staged, exampleJob)
	if err := copyTree(templates, "template/jobs/"+exampleJob, example); err != nil {
		return "", err
	}
	if err := os.Rename(example, filepath.Join(jobs, exampleJob)); err != nil {
		return "", err
	}
	return created, nil
}

// copyTree writes the folder dir of fsys to the new folder to.
func copyTree(fsys fs.FS, dir, to string) error {
	return fs.WalkDir(fsys, dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(strings.TrimPrefix(name, path.Clean(dir)), "/")
		target := filepath.Join(to, filepath.FromSlash(rel))
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o644)
	})
}
