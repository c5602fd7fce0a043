package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// unplain are the words and phrases that texts for people and agents do not have, each with what to write instead.
var unplain = []struct{ not, but string }{
	{`mend(s|ed|ing)?`, "fix, correct"},
	{`heed(s|ed|ing)?`, "follow, read"},
	{`tend(s|ed|ing)? (to|it|them)`, "look after"},
	{`candid(ly)?`, "honest"},
	{`what there is`, "available"},
	{`\w*[^e\s] is none`, "is not a ..."}, // but "there is none",
	{`let be`, "ignored"},
	{`(be|is|are) told of`, "be notified of"},
	{`tells? of`, "reports, describes"},
	{`besides`, "also, in addition"},
	{`whoever`, "any caller that"},
	{`anew`, "again"},
	{`where (it|they) can`, "if possible"},
	{`one (file|line|row|bullet|review|step|processor|task|fault|question|name) an? [a-z]+`, "one X per Y"},
	{`as ever`, "as before"},
	{`by (itself|themselves)`, "automatically"},
	{`(nil|null): none`, "nil means none"},
	{`is to be an?`, "expected a"},
	{`there is something about`, "reports false if"},
	{`seen to`, "dispatched, done"},
}

var unplainWords = func() *regexp.Regexp {
	var all []string
	for _, w := range unplain {
		all = append(all, w.not)
	}
	return regexp.MustCompile(`(?i)\b(` + strings.Join(all, "|") + `)\b`)
}()

// The texts that people and agents read have none of the words above: pages, the document of tools, templates, jobs, and
// what the program's Go files have between quotes (help, errors, descriptions of tools).
func TestTextsAreInPlainWords(t *testing.T) {
	texts, literals := 0, 0
	err := walkSources(filepath.Join("..", ".."), func(path string) error {
		switch name := filepath.Base(path); {
		case strings.HasSuffix(name, "_test.go"):
		case strings.HasSuffix(name, ".go"):
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
					literals++
					text, _ := strconv.Unquote(l.Value)
					checkWords(t, path, text)
				}
				return true
			})
		case strings.HasSuffix(name, ".md"), strings.HasSuffix(name, ".yml"), strings.HasSuffix(name, ".example"), strings.HasSuffix(name, ".html"), strings.HasSuffix(name, ".schema.json"):
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			texts++
			checkWords(t, path, string(data))
		}
		return nil
	})
	if err != nil || texts < 30 || literals < 1000 {
		t.Errorf("%d texts and %d literals were read: %v", texts, literals, err)
	}
}

func checkWords(t *testing.T, path, text string) {
	t.Helper()
	for _, at := range unplainWords.FindAllStringIndex(text, -1) {
		from, to := max(0, at[0]-30), min(len(text), at[1]+30)
		t.Errorf("%s: %q in %q; see the list in this test for what to write instead", path, text[at[0]:at[1]], text[from:to])
	}
}
