package merge

import (
	"strconv"
	"strings"
)

// A FileDiff is the part of a diff that is about one file.
type FileDiff struct {
	File    string // the new name, or the old one of a file that was deleted
	Old     string // the old name of one that was renamed, if git has printed only the numbers
	Note    []string
	Lines   []DiffLine
	Added   int
	Removed int
}

// A DiffLine is a line of a diff. Old and New are its numbers, 0 on the side that lacks it.
type DiffLine struct {
	Kind     string // add, del, same, hunk or note
	Old, New int
	Text     string
}

// ParseDiff splits the output of git diff into files.
func ParseDiff(text string) (all []FileDiff) {
	var f *FileDiff
	var old, now int
	inHunk := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "diff --git "); ok {
			all = append(all, FileDiff{File: nameOf(name)})
			f, inHunk = &all[len(all)-1], false
			continue
		}
		if f == nil {
			continue
		}
		if strings.HasPrefix(line, "@@ ") {
			inHunk = true
			old, now = hunkStart(line)
			f.Lines = append(f.Lines, DiffLine{Kind: "hunk", Text: line})
			continue
		}
		if !inHunk {
			switch name, ok := strings.CutPrefix(line, "+++ "); {
			case ok && name != "/dev/null":
				f.File = unquote(name, "b/")
			case ok, strings.HasPrefix(line, "index "), strings.HasPrefix(line, "--- "):
			default:
				f.Note = append(f.Note, line)
			}
			continue
		}
		line = strings.TrimSuffix(line, "\r")
		switch {
		case strings.HasPrefix(line, "+"):
			f.Lines = append(f.Lines, DiffLine{Kind: "add", New: now, Text: line[1:]})
			f.Added++
			now++
		case strings.HasPrefix(line, "-"):
			f.Lines = append(f.Lines, DiffLine{Kind: "del", Old: old, Text: line[1:]})
			f.Removed++
			old++
		case strings.HasPrefix(line, "\\"):
			f.Lines = append(f.Lines, DiffLine{Kind: "note", Text: line})
		default:
			f.Lines = append(f.Lines, DiffLine{Kind: "same", Old: old, New: now, Text: strings.TrimPrefix(line, " ")})
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
