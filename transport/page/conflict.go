package page

import (
	"context"
	"html/template"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/actor/durable"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/show"
)

// A conflictFile is a file with the parts that both sides of a merge have changed.
type conflictFile struct {
	Path  string
	Parts []conflict // none if one side has deleted it, or it is not text
	More  int        // parts that are left out
}

// A conflict is a part of a file as each side has it.
type conflict struct {
	Line         int // at which it begins
	Ours, Theirs template.HTML
}

const (
	// maxConflictFiles is how many files with conflicts a page shows the parts of, and maxConflicts how many of each.
	maxConflictFiles = 10
	maxConflicts     = 5
	// maxConflicted is how many bytes of such a file are read, and maxSide how many of a side are shown.
	maxConflicted = 1 << 20
	maxSide       = 2000
)

// conflictsOf reads the conflicts in the worktree of a repository.
func conflictsOf(repo attempt.AttemptRepo) (all []conflictFile) {
	for i, path := range repo.Conflicts {
		f := conflictFile{Path: path}
		if i < maxConflictFiles {
			if file, _, err := durable.OpenIn(repo.WorktreePath, path); err == nil { // else one side has deleted it
				text, _ := io.ReadAll(io.LimitReader(file, maxConflicted)) // what can be read is shown
				file.Close()
				f.Parts = conflictsIn(path, string(text))
			}
		}
		f.More = max(len(f.Parts)-maxConflicts, 0)
		f.Parts = f.Parts[:min(len(f.Parts), maxConflicts)]
		all = append(all, f)
	}
	return all
}

// conflictsIn finds the marks that git leaves around conflicts.
func conflictsIn(path, text string) (all []conflict) {
	var sides [2][]string
	side, line := -1, 0
	shown := func(lines []string) template.HTML {
		return highlight(path, []byte(jsontext.Clip(show.Exact(strings.Join(lines, "\n")), maxSide)))
	}
	for l := range strings.SplitSeq(text, "\n") {
		line++
		l = strings.TrimSuffix(l, "\r")
		switch {
		case strings.HasPrefix(l, "<<<<<<< "):
			all = append(all, conflict{Line: line})
			sides = [2][]string{}
			side = 0
		case side == 0 && strings.HasPrefix(l, "||||||| "):
			side = 2 // what both had before
		case side >= 0 && l == "=======":
			side = 1
		case side == 1 && strings.HasPrefix(l, ">>>>>>> "):
			last := &all[len(all)-1]
			last.Ours = shown(sides[0])
			last.Theirs = shown(sides[1])
			side = -1
		case side == 0 || side == 1:
			sides[side] = append(sides[side], l)
		}
	}
	return all
}

// An editor is the beginning of links that open a file in the editor of this machine's owner; "" makes no links.
type editor string

// editor returns the one in the config, for those who sit at this machine.
func (s *Site) editor(ctx context.Context, who session.Caller) (editor, error) {
	if !who.Owner {
		return "", nil
	}

	c, err := s.Config(ctx)
	if err != nil {
		return "", err
	}
	return editor(c.UI.EditorURL), nil
}

// Open returns the link that opens a file, "" if its path is not absolute.
func (e editor) Open(parts ...string) template.URL {
	path := filepath.Join(parts...)
	if e == "" || !filepath.IsAbs(path) {
		return ""
	}
	path = "/" + strings.TrimPrefix(filepath.ToSlash(path), "/")
	return template.URL(string(e) + (&url.URL{Path: path}).EscapedPath())
}

// EditorFile returns the link that opens a changed file, "" if it is not on this machine.
func (p *workPage) EditorFile(f fileDiff) template.URL {
	i := slices.IndexFunc(p.Repos, func(r attempt.AttemptRepo) bool { return r.RepoID == f.RepoID && r.Exists })
	if i < 0 {
		return ""
	}
	return p.Editor.Open(p.Repos[i].WorktreePath, filepath.FromSlash(f.File))
}
