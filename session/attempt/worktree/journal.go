package worktree

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepwork/actor/durable"
)

// journalVersion is the version of the journal's format; a journal of a newer version is not
// touched.
const journalVersion = 1

// A phase is the state of an attempt's worktrees.
type phase string

const (
	creating phase = "creating" // Create has not returned: nobody has worked in them
	made     phase = "made"
	undoing  phase = "undoing"  // a failed Create is being undone: they contain no work
	removing phase = "removing" // their work is rescued, then they are removed
)

// A step is the state of one worktree; a step is recorded before its action starts.
type step string

const (
	planned   step = "planned"   // nothing exists
	branching step = "branching" // its branch is being created
	adding    step = "adding"    // it is being created and its files are checked out
	added     step = "added"     // files are being copied, then the setup command runs
	ready     step = "ready"
	rescued   step = "rescued"  // its work is rescued
	dropping  step = "dropping" // it is being removed
	dropped   step = "dropped"  // only its branch is left, if it has commits
)

// A journal records what was begun for an attempt and its progress. Only the holder of the
// attempt's lock may use it.
type journal struct {
	Version int       `json:"version"`
	Attempt string    `json:"attempt"`
	Branch  string    `json:"branch"`
	Phase   phase     `json:"phase"`
	Trees   []*record `json:"trees"`
	Rest    *Rescue   `json:"rest,omitempty"` // of files next to the worktrees
	Changed time.Time `json:"changed"`
	Board   string    `json:"board,omitempty"` // Options.Board
}

func (j *journal) paths() []string {
	all := make([]string, len(j.Trees))
	for i, e := range j.Trees {
		all[i] = e.Path
	}
	return all
}

// A record is the journal's entry of one worktree.
type record struct {
	Tree
	Common string  `json:"git_dir"` // the repository's
	Path   string  `json:"path"`
	Branch string  `json:"branch"` // "" means unknown
	Base   string  `json:"base"`   // "" means unknown
	Step   step    `json:"step"`
	Ref    string  `json:"rescue_ref,omitempty"`
	Commit string  `json:"rescue_commit,omitempty"`
	Change *change `json:"change,omitempty"` // being made
	Since  *since  `json:"since,omitempty"`  // of the last change; nil means Base
}

func (k *Keeper) journalPath(attempt string) string {
	return filepath.Join(k.journal, attempt+".json")
}

// maxJournal is the maximum size of a journal in bytes.
const maxJournal = 64 << 20

// load reads an attempt's journal; it returns nil if there is none.
func (k *Keeper) load(attempt string) (*journal, error) {
	path := k.journalPath(attempt)
	data, _, err := durable.Read(path, maxJournal)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading the journal of attempt %s: %w", attempt, err)
	}
	j, err := parseJournal(k.dir, attempt, data)
	if err != nil {
		return nil, fmt.Errorf("reading the journal of attempt %s: %s %w; its worktrees are left alone until it is repaired: save what is in them, then move that file away", attempt, path, err)
	}
	if err := k.unlinked(j.paths()...); err != nil {
		return nil, err
	}
	return j, nil
}

var (
	phases = []phase{creating, made, undoing, removing}
	steps  = []step{planned, branching, adding, added, ready, rescued, dropping, dropped}
)

// parseJournal parses the journal of an attempt with its worktrees in dir. Its steps are carried
// out without asking anybody, so a journal that is incomplete or names a folder elsewhere is
// refused.
func parseJournal(dir, attempt string, data []byte) (*journal, error) {
	var j journal
	if err := json.Unmarshal(data, &j); err != nil {
		return nil, fmt.Errorf("is damaged: %w", err)
	}
	if j.Version != journalVersion || j.Attempt != attempt {
		return nil, fmt.Errorf("is of another version (%d) or attempt (%q); use the deepwork that wrote it", j.Version, j.Attempt)
	}
	if !slices.Contains(phases, j.Phase) {
		return nil, fmt.Errorf("is damaged: there is no phase %q", j.Phase)
	}
	for i, e := range j.Trees {
		switch {
		case e == nil:
			return nil, fmt.Errorf("is damaged: worktree %d is null", i)
		case !slices.Contains(steps, e.Step):
			return nil, fmt.Errorf("is damaged: worktree %d has no step %q", i, e.Step)
		case !filepath.IsAbs(e.Path) || !filepath.IsAbs(e.Common) || strings.ContainsRune(e.Path+e.Common, 0):
			return nil, fmt.Errorf("is damaged: worktree %d has the paths %q and %q, which must be absolute", i, e.Path, e.Common)
		case e.Name != filepath.Base(e.Name) || !filepath.IsLocal(e.Name) || e.Path != filepath.Join(dir, attempt, e.Name):
			return nil, fmt.Errorf("is damaged: worktree %d is said to be at %q; expected in %s", i, e.Path, filepath.Join(dir, attempt))
		}
	}
	return &j, nil
}

// save makes the journal durable, before and after each step.
func (k *Keeper) save(j *journal) error {
	j.Version, j.Board, j.Changed = journalVersion, k.board, time.Now().UTC()
	data, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the journal of attempt %s: %w", j.Attempt, err)
	}
	path := k.journalPath(j.Attempt)
	err = durable.Disk{}.Put(path, append(data, '\n'), durable.PutOptions{Temp: filepath.Base(k.draft(j.Attempt))})
	if err != nil {
		return durable.Explain(fmt.Errorf("writing the journal of attempt %s: %w", j.Attempt, err), path)
	}
	return nil
}

// forget removes a journal whose steps are all done.
func (k *Keeper) forget(attempt string) error {
	if err := (durable.Disk{}).Drop(k.journalPath(attempt)); err != nil {
		return fmt.Errorf("removing the journal of attempt %s: %w", attempt, err)
	}
	return nil
}

// turn enters a phase.
func (k *Keeper) turn(j *journal, p phase) error {
	j.Phase = p
	err := k.save(j)
	k.at("phase " + string(p))
	return err
}

// reach enters a step of one worktree.
func (k *Keeper) reach(j *journal, e *record, s step) error {
	e.Step = s
	err := k.save(j)
	k.at("step " + e.Name + " " + string(s))
	return err
}

// draft is the path of a journal before it is renamed into place. Only the holder of the attempt's
// lock writes it.
func (k *Keeper) draft(attempt string) string { return k.journalPath(attempt) + ".new" }

// attempts lists the attempts that have a journal, or whose draft or lock a crash has left.
func (k *Keeper) attempts() ([]string, error) {
	found := map[string]bool{}
	for _, c := range []struct{ folder, before, after string }{
		{k.journal, "", ".json"}, {k.journal, "", ".json.new"}, {k.locks(), "attempt-", ".lock"},
	} {
		list, err := os.ReadDir(c.folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("reading the journals: %w", err)
		}
		for _, f := range list {
			name, first := strings.CutPrefix(f.Name(), c.before)
			name, last := strings.CutSuffix(name, c.after)
			if first && last && attemptName.MatchString(name) {
				found[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// scratch creates an empty folder for temporary files; done removes it. No other call may use the
// same name at the same time.
func (k *Keeper) scratch(name string) (dir string, done func(), err error) {
	dir = filepath.Join(k.temp(), name)
	done = func() { os.RemoveAll(dir) }
	done()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, fmt.Errorf("making a folder for temporary files: %w", err)
	}
	return dir, done, nil
}
