package page

import (
	"strconv"
	"strings"

	"deepwork/session/merge"
)

// A fileDiff is the part of a diff that is about one file.
type fileDiff struct {
	Repo, RepoID string
	File         string // the new name, or the old one of a file that was deleted
	Note         []string
	Lines        []diffLine
	Added        int
	Removed      int
	More, Next   int // lines that are left out, and the number of the first
}

// A diffLine is a line of a diff. Old and New are its numbers, 0 on the side that lacks it.
type diffLine struct {
	Kind     string // add, del, same, hunk or note
	Old, New int
	Text     string
	Comments []merge.Comment
}

// parseDiff splits the output of git diff into files.
func parseDiff(repo, text string) (all []fileDiff) {
	var f *fileDiff
	var old, now int
	inHunk := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if name, is := strings.CutPrefix(line, "diff --git "); is {
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
			f.Lines = append(f.Lines, diffLine{Kind: "hunk", Text: line})
			continue
		}
		if !inHunk {
			switch name, is := strings.CutPrefix(line, "+++ "); {
			case is && name != "/dev/null":
				f.File = unquote(name, "b/")
			case is, strings.HasPrefix(line, "index "), strings.HasPrefix(line, "--- "):
			default:
				f.Note = append(f.Note, line)
			}
			continue
		}
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
	if half := len(names) / 2; len(names)%2 == 1 && strings.HasPrefix(names[half:], " b/") && names[2:half] == names[half+3:] {
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
