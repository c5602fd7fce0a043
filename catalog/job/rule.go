package job

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"deepwork/catalog/internal/yamltree"
	"deepwork/catalog/jsontext"
)

// maxName is the maximum length of a name or id, and maxSummary that of a summary, in characters.
const (
	maxName    = 200
	maxSummary = 200
)

// rules are the rules for texts, by their names in the tags of the model.
var rules = map[string]yamltree.Text{
	"identifier": rule(identifier),
	// A workflow's name becomes part of a git branch name, and of the job/workflow in a stack, so spaces and
	// slashes are not allowed.
	"workflow name": rule(form(`^[a-zA-Z0-9][a-zA-Z0-9_-]*$`,
		" is not a valid workflow name: use letters, digits, _ and -, beginning with a letter or digit")),
	"called": rule(form(`^([a-z][a-z0-9_]*/)?[a-zA-Z0-9][a-zA-Z0-9_-]*$`,
		" names no workflow: write its name, or job/name for one of another job")),
	"version": rule(form(`^[0-9]+\.[0-9]+\.[0-9]+$`, ` is not a version: write three numbers, as in "1.0.0"`)),
	"summary": rule(summary),
	"name":    rule(freeName),
	"filled":  rule(filled),
	"judge":   rule(judge),
	"folder":  rule(insideFolder),
	"pattern": rule(pattern),
	"variable": rule(form(`^[A-Za-z_][A-Za-z0-9_]*$`,
		" is not the name of an environment variable: use letters, digits and _")),
	"model": rule(form(`^[A-Za-z0-9][A-Za-z0-9._:/@-]*$`,
		" is not the name of a model: use letters, digits and any of . _ : / @ -, beginning with a letter or digit")),
	"executor": func(s string) (string, error) { return s, CheckExecutor(s) },
	"path": func(s string) (string, error) {
		_, err := rule(insidePath)(s)
		return path.Clean(s), err
	},
}

// rule returns a rule for texts; faultOf returns what is wrong with one.
func rule(faultOf func(s string) string) yamltree.Text {
	return func(s string) (string, error) {
		if fault := faultOf(s); fault != "" {
			return s, errors.New(fault)
		}
		return s, nil
	}
}

// form returns the rule for texts that match a regular expression; the error for others ends with remedy.
func form(expression, remedy string) func(s string) string {
	form := regexp.MustCompile(expression)
	return func(s string) string {
		if !form.MatchString(s) {
			return yamltree.Quote(s) + remedy
		}
		return tooLong(s, maxName)
	}
}

// identifier is the rule of job names and step ids.
var identifier = form(`^[a-z][a-z0-9_]*$`,
	" is not a valid name: use lower-case letters, digits and _, beginning with a letter")

// executorName matches the name of an executor in the config, perhaps with a variant.
var executorName = regexp.MustCompile(`^[A-Z][A-Z0-9_]*(:[A-Z][A-Z0-9_]*)?$`)

// CheckExecutor returns an error if a text cannot be the name of an executor.
func CheckExecutor(s string) error {
	if !executorName.MatchString(s) {
		return fmt.Errorf("%s is not NAME or NAME:VARIANT of an executor, as in CLAUDE_CODE", yamltree.Quote(s))
	}
	return nil
}

// freeName is the rule of the names of outputs, such as report.md.
func freeName(s string) string {
	if s == "" {
		return "is an empty name: give it one"
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return yamltree.Quote(s) + " has control characters in it: remove them"
	}
	return tooLong(s, maxName)
}

func summary(s string) string {
	if s == "" {
		return fmt.Sprintf("is empty: say in 1 to %d characters what this is for", maxSummary)
	}
	return tooLong(s, maxSummary)
}

// judge is the rule of who judges a review.
func judge(s string) string {
	switch {
	case s == "human":
		return ""
	case jsontext.Nearest(s, []string{"human"}) != "":
		return yamltree.Quote(s) + " is not human: did you mean human?"
	}
	return yamltree.Quote(s) +
		" is not human: write by: human for a review by a person, or remove by for one by the reviewer"
}

func filled(s string) string {
	if s == "" {
		return "is empty: fill it in"
	}
	return ""
}

// insidePath is the rule for paths of a job's files: relative to its folder, with slashes, and not leading
// out of it. Symlinks are checked when the file is read.
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

// insideFolder is the rule of folders below the project's root.
func insideFolder(s string) string {
	if s == "project" {
		return ""
	}
	return belowRoot(s, `\`, "control characters or backslashes in it",
		"write project, or the path of a folder below its root, such as backend")
}

// pattern is the rule of patterns of files below the project's root; see Matches.
func pattern(s string) string {
	const rule = "write a pattern relative to the project's root, such as tests/** or go.mod"
	switch fault := belowRoot(s, `\[]{}!`, "other special characters in it than * and ?", rule); {
	case fault != "":
		return fault
	case s[len(s)-1] == '/':
		return yamltree.Quote(s) + " is a folder: add **, as in " + s + "**"
	}
	return tooLong(s, maxName)
}

// belowRoot is the rule for paths below the project's root without certain characters.
func belowRoot(s, none, these, rule string) string {
	switch clean := path.Clean(s); {
	case s == "":
		return "is empty: " + rule
	case strings.ContainsFunc(s, unicode.IsControl), strings.ContainsAny(s, none):
		return yamltree.Quote(s) + " has " + these + ": " + rule
	case path.IsAbs(s), clean == "..", strings.HasPrefix(clean, "../"), len(s) >= 2 && s[1] == ':':
		return yamltree.Quote(s) + " is not below the project's root: " + rule
	}
	return ""
}

// tooLong checks the length of a text, in characters.
func tooLong(s string, most int) string {
	if len(s) <= most {
		return ""
	}
	if n := utf8.RuneCountInString(s); n > most {
		return "is " + strconv.Itoa(n) + " characters long, but at most " + strconv.Itoa(most) +
			" are allowed: shorten it"
	}
	return ""
}
