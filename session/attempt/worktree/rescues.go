package worktree

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// keptOf and keptBeside are what the messages of rescue commits begin with,
// before and after the attempt's name.
const (
	keptOf     = "Work of attempt "
	keptIn     = " in "
	keptBeside = " beside its worktrees"
)

// Rescues lists what was kept of an attempt in these repositories, by this Remove
// or an earlier one: the answer of a Remove that was cut short by a crash is lost,
// its refs are not. Each repository is looked at once, whichever of its worktrees
// are named; one that is gone has none. It changes nothing, runs git and waits for
// it. What is in the order of repos and then by ref.
func (k *Keeper) Rescues(ctx context.Context, attempt string, repos []string) ([]Kept, error) {
	if err := checkAttempt(attempt); err != nil {
		return nil, fmt.Errorf("listing what was kept: %w", err)
	}
	var out []Kept
	seen := map[string]bool{}
	for _, path := range repos {
		r, err := k.findRepo(ctx, path)
		if errors.Is(err, ErrNotRepo) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("listing what was kept of attempt %s: %w", attempt, err)
		}
		if seen[r.common] {
			continue
		}
		seen[r.common] = true
		text, err := k.git(ctx, r.call("for-each-ref", "--format=%(refname) %(objectname) %(contents:subject)",
			rescueRefs+attempt, rescueRefs+attempt+"-*"))
		if err != nil {
			return nil, fmt.Errorf("listing what was kept of attempt %s in %s: %w", attempt, path, err)
		}
		for line := range strings.Lines(text) {
			ref, rest, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
			commit, subject, _ := strings.Cut(rest, " ")
			out = append(out, Kept{Rescue{Path: k.keptFrom(attempt, subject), Ref: ref, Commit: commit}, path})
		}
	}
	return out, nil
}

// A Kept is a Rescue and the repository, as the caller of Rescues named it, that
// has its ref.
type Kept struct {
	Rescue
	Repo string
}

// keptFrom is where the work of a rescue commit lay, by its message; the attempt's
// folder if that does not tell.
func (k *Keeper) keptFrom(attempt, subject string) string {
	name, is := strings.CutPrefix(subject, keptOf+attempt+keptIn)
	if !is || name == "" || !filepath.IsLocal(name) {
		return k.folder(attempt)
	}
	return filepath.Join(k.folder(attempt), name)
}
