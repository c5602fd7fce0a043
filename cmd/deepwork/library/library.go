// Package library has jobs, a reviewer and an executor to copy into a project and change there.
package library

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"deepwork/actor/durable"
	"deepwork/catalog"
	"deepwork/catalog/job"
)

//go:embed jobs scripts
var embedded embed.FS

// Example is the job that init adds to a project without jobs.
const Example = "release_notes"

// A Piece is a job or a script of the library.
type Piece struct {
	Name    string
	Summary string
	Path    string // where it is copied to, below the project's root, with slashes
	Config  string // what to set in the project's config; "" means nothing
	Say     string // the sentence to the agent that starts a job; "" for a script
	Checks  bool   // it is a job with checks, which the user approves

	from string // the file or folder in the program
}

// All returns the pieces: the jobs by name, then the scripts.
func All() []Piece {
	entries, err := embedded.ReadDir("jobs")
	if err != nil {
		panic(err) // it is embedded
	}

	var all []Piece
	for _, e := range entries {
		from := path.Join("jobs", e.Name())
		source, _ := embedded.ReadFile(path.Join(from, job.FileName))
		j, faults := job.Parse(from, e.Name(), source)
		if j == nil {
			panic(faults) // the tests load it
		}
		all = append(all, Piece{
			Name: j.Name, Summary: j.Summary, Path: path.Join(catalog.JobsFolder, j.Name), from: from,
			Say:    fmt.Sprintf("Start the workflow %s of %s.", j.Workflows[0].Name, j.Name),
			Checks: slices.ContainsFunc(j.Steps, func(s job.Step) bool { return len(s.Checks) > 0 }),
		})
	}

	return append(all,
		Piece{
			Name:    "reviewer",
			Summary: "A script that reviews outputs, to begin your own with",
			Path:    ".deepwork/reviewer.sh",
			from:    "scripts/reviewer.sh",
			Config:  "quality_gate: {agent_review_command: [./.deepwork/reviewer.sh]}",
		},
		Piece{
			Name:    "executor",
			Summary: "A script that works on tasks of the board, to begin your own with",
			Path:    ".deepwork/executor.sh",
			from:    "scripts/executor.sh",
			Config:  "executors: {SCRIPT: {command: [./.deepwork/executor.sh]}}",
		},
	)
}

// Find returns the piece of a name, or nil.
func Find(name string) *Piece {
	all := All()
	if i := slices.IndexFunc(all, func(p Piece) bool { return p.Name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// Add copies the piece into the project at root, whole or not at all: a running server never sees half of it. It
// replaces nothing; fs.ErrExist means that its path is taken.
func (p *Piece) Add(root string) error {
	target := filepath.Join(root, filepath.FromSlash(p.Path))
	if err := durable.Inside(root, target); err != nil {
		return err
	}
	if _, err := os.Lstat(target); err == nil {
		return fs.ErrExist
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	if p.Say == "" {
		text, err := embedded.ReadFile(p.from)
		if err != nil {
			return err
		}
		return durable.Disk{}.Put(target, text,
			durable.PutOptions{Temp: "." + filepath.Base(target) + ".*", Mode: 0o755})
	}

	staged, err := os.MkdirTemp(filepath.Join(root, ".deepwork"), ".add-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(staged)

	files, err := fs.Sub(embedded, p.from)
	if err != nil {
		return err
	}
	whole := filepath.Join(staged, p.Name)
	if err := os.CopyFS(whole, files); err != nil {
		return err
	}
	return os.Rename(whole, target)
}
