package worktree

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"deepwork/actor/durable"
	"deepwork/actor/xslices"
	"deepwork/session"
)

// journalVersion is the version of the journal's format; journals of newer versions are not touched.
const journalVersion = 2

// A phase is the state of an attempt's worktrees.
type phase string

const (
	creating phase = "creating" // Create has not returned, so nobody has worked in them
	made     phase = "made"
)

// A journal records the worktrees that were made for an attempt, from before the first one is made until
// after the last one is removed. Only the holder of the attempt's lock may use it.
type journal struct {
	Version int       `json:"version"`
	Attempt string    `json:"attempt"`
	Branch  string    `json:"branch"`
	Phase   phase     `json:"phase"`
	MadeAt  int64     `json:"made_at,omitempty"` // a second before that, Unix time; 0 in journals of older versions
	Trees   []*record `json:"trees"`
	Board   string    `json:"board,omitempty"` // Options.Board
}

// attemptID returns the board's id of the attempt to which the worktrees belong.
func (j *journal) attemptID() string {
	if len(j.Trees) > 0 && j.Trees[0].Attempt != "" {
		return j.Trees[0].Attempt
	}
	return j.Attempt
}

func (j *journal) paths() []string {
	return xslices.Map(j.Trees, func(e *record) string { return e.Path })
}

// A record is the journal's entry for one worktree.
type record struct {
	Tree
	Common string `json:"git_dir"` // the git folder of the repository
	Path   string `json:"-"`       // in the folder of the attempt, with this name
	madeAt int64  // of the journal
	Branch string `json:"branch"`
	Base   string `json:"base"`
	Folder string `json:"folder,omitempty"` // in the worktree, that of Repo in the repository; "" means its top
	Begun  bool   `json:"begun"`            // something of it may exist
	// the private git folder of a contained agent; nil means none
	Private *private `json:"private,omitempty"`
	// an agent was contained here, and nobody but it has decided which repositories its branch adds
	Contained bool       `json:"contained,omitempty"`
	Since     *mergeBase `json:"since,omitempty"` // where work began after the last merge; nil means never merged
}

func (k *Keeper) journalPath(attempt string) string {
	return filepath.Join(k.journal, attempt+".json")
}

// Begun reports whether worktrees of an attempt were made, or partly made, and not removed.
func (k *Keeper) Begun(attempt string) bool { return isThere(k.journalPath(attempt)) }

// maxJournal is the maximum size of a journal in bytes.
const maxJournal = 64 << 20

// load reads an attempt's journal, or returns nil if there is none.
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
		return nil,
			fmt.Errorf("reading the journal of attempt %s: %s %w; its worktrees are left alone until it is repaired: "+
				"save what is in them, then move that file away", attempt, path, err)
	}
	if err := k.Safe(j.paths()...); err != nil {
		return nil, err
	}
	return j, nil
}

// parseJournal parses the journal of an attempt with its worktrees in dir. The worktrees in it are removed
// without asking anybody, so an incomplete journal is refused, and it cannot name folders elsewhere.
func parseJournal(dir, attempt string, data []byte) (*journal, error) {
	var j journal
	if err := json.Unmarshal(data, &j); err != nil {
		return nil, fmt.Errorf("is damaged: %w", err)
	}
	if j.Version != journalVersion || j.Attempt != attempt {
		return nil, fmt.Errorf("is of another version (%d) or attempt (%q); use the deepwork that wrote it", j.Version,
			j.Attempt)
	}
	if j.Phase != creating && j.Phase != made {
		return nil, fmt.Errorf("is damaged: there is no phase %q", j.Phase)
	}

	for i, e := range j.Trees {
		switch {
		case e == nil:
			return nil, fmt.Errorf("is damaged: worktree %d is null", i)
		case !filepath.IsAbs(e.Common) || strings.ContainsRune(e.Common, 0):
			return nil, fmt.Errorf("is damaged: the repository of worktree %d is %q, which must be an absolute path",
				i, e.Common)
		case e.Name != filepath.Base(e.Name) || !filepath.IsLocal(e.Name) || strings.ContainsRune(e.Name, 0):
			return nil, fmt.Errorf("is damaged: %q cannot be the name of worktree %d", e.Name, i)
		}
		e.Path, e.madeAt = filepath.Join(dir, attempt, e.Name), j.MadeAt
	}

	return &j, nil
}

// save makes the journal durable.
func (k *Keeper) save(j *journal) error {
	j.Version, j.Board = journalVersion, k.board
	data, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the journal of attempt %s: %w", j.Attempt, err)
	}
	path := k.journalPath(j.Attempt)
	// written only by the holder of the attempt's lock
	err = durable.Disk{}.Put(path, append(data, '\n'), durable.PutOptions{Temp: j.Attempt + ".new"})
	if err != nil {
		return durable.Explain(fmt.Errorf("writing the journal of attempt %s: %w", j.Attempt, err), path)
	}

	return nil
}

// attempts lists the attempts that have a journal.
func (k *Keeper) attempts() (all []string, err error) {
	list, err := os.ReadDir(k.journal)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the journals: %w", err)
	}
	for _, f := range list {
		if name, ok := strings.CutSuffix(f.Name(), ".json"); ok && attemptName.MatchString(name) {
			all = append(all, name)
		}
	}
	return all, nil
}

// missingError returns ErrNoWorktree, with the command that restores a worktree whose folder is gone.
func (j *journal) missingError(ctx context.Context, path string) error {
	for _, e := range j.Trees {
		if e.Path != path || isThere(path) {
			continue
		}

		used, err := e.checkoutsOf(ctx, e.Branch)
		if err != nil {
			return err
		} else if len(used) > 0 && used[0].admin != e.Common {
			return fmt.Errorf("%w; its branch %s is checked out in %s. If it was moved there, this moves it back: "+
				"git -C %s worktree move %s %s", ErrNoWorktree, e.Branch, used[0].path, session.InShell(e.Common),
				session.InShell(used[0].path), session.InShell(path))
		}
		return fmt.Errorf("%w. This makes it again, without what was not committed: git -C %s worktree add "+
			"--force %s %s", ErrNoWorktree, session.InShell(e.Common), session.InShell(path), e.Branch)
	}

	return ErrNoWorktree
}
