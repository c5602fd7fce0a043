// Package docs is the documentation for users: Markdown files that are part of the program, which `deepwork help TOPIC`
// and the page Help show.
package docs

import (
	"embed"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// Files are the pages. Their links are relative.
//
//go:embed *.md */*.md
var Files embed.FS

// A Topic is a page of the documentation.
type Topic struct {
	Name  string // such as "howto/proxy"
	Title string
	First string // its first sentence
	Text  string // Markdown
}

// Topics returns all pages but the index, by name.
func Topics() []Topic {
	var all []Topic
	_ = fs.WalkDir(Files, ".", func(file string, d fs.DirEntry, _ error) error { // embedded files can be read
		name, ok := strings.CutSuffix(file, ".md")
		if !ok || name == "README" {
			return nil
		}

		data, _ := Files.ReadFile(file)
		title, rest, _ := strings.Cut(strings.TrimPrefix(string(data), "# "), "\n")
		paragraph, _, _ := strings.Cut(strings.TrimSpace(rest), "\n\n")
		all = append(all, Topic{name, title, sentence(paragraph), string(data)})
		return nil
	})
	return all
}

var sentenceEnd = regexp.MustCompile(`[.:]( |$)`)

// sentence returns the first sentence of a paragraph, without the targets of its links.
func sentence(paragraph string) string {
	paragraph = marks.Replace(links.ReplaceAllString(strings.Join(strings.Fields(paragraph), " "), "$1"))
	if end := sentenceEnd.FindStringIndex(paragraph); end != nil {
		paragraph = paragraph[:end[0]]
	}
	return paragraph + "."
}

// Find returns the topic of a name, whose folder may be left out, or the names of similar topics.
func Find(name string) (found *Topic, near []string) {
	name = strings.TrimSuffix(strings.ToLower(name), ".md")
	for _, t := range Topics() {
		if t.Name == name || path.Base(t.Name) == name {
			return &t, nil
		}
		if strings.Contains(strings.ToLower(t.Name+" "+t.Title+" "+t.First), name) {
			near = append(near, t.Name)
		}
	}
	return nil, near
}
