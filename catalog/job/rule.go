package job

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"deepwork/catalog/internal/yamltree"
)

// maxName is the longest name or id, and maxSummary the longest summary, in
// characters.
const (
	maxName    = 200
	maxSummary = 200
)

// identifier is the rule of job names and step ids: ^[a-z][a-z0-9_]*$.
func identifier(s string) string {
	ok := s != "" && s[0] >= 'a' && s[0] <= 'z'
	for i := 1; ok && i < len(s); i++ {
		c := s[i]
		ok = c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_'
	}
	if !ok {
		return yamltree.Quote(s) + " is not a valid name: use lower-case letters, digits and _, beginning with a letter"
	}
	return tooLong(s, maxName)
}

// workflowName is the rule of workflow names. They become part of a git branch
// name and of the job/workflow of a stack, so neither blanks nor slashes.
func workflowName(s string) string {
	ok := s != ""
	for i := 0; ok && i < len(s); i++ {
		c := s[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || i > 0 && (c == '_' || c == '-')
	}
	if !ok {
		return yamltree.Quote(s) + " is not a valid workflow name: use letters, digits, _ and -, beginning with a letter or digit"
	}
	return tooLong(s, maxName)
}

// freeName is the rule of the names of outputs: report.md is one.
func freeName(s string) string {
	if s == "" {
		return "is an empty name: give it one"
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return yamltree.Quote(s) + " has control characters in it: remove them"
	}
	return tooLong(s, maxName)
}

// version is three numbers with dots between.
func version(s string) string {
	parts := strings.Split(s, ".")
	ok := len(parts) == 3
	for _, p := range parts {
		ok = ok && p != "" && strings.Trim(p, "0123456789") == ""
	}
	if !ok {
		return yamltree.Quote(s) + ` is not a version: write three numbers, as in "1.0.0"`
	}
	return tooLong(s, maxName)
}

func summary(s string) string {
	if s == "" {
		return fmt.Sprintf("is empty: say in 1 to %d characters what this is for", maxSummary)
	}
	return tooLong(s, maxSummary)
}

func outputType(s string) string {
	if t := OutputType(s); t != File && t != Files {
		return yamltree.Quote(s) + " is not one of file, files"
	}
	return ""
}

func filled(s string) string {
	if s == "" {
		return "is empty: fill it in"
	}
	return ""
}

// insidePath is the rule of the paths of files of a job: relative to its
// folder, with slashes, and not leading out of it. What symlinks make of it is
// judged when the file is read.
func insidePath(s string) string {
	const rule = "write a path relative to the job's folder, such as steps/draft.md"
	switch {
	case s == "":
		return "is empty: " + rule
	case strings.ContainsFunc(s, unicode.IsControl):
		return yamltree.Quote(s) + " has control characters in it: " + rule
	case strings.Contains(s, `\`):
		return yamltree.Quote(s) + " has backslashes in it: separate folders with /"
	case s[0] == '/':
		return yamltree.Quote(s) + " is absolute: " + rule
	case len(s) >= 2 && s[1] == ':' && (s[0]|0x20) >= 'a' && (s[0]|0x20) <= 'z':
		return yamltree.Quote(s) + " begins with a drive letter: " + rule
	}
	clean := path.Clean(s)
	switch {
	case clean == ".." || strings.HasPrefix(clean, "../"):
		return yamltree.Quote(s) + " leads out of the job's folder: move the file into the folder, and " + rule
	case clean == "." || s[len(s)-1] == '/' || strings.HasSuffix(s, "/.") || strings.HasSuffix(s, "/.."):
		return yamltree.Quote(s) + " is a folder, not a file: " + rule
	}
	return ""
}

// tooLong checks the length of a text, in characters.
func tooLong(s string, most int) string {
	if len(s) <= most {
		return ""
	}
	if n := utf8.RuneCountInString(s); n > most {
		return "is " + strconv.Itoa(n) + " characters long, but at most " + strconv.Itoa(most) + " are allowed: shorten it"
	}
	return ""
}
