package page

import (
	"html"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

func init() { maxColoring = time.Minute }

// What highlight returns has the text, line by line, and no tag but its own, whatever the language.
func TestHighlight(t *testing.T) {
	t.Parallel()
	testkit.Equal(t, string(highlight("a/x.go", []byte("if x {\n\treturn \"<b>\" // no\n}"))),
		`<span class="hl-k">if</span> x {`+"\n"+`	<span class="hl-k">return</span> <span class="hl-s">&#34;&lt;b&gt;&#34;</span> <span class="hl-c">// no</span>`+"\n}", "Go")
	tags := regexp.MustCompile(`<span class="hl-[a-z]">|</span>`)
	hostile := "<script>alert('x')</script>\r\n/* \"a\nb <img src=x onerror=y> */ ${x} <!-- \n --> `\n#!%[](javascript:x)\x00\u202e{\"a\": 1.5, 'b'\nFROM x\nkey = \"v\"\n<?php ?>\n+last"
	files := testkit.Get(fs.Glob(lexerFiles, "lexers/*.xml")).Must(t)
	for _, file := range files {
		lexer := testkit.Get(lexers()).Must(t).Get(strings.NewReplacer("cpp", "c++", "csharp", "c#", "docker", "dockerfile").Replace(strings.TrimSuffix(path.Base(file), ".xml")))
		name := strings.NewReplacer("*", "x").Replace(lexer.Config().Filenames[0])
		got := string(highlight(name, []byte(hostile)))
		testkit.True(t, strings.Contains(got, "<span"), "%s has no colors", name)
		if text := html.UnescapeString(tags.ReplaceAllString(got, "")); text != strings.ReplaceAll(hostile, "\x00", "\ufffd") && text != hostile {
			t.Errorf("%s: another text: %q", name, text)
		}
		for line := range strings.SplitSeq(got, "\n") {
			if rest := tags.ReplaceAllString(line, ""); strings.ContainsAny(rest, "<>") || strings.Count(line, "<span") != strings.Count(line, "</span>") {
				t.Errorf("%s: the line %q", name, line)
			}
		}
	}
	long := strings.Repeat("<", maxColored+1)
	testkit.Equal(t, string(highlight("x.go", []byte(long))), html.EscapeString(long), "a long text")
}
