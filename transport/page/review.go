package page

import (
	"cmp"
	"context"
	"fmt"
	"html"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/merge"
	"deepwork/session/show"
)

const (
	// commentsTopic is the topic of the comments on an attempt's diff: comments:ATTEMPT.
	commentsTopic = "comments"
	// maxDiff is about how many bytes of a page its diff may take. The rest has pages of its own.
	maxDiff = 35_000
	// lineBytes is what a line of a diff takes in addition to its text.
	lineBytes = 120
	// fileBytes is what a file takes in addition to its lines.
	fileBytes = 600
	// maxLine is how many bytes of a line a page shows.
	maxLine = 4000
	// maxFiles is how many changed files a page lists.
	maxFiles = 200
)

// A review is what an attempt has changed, and the comments on it.
type review struct {
	Tree     folder
	Diffs    []fileDiff
	Cut      bool   // a part of the diff is left out
	Files    int    // changed files that are not in Tree
	NextFile int    // the number of the first of these
	Split    bool   // the diff is shown side by side
	Path     string // of the one file that is shown, "" for all
	Comments []merge.Comment
	Waiting  int // comments that are not queued
}

func (s *Site) reviewOf(
	ctx context.Context, who session.Caller, r *http.Request, a *attempt.FullAttemptReply,
) (v review, err error) {
	asked := r.URL.Query()
	v.Split, v.Path = asked.Get("diff") == "split", asked.Get("path")
	args := merge.DiffArgs{Target: onAttempt(r), MaxBytes: new(maxDiff)}
	if v.Path != "" {
		args.Paths, args.MaxBytes = []string{v.Path}, new(merge.MaxDiff)
		args.Text = new(asked.Has("text"))
	}
	diff, err := merge.Diff(ctx, s.Board, who, args)
	if err != nil {
		return v, err
	}
	comments, err := merge.CommentAttempt(ctx, s.Board, who, merge.CommentArgs{Target: onAttempt(r)})
	if err != nil {
		return v, err
	}
	v.Comments, v.Cut = comments.Comments, diff.Truncated
	for _, c := range v.Comments {
		if !c.Queued {
			v.Waiting++
		}
	}

	for _, d := range diff.Diffs {
		files := parseDiff(d.RepoName, d.Diff)
		for i := range files {
			files[i].RepoID = d.RepoID
			if size, named := d.Binary[files[i].File]; named && size >= 0 {
				files[i].Size = &size
			}
			files[i].place(v.Comments)
			files[i].color()
		}
		v.Diffs = append(v.Diffs, files...)
	}

	from, _ := strconv.Atoi(asked.Get("from")) // else from the first line
	v.shorten(max(from, 0))
	from, _ = strconv.Atoi(asked.Get("files")) // else from the first file
	v.grow(a, max(from, 0))
	return v, nil
}

// shorten leaves out what does not fit on a page: the lines before a number, and files at the end.
func (v *review) shorten(from int) {
	left := maxDiff
	for i := range v.Diffs {
		f := &v.Diffs[i]
		lines := f.Lines[min(from, len(f.Lines)):]
		left -= fileBytes
		n := 0
		for ; n < len(lines) && left > 0; n++ {
			lines[n].Text = jsontext.Clip(lines[n].Text, maxLine)
			left -= lineBytes + max(sizeOf(lines[n].Text), len(lines[n].HTML))
			for _, c := range lines[n].Comments {
				left -= lineBytes + sizeOf(c.Text)
			}
		}
		if n == 0 && len(lines) > 0 {
			v.Diffs, v.Cut = v.Diffs[:i], true
			return
		}
		f.Lines = lines[:n]
		f.More = len(lines) - n
		f.Next = from + n
	}
}

// sizeOf returns how many bytes a text takes on a page.
func sizeOf(text string) int { return len(html.EscapeString(text)) }

// place puts comments at the lines that they are on.
func (f *fileDiff) place(all []merge.Comment) {
	for _, c := range all {
		if c.RepoID != f.RepoID || c.File != f.File {
			continue
		}

		i := slices.IndexFunc(f.Lines, func(l diffLine) bool {
			return c.Side == "new" && l.New == c.Line && l.Kind != "hunk" ||
				c.Side == "old" && l.Old == c.Line && l.Kind != "hunk"
		})
		if i >= 0 {
			f.Lines[i].Comments = append(f.Lines[i].Comments, c)
		}
	}
}

// grow makes the tree of the changed files, from a number on. Files that the page shows are links into it.
func (v *review) grow(a *attempt.FullAttemptReply, from int) {
	seen := map[[2]string]bool{}
	v.NextFile = from + maxFiles
	put := func(repo, file string, t treeFile) {
		n := len(seen)
		seen[[2]string{repo, file}] = true
		if n >= v.NextFile {
			v.Files++
		}
		if n < from || n >= v.NextFile {
			return
		}

		t.Name = path.Base(file)
		for _, c := range v.Comments {
			if c.RepoName == repo && c.File == file {
				t.Comments++
			}
		}

		dir := path.Dir(file)
		if len(a.Repos) > 1 {
			dir = path.Join(repo, dir)
		}
		v.Tree.add(dir, t)
	}
	for i, d := range v.Diffs {
		put(d.Repo, d.File, treeFile{Link: fmt.Sprintf("#file-%d", i), Added: d.Added, Removed: d.Removed, Here: true})
	}

	for _, repo := range a.Repos {
		for _, file := range repo.ChangedFiles {
			if !seen[[2]string{repo.RepoName, file}] {
				put(repo.RepoName, file, treeFile{Link: "?path=" + url.QueryEscape(file)})
			}
		}
	}
	v.Tree.join()
}

// comment adds a comment to a line.
func (s *Site) comment(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	var c merge.CommentArg
	if err := fill(r, &c); err != nil {
		return "", err
	}
	return s.onComments(ctx, who, r, merge.CommentArgs{Comments: []merge.CommentArg{c}})
}

// removeComment removes a comment, or all that wait.
func (s *Site) removeComment(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	return s.onComments(ctx, who, r, merge.CommentArgs{Remove: []string{r.PostForm.Get("comment")}})
}

// sendComments sends all comments as one follow-up.
func (s *Site) sendComments(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	return s.onComments(ctx, who, r, merge.CommentArgs{Send: true})
}

func (s *Site) onComments(
	ctx context.Context, who session.Caller, r *http.Request, a merge.CommentArgs,
) (string, error) {
	a.Target = onAttempt(r)
	done, err := merge.CommentAttempt(ctx, s.Board, who, a)
	if err != nil {
		return "", err
	}
	s.Touch(commentsTopic + ":" + done.AttemptID)
	said := board.OrEmpty(done.Notice)
	if done.Sent != nil {
		said = cmp.Or(said, "The agent goes on with the comments as soon as a slot is free.")
	}
	return s.withNotice(who, back(r, attemptURL(r)), said), nil
}

// A folder is a part of the tree of changed files.
type folder struct {
	Name    string // of a repository, or the path below the folder around it
	Folders []*folder
	Files   []treeFile
}

// A treeFile is a changed file. Its link leads to its changes, on this page or, if they are left out, on one of their
// own.
type treeFile struct {
	Name, Link     string
	Added, Removed int
	Here           bool
	Comments       int
}

// add puts a file into the tree by its path.
func (f *folder) add(dir string, file treeFile) {
	for name := range strings.SplitSeq(dir, "/") {
		if name == "" || name == "." {
			continue
		}

		i := slices.IndexFunc(f.Folders, func(sub *folder) bool { return sub.Name == name })
		if i < 0 {
			i = len(f.Folders)
			f.Folders = append(f.Folders, &folder{Name: name})
		}
		f = f.Folders[i]
	}
	f.Files = append(f.Files, file)
}

// join merges each folder that has nothing but one folder with that one.
func (f *folder) join() {
	for i, sub := range f.Folders {
		for len(sub.Files) == 0 && len(sub.Folders) == 1 {
			only := sub.Folders[0]
			only.Name = path.Join(sub.Name, only.Name)
			sub = only
		}
		f.Folders[i] = sub
		sub.join()
	}
}

// A fileDiff is the part of a diff that is about one file.
type fileDiff struct {
	Repo, RepoID string
	File         string // the new name, or the old one of a file that was deleted
	Note         []string
	Lines        []diffLine
	Added        int
	Removed      int
	More, Next   int    // lines that are left out, and the number of the first
	Size         *int64 // in bytes, of a file that the diff only names
}

// A diffLine is a line of a diff. Old and New are its numbers, 0 on the side that lacks it.
type diffLine struct {
	Kind     string // add, del, same, hunk or note
	Old, New int
	Text     string
	HTML     template.HTML // the text in colors, "" for those of other kinds
	Comments []merge.Comment
}

// color colors the lines, first those of the old file, then those of the new one.
func (f *fileDiff) color() {
	for _, kind := range []string{"del", "add"} {
		var text strings.Builder
		var of []int
		for i := range f.Lines {
			if l := &f.Lines[i]; l.Kind == "same" || l.Kind == kind {
				l.Text = jsontext.Clip(l.Text, maxLine)
				text.WriteString(l.Text + "\n")
				of = append(of, i)
			}
		}
		lines := strings.Split(string(highlight(f.File, []byte(text.String()))), "\n")
		if len(lines) <= len(of) {
			return // the lexer has dropped lines
		}
		for n, i := range of {
			f.Lines[i].HTML = template.HTML(lines[n])
		}
	}
}

// parseDiff splits the output of git diff into files.
func parseDiff(repo, text string) (all []fileDiff) {
	var f *fileDiff
	var old, now int
	inHunk := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "diff --git "); ok {
			all = append(all, fileDiff{Repo: repo, File: nameOf(name)})
			f, inHunk = &all[len(all)-1], false
			continue
		}
		if f == nil {
			continue
		}
		if strings.HasPrefix(line, "@@ ") {
			inHunk = true
			old, now = hunkStart(line)
			f.Lines = append(f.Lines, diffLine{Kind: "hunk", Text: show.Exact(line)})
			continue
		}
		if !inHunk {
			switch name, ok := strings.CutPrefix(line, "+++ "); {
			case ok && name != "/dev/null":
				f.File = unquote(name, "b/")
			case ok, strings.HasPrefix(line, "index "), strings.HasPrefix(line, "--- "):
			default:
				f.Note = append(f.Note, show.Exact(line))
			}
			continue
		}
		line = show.Exact(strings.TrimSuffix(line, "\r"))
		switch {
		case strings.HasPrefix(line, "+"):
			f.Lines = append(f.Lines, diffLine{Kind: "add", New: now, Text: line[1:]})
			f.Added++
			now++
		case strings.HasPrefix(line, "-"):
			f.Lines = append(f.Lines, diffLine{Kind: "del", Old: old, Text: line[1:]})
			f.Removed++
			old++
		case strings.HasPrefix(line, "\\"):
			f.Lines = append(f.Lines, diffLine{Kind: "note", Text: line})
		default:
			f.Lines = append(f.Lines, diffLine{Kind: "same", Old: old, New: now, Text: strings.TrimPrefix(line, " ")})
			old++
			now++
		}
	}
	return all
}

// nameOf returns the new name in the heading "a/old b/new".
func nameOf(names string) string {
	if i := strings.LastIndex(names, ` "b/`); i >= 0 {
		return unquote(names[i+1:], "b/")
	}

	// Without a rename both names are the same: then the second half is the name even if it has " b/".
	half := len(names) / 2
	if len(names)%2 == 1 && strings.HasPrefix(names[half:], " b/") && names[2:half] == names[half+3:] {
		return names[half+3:]
	}
	if i := strings.LastIndex(names, " b/"); i >= 0 {
		return names[i+3:]
	}
	return names
}

// unquote returns the name of a file as git prints it, in quotes if it has unusual characters.
func unquote(name, prefix string) string {
	name, _, _ = strings.Cut(name, "\t")
	if plain, err := strconv.Unquote(name); err == nil {
		name = plain
	}
	return strings.TrimPrefix(name, prefix)
}

// hunkStart reads the first numbers of "@@ -1,2 +3,4 @@".
func hunkStart(line string) (old, now int) {
	for _, word := range strings.Fields(line)[1:] {
		number, _, _ := strings.Cut(word[1:], ",")
		n, _ := strconv.Atoi(number)
		switch word[0] {
		case '-':
			old = n
		case '+':
			return old, n
		}
	}
	return old, now
}

// Pairs returns the lines of a file in two columns: what was removed beside what was added.
func (f fileDiff) Pairs() (all [][2]diffLine) {
	for i := 0; i < len(f.Lines); {
		if f.Lines[i].Kind != "del" && f.Lines[i].Kind != "add" {
			all = append(all, [2]diffLine{f.Lines[i], f.Lines[i]})
			i++
			continue
		}

		var del, add []diffLine
		for ; i < len(f.Lines) && f.Lines[i].Kind == "del"; i++ {
			del = append(del, f.Lines[i])
		}
		for ; i < len(f.Lines) && f.Lines[i].Kind == "add"; i++ {
			add = append(add, f.Lines[i])
		}
		for n := range max(len(del), len(add)) {
			var pair [2]diffLine
			if n < len(del) {
				pair[0] = del[n]
			}
			if n < len(add) {
				pair[1] = add[n]
			}
			all = append(all, pair)
		}
	}
	return all
}
