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

	"deepwork/actor/xslices"
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
	// maxFiles is how many changed files a page lists, and maxSections how many of them it has a section of.
	maxFiles    = 200
	maxSections = 80
	// maxUnfolded is how many changed lines a file may have to be shown among others.
	maxUnfolded = 250
)

// A review is what an attempt has changed, and the comments on it.
type review struct {
	Tree     folder
	Diffs    []fileDiff
	Stat     *diffstat
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
	files, more, err := s.changedFiles(ctx, who, onAttempt(r))
	if err != nil {
		return v, err
	}
	v.Stat = statOf(files, more)
	v.fold(files)
	comments, err := merge.CommentAttempt(ctx, s.Board, who, merge.CommentArgs{Target: onAttempt(r)})
	if err != nil {
		return v, err
	}
	v.Comments = comments.Comments
	for _, c := range v.Comments {
		if !c.Queued {
			v.Waiting++
		}
	}

	if err := s.readLines(ctx, who, r, &v); err != nil {
		return v, err
	}
	from, _ := strconv.Atoi(asked.Get("from")) // else from the first line
	v.shorten(max(from, 0))
	from, _ = strconv.Atoi(asked.Get("files")) // else from the first file
	v.grow(a, files, max(from, 0))
	return v, nil
}

// fold chooses the files that the page has sections of. Those whose lines it shows are first; the others, which are
// large or do not fit, are folded. files is sorted accordingly.
func (v *review) fold(files []fileDiff) {
	left := maxDiff
	for i := range files {
		f := &files[i]
		size := fileBytes + lineBytes*(f.Added+f.Removed)
		f.Folded = f.Added+f.Removed > maxUnfolded || size > left
		if v.Path != "" {
			f.Folded = f.File != v.Path
		}
		if !f.Folded {
			left -= size
		}
	}
	slices.SortStableFunc(files, func(a, b fileDiff) int {
		order := map[bool]int{true: 1}
		return order[a.Folded] - order[b.Folded]
	})

	v.Diffs = slices.Clone(files[:min(len(files), maxSections)])
	v.Cut = len(files) > maxSections
	if v.Path != "" {
		v.Diffs = slices.DeleteFunc(v.Diffs, func(f fileDiff) bool { return f.Folded })
	}
}

// readLines reads the lines of the files that are not folded.
func (s *Site) readLines(ctx context.Context, who session.Caller, r *http.Request, v *review) error {
	args := merge.DiffArgs{
		Target:   onAttempt(r),
		MaxBytes: new(merge.MaxDiff),
		Text:     new(v.Path != "" && r.URL.Query().Has("text")),
	}
	for _, f := range v.Diffs {
		if !f.Folded {
			args.Paths = append(args.Paths, f.File)
		}
		if !f.Folded && f.Old != "" {
			args.Paths = append(args.Paths, f.Old)
		}
	}
	if len(args.Paths) == 0 {
		return nil
	}
	diff, err := merge.Diff(ctx, s.Board, who, args)
	if err != nil {
		return err
	}

	v.Cut = v.Cut || diff.Truncated
	for _, d := range diff.Diffs {
		for _, read := range parseDiff(d) {
			i := slices.IndexFunc(v.Diffs, func(f fileDiff) bool {
				return f.RepoID == d.RepoID && f.File == read.File && !f.Folded
			})
			if i < 0 {
				continue
			}
			f := &v.Diffs[i]
			f.Note = read.Note
			f.Lines = read.Lines
			if size, named := d.Binary[f.File]; named && size >= 0 {
				f.Size = &size
			}
			f.place(v.Comments)
			f.color()
		}
	}
	return nil
}

// shorten leaves out what does not fit on a page: the lines before a number, and those of files at the end.
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
		f.Folded = f.Folded || n == 0 && len(lines) > 0
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
func (v *review) grow(a *attempt.FullAttemptReply, files []fileDiff, from int) {
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
	linkTo := func(file string) string {
		link := "?path=" + url.QueryEscape(file)
		if v.Split {
			link += "&diff=split"
		}
		return link
	}
	for i, f := range files {
		link := linkTo(f.File)
		if i < len(v.Diffs) {
			link = fmt.Sprintf("#file-%d", i)
		}
		put(f.Repo, f.File, treeFile{Link: link, Added: f.Added, Removed: f.Removed, Counted: true})
	}

	for _, repo := range a.Repos {
		for _, file := range repo.ChangedFiles {
			if !seen[[2]string{repo.RepoName, file}] {
				put(repo.RepoName, file, treeFile{Link: linkTo(file)})
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
	Counted        bool
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
	merge.FileDiff
	Repo, RepoID string
	Lines        []diffLine
	Folded       bool   // the lines are on a page of their own
	More, Next   int    // lines that are left out, and the number of the first
	Size         *int64 // in bytes, of a file that the diff only names
}

// A diffLine is a line of a diff.
type diffLine struct {
	merge.DiffLine
	HTML     template.HTML // the text in colors, "" for those of other kinds
	Comments []merge.Comment
}

// parseDiff splits a diff into files.
func parseDiff(d attempt.RepoDiff) (all []fileDiff) {
	for _, f := range merge.ParseDiff(d.Diff) {
		of := fileDiff{FileDiff: f, Repo: d.RepoName, RepoID: d.RepoID}
		of.Note = xslices.Map(f.Note, show.Exact)
		for _, l := range f.Lines {
			l.Text = show.Exact(l.Text)
			of.Lines = append(of.Lines, diffLine{DiffLine: l})
		}
		all = append(all, of)
	}
	return all
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
