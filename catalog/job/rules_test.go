package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// A ruleCase is a file that is refused.
type ruleCase struct {
	name   string
	change string // of testdata/valid/base.yml, as in testdata/rules.txt
	source []byte
	// parserOnly marks what only Parse can refuse: references, and what is lost when YAML becomes
	// JSON.
	parserOnly bool
}

// ruleCases reads testdata/rules.txt: a name, a change of testdata/valid/base.yml, and the faults. A
// change is a line number, lines that are removed there, and lines that are added; without a number
// the added lines are the whole file. It also returns files that are no text.
func ruleCases(t testing.TB) (all []ruleCase) {
	base := strings.Split(string(readFile(t, "testdata/valid/base.yml")), "\n")
	text := strings.ReplaceAll(string(readFile(t, "testdata/rules.txt")), "\r\n", "\n")
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		head, rest, _ := strings.Cut(block, "\n")
		change, _, _ := strings.Cut("\n"+rest, "\n!")
		c := ruleCase{name: head, change: strings.TrimPrefix(change, "\n"), parserOnly: strings.HasSuffix(head, "(parser only)")}
		at := 0
		var removed, added []string
		for line := range strings.SplitSeq(c.change, "\n") {
			switch {
			case strings.HasPrefix(line, "@"):
				testkit.Must(t, testkit.Get(fmt.Sscanf(line, "@%d", &at)).Err())
			case strings.HasPrefix(line, "-"):
				removed = append(removed, line[1:])
			case strings.HasPrefix(line, "+"):
				added = append(added, line[1:])
			}
		}
		lines := append(added, "")
		if at > 0 {
			testkit.Need(t, slices.Equal(base[at-1:at-1+len(removed)], removed), "%s: base.yml has changed", head)
			lines = slices.Concat(base[:at-1], added, base[at-1+len(removed):])
		}
		c.source = []byte(strings.Join(lines, "\n"))
		all = append(all, c)
	}
	for name, text := range map[string]string{"not UTF-8": "Be \xff brief.", "cut character": "Be \xc3", "NUL": "Be\x00", "control character": "Bé \x1b"} {
		source := strings.Replace(strings.Join(base, "\n"), "Be brief.", text, 1)
		all = append(all, ruleCase{name: name, source: []byte(source), parserOnly: true})
	}
	return append(all, ruleCase{name: "UTF-16", source: []byte("\xff\xfen\x00"), parserOnly: true})
}

// TestRules holds the exact text and position of every fault against testdata/rules.txt, which has
// at least one case for every rule of DESIGN's job.yml section.
func TestRules(t *testing.T) {
	var all []string
	seen := map[string]bool{}
	for _, c := range ruleCases(t) {
		testkit.True(t, !seen[c.name], "two cases are named %q", c.name)
		seen[c.name] = true
		j, ds := Parse("/jobs/report", FileName, c.source)
		if j != nil || len(ds) == 0 {
			t.Errorf("%s: accepted", c.name)
			continue
		}
		for i, d := range ds {
			testkit.True(t, d.Message != "" && !strings.ContainsAny(d.String(), "\n\r") && !d.Warning, "%s: bad diagnostic %q", c.name, d)
			testkit.True(t, i <= 0 || d.Line >= ds[i-1].Line && (d.Line != ds[i-1].Line || d.Column >= ds[i-1].Column), "%s: %v is not in the order of positions", c.name, d)
			testkit.True(t, d.Line != 0, "%s: %v has no position", c.name, d)
		}
		if want := noText[c.name]; want != "" {
			testkit.True(t, ds.Error() == want, "%s: %v, want %s", c.name, ds, want)
			continue
		}
		text := c.name
		if c.change != "" {
			text += "\n" + c.change
		}
		all = append(all, text+"\n! "+strings.ReplaceAll(ds.Error(), "\n", "\n! "))
	}
	testkit.Golden(t, "testdata/rules.txt", strings.Join(all, "\n\n")+"\n", *update)
}

// noText has the faults of files that are no text.
var noText = map[string]string{
	"not UTF-8":         "job.yml:4:54: the byte 0xff at offset 106 is not UTF-8: save the file as UTF-8",
	"cut character":     "job.yml:4:54: the byte 0xc3 at offset 106 is not UTF-8: save the file as UTF-8",
	"NUL":               "job.yml:4:53: the byte at offset 105 is NUL: this is not a text file, or it was cut off while it was written; write it again",
	"control character": "job.yml:4:54: the character U+001B at offset 107 is not allowed in YAML: remove it, or write it as an escape in double quotes",
	"UTF-16":            "job.yml:1:1: is UTF-16: save the file as UTF-8",
}

// The rules of paths and lengths, where they end.
func TestRulesOfTexts(t *testing.T) {
	for text, want := range map[string]string{
		"steps/a.md": "", "a..b": "", "1:x": "", "@:x": "", "`:x": "", "{:x": "", "x": "", "a/../b": "",
		"": "is empty", "a\tb": "control characters", `a\b`: "backslashes", "/a": "is absolute", "a:x": "drive letter", "Z:": "drive letter", "z:": "drive letter", "A:": "drive letter",
		"..": "leads out", "../a": "leads out", "a/../../b": "leads out", ".": "is a folder", "a/": "is a folder", "a/.": "is a folder", "b/a/..": "is a folder",
	} {
		got := insidePath(text)
		testkit.True(t, (got == "") == (want == "") && strings.Contains(got, want), "%q: %q", text, got)
	}
	for text, want := range map[string]string{"project": "", "a/b": "", "x": "", "": "is empty", "/a": "not below", "..": "not below", "../a": "not below", "c:": "not below", `a\b`: "backslashes"} {
		got := insideFolder(text)
		testkit.True(t, (got == "") == (want == "") && strings.Contains(got, want), "%q: %q", text, got)
	}
	long := strings.Repeat("é", maxName)
	for text, want := range map[string]string{"tests/**": "", "go.mod": "", "tests/": "is a folder: add **", "a[b]": "other special characters", "!a": "other special characters", long: "", long + "x": "is " + strconv.Itoa(maxName+1) + " characters long"} {
		got := pattern(text)
		testkit.True(t, (got == "") == (want == "") && strings.Contains(got, want), "%.20q: %q", text, got)
	}
	for n := range 2 { // a schema, and a file, that are as large as they may be
		schema := ContentSchema{JSON: []byte(`{"description":"` + strings.Repeat("x", MaxSchemaBytes-len(`{"description":""}`)+n) + `"}`)}
		testkit.Equal(t, testkit.Get(schema.Compile("")).Err() == nil, n == 0, "a schema of %d bytes", len(schema.JSON))
		dir := t.TempDir()
		write(t, "#"+strings.Repeat("x", MaxBytes-1+n), dir, FileName)
		_, faults := Load(dir)
		testkit.Equal(t, strings.Contains(faults.Error(), "is larger than"), n == 1, "%.200s", faults.Error())
	}
	// A circle of many steps is shortened in its middle.
	for _, n := range []int{10, 11, 12} {
		var steps strings.Builder
		for i := range n {
			fmt.Fprintf(&steps, "  - {id: s%d, name: n, description: d, instructions: i, outputs: {}, reviews: [], dependencies: [s%d]}\n", i, (i+1)%n)
		}
		_, ds := Parse("/j", FileName, []byte("name: a\nversion: \"1.0.0\"\nsummary: s\ncommon_job_info_provided_to_all_steps_at_runtime: c\nsteps:\n"+steps.String()))
		testkit.Equal(t, strings.Contains(ds.Error(), "…"), n > 10, "%v", ds)
		testkit.Equal(t, strings.Count(ds.Error(), "->"), min(n, 11), "%v", ds)
	}
}
