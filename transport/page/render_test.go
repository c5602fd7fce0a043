package page

import (
	"bytes"
	"html"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/board"
	"deepwork/session/run"
)

func init() { maxColoring = time.Minute }

// What highlight returns has the text, line by line, and no tag but its own, whatever the language.
func TestHighlight(t *testing.T) {
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
		testkit.Equal(t, strings.ReplaceAll(html.UnescapeString(tags.ReplaceAllString(got, "")), "\x00", "\ufffd"), strings.ReplaceAll(hostile, "\x00", "\ufffd"), "%s: the text", name)
		for line := range strings.SplitSeq(got, "\n") {
			testkit.True(t, !strings.ContainsAny(tags.ReplaceAllString(line, ""), "<>") && strings.Count(line, "<span") == strings.Count(line, "</span>"), "%s: the line %q", name, line)
		}
	}
	long := strings.Repeat("<", maxColored+1)
	testkit.Equal(t, string(highlight("x.go", []byte(long))), html.EscapeString(long), "a long text")
}

func TestMarkdownRunsAndLoadsNothingFromElsewhere(t *testing.T) {
	for in, want := range map[string]string{
		"a *b* `c`":                               "<p>a <em>b</em> <code>c</code></p>\n",
		"# A b":                                   `<h1 id="h-a-b">A b</h1>` + "\n",
		"[a](b.md#c)":                             `<p><a href="b.md#h-c">a</a></p>` + "\n",
		"[a](https://example.com)":                `<p><a href="https://example.com" rel="noopener noreferrer">a</a></p>` + "\n",
		"<https://example.com>":                   `<p><a href="https://example.com" rel="noopener noreferrer">https://example.com</a></p>` + "\n",
		"[*a*](javascript:alert(1)) b":            "<p><em>a</em> b</p>\n",
		"[a](//example.com)":                      "<p>a</p>\n",
		"[a](\\\\example.com)":                    `<p><a href="%5Cexample.com">a</a></p>` + "\n",
		"<javascript:alert(1)>":                   "<p>javascript:alert(1)</p>\n",
		"![a](https://example.com/x.png)":         "<p>a</p>\n",
		"![a](data:image/png;base64,AAAA)":        "<p>a</p>\n",
		"![a](x.png) ![b](/events?at=0&on=x)":     "<p>a b</p>\n",
		"<img src=x onerror=alert(1)> <b>b</b>":   "<p>&lt;img src=x onerror=alert(1)&gt; &lt;b&gt;b&lt;/b&gt;</p>\n",
		"<script>alert(1)</script>":               `<pre tabindex="0"><code>&lt;script&gt;alert(1)&lt;/script&gt;</code></pre>` + "\n",
		"    <pre>":                               `<pre tabindex="0"><code>&lt;pre&gt;` + "\n</code></pre>\n",
		"[![a](//x/y.png)](javascript:b) c":       "<p>a c</p>\n",
		"<!-- a\n-->":                             `<pre tabindex="0"><code>&lt;!-- a` + "\n--&gt;</code></pre>\n",
		"[a][b]\n\n[b]: vbscript:x":               "<p>a</p>\n",
		"[a](https://example.com \"<b> ' \\\"\")": `<p><a href="https://example.com" title="&lt;b&gt; ' &quot;" rel="noopener noreferrer">a</a></p>` + "\n",
	} {
		testkit.Equal(t, string(markdown([]byte(in))), want, "%q", in)
	}
}

// A bar begins and ends where its agent did, an agent at work ends now, and what a step waited for is a bar, too.
func TestTimeline(t *testing.T) {
	at := func(minute int) *string {
		return new(time.Date(2026, 1, 1, 10, minute, 0, 0, time.UTC).Format(time.RFC3339Nano))
	}
	now, _ := time.Parse(time.RFC3339Nano, *at(20))
	plan := &run.Step{ID: "plan", SessionID: "s", Name: "Plan it", State: board.Completed, Agents: []board.RunStep{
		{State: board.Completed, StartedAt: at(10), EndedAt: at(12)},
		{State: board.Failed, StartedAt: at(0), EndedAt: at(5), LimitedUntil: at(15)},
	}}
	write := &run.Step{ID: "write", SessionID: "s", State: board.Running, Agents: []board.RunStep{{State: board.Running, StartedAt: at(12)}}}
	sign := &run.Step{ID: "sign", SessionID: "s", State: board.NotBegun}
	v := &runView{View: &run.View{RunReply: &board.RunReply{}, Live: true, Tree: run.Tree{SessionID: "s", Entries: [][]*run.Step{{plan}, {write, sign}}}}}
	line := v.timelineAt(now)
	testkit.Same(t, line.Lanes[0].Bars, []bar{
		{0, 250, "failed", "failed, 5 min"}, {250, 250, "limit", "waited for a limit, 5 min"}, {500, 100, "completed", "completed, 2 min"},
	})
	testkit.Same(t, line.Lanes[1].Bars, []bar{{600, 400, "running", "running, 8 min"}})
	testkit.Equal(t, line.Lanes[2].Summary(), "not begun")
	testkit.Same(t, line.Ticks, []string{"0", "5 min", "10 min", "15 min", "20 min"})

	views := testkit.Get(parseViews()).Must(t)
	var page bytes.Buffer
	testkit.Must(t, views.of["attempt"].ExecuteTemplate(&page, "lanes", line))
	testkit.Contains(t, page.String(), `<rect class="bar-limit" x="250" y="0" width="250" height="10">`, "the page")
}
