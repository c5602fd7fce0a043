package worktree

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

var (
	phases = []phase{creating, made, undoing, removing}
	steps  = []step{planned, branching, adding, added, ready, rescued, dropping, dropped}
)

// parseJournal reads the bytes of an attempt's journal. What it says is done without
// asking anybody, so an incomplete journal is refused.
func parseJournal(attempt string, data []byte) (*journal, error) {
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
			return nil, fmt.Errorf("is damaged: worktree %d has the paths %q and %q, which are to be absolute", i, e.Path, e.Common)
		}
	}
	return &j, nil
}
