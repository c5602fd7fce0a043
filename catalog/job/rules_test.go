package job

import (
	"bytes"
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
	change string // as it is written in the file of cases
	source []byte
	// parserOnly marks what only Parse can refuse: references, and what is lost when YAML becomes JSON.
	parserOnly bool
}

// ruleCases reads a file of cases: a name, a change of base, and the faults or warnings. A change is a line number, lines
// that are removed there, and lines that are added; without a number the added lines are the whole file.
func ruleCases(t testing.TB, base, file string) (all []ruleCase) {
	lines := strings.Split(string(readFile(t, base)), "\n")
	text := strings.ReplaceAll(string(readFile(t, file)), "\r\n", "\n")
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		head, rest, _ := strings.Cut(block, "\n")
		change, _, _ := strings.Cut("\n"+rest, "\n!")
		c := ruleCase{name: head, change: strings.TrimPrefix(change, "\n"), parserOnly: strings.HasSuffix(head, "(parser only)")}
		at := 0
		var removed, added []string
		for line := range strings.SplitSeq(c.change, "\n") {
			switch {
			case strings.HasPrefix(line, "@"):
				testkit.Get(fmt.Sscanf(line, "@%d", &at)).Must(t)
			case strings.HasPrefix(line, "-"):
				removed = append(removed, line[1:])
			case strings.HasPrefix(line, "+"):
				added = append(added, line[1:])
			}
		}
		changed := append(slices.Clone(added), "")
		if at > 0 {
			testkit.Need(t, slices.Equal(lines[at-1:at-1+len(removed)], removed), "%s: %s has changed", head, base)
			changed = slices.Concat(lines[:at-1], added, lines[at-1+len(removed):])
		}
		c.source = []byte(strings.Join(changed, "\n"))
		all = append(all, c)
	}
	return all
}

const (
	baseFile = "testdata/valid/base.yml"
	planFile = "testdata/valid/plan.yml"
)

// baseRules are the cases of testdata/rules.txt, and files that are no text.
func baseRules(t testing.TB) []ruleCase {
	all := ruleCases(t, baseFile, "testdata/rules.txt")
	for name, text := range map[string]string{"not UTF-8": "Be \xff brief.", "cut character": "Be \xc3", "NUL": "Be\x00", "control character": "Bé \x1b"} {
		all = append(all, ruleCase{name: name, source: bytes.Replace(readFile(t, baseFile), []byte("Be brief."), []byte(text), 1), parserOnly: true})
	}
	return append(all, ruleCase{name: "UTF-16", source: []byte("\xff\xfen\x00"), parserOnly: true})
}

// holdRules holds the exact text and position of every fault, or warning of an accepted job, against a file of cases.
func holdRules(t *testing.T, file string, cases []ruleCase) {
	var all []string
	seen := map[string]bool{}
	for _, c := range cases {
		testkit.True(t, !seen[c.name], "two cases are named %q", c.name)
		seen[c.name] = true
		j, ds := Parse("/jobs/report", FileName, c.source)
		testkit.True(t, (j == nil) == (len(ds) > 0), "%s: a job %t with %v", c.name, j != nil, ds)
		if j != nil {
			ds = j.Warnings
		}
		for i, d := range ds {
			testkit.True(t, d.Message != "" && !strings.ContainsAny(d.String(), "\n\r"), "%s: bad diagnostic %q", c.name, d)
			testkit.True(t, i <= 0 || d.Line >= ds[i-1].Line && (d.Line != ds[i-1].Line || d.Column >= ds[i-1].Column), "%s: %v is not in the order of positions", c.name, d)
			testkit.True(t, d.Line != 0 || j != nil, "%s: %v has no position", c.name, d)
		}
		if want := noText[c.name]; want != "" {
			testkit.Equal(t, ds.Error(), want, c.name)
			continue
		}
		text := c.name
		if c.change != "" {
			text += "\n" + c.change
		}
		if len(ds) > 0 {
			text += "\n! " + strings.ReplaceAll(ds.Error(), "\n", "\n! ")
		}
		all = append(all, text)
	}
	testkit.Golden(t, file, strings.Join(all, "\n\n")+"\n", *update)
}

// TestRules has at least one case for every rule of DESIGN's job.yml section, of both formats.
func TestRules(t *testing.T) {
	holdRules(t, "testdata/rules.txt", baseRules(t))
	holdRules(t, "testdata/rules_format2.txt", ruleCases(t, "testdata/valid/format2.yml", "testdata/rules_format2.txt"))
}

// TestAccepted has the warnings, and the largest and the smallest that each limit lets pass.
func TestAccepted(t *testing.T) {
	holdRules(t, "testdata/accepted.txt", ruleCases(t, baseFile, "testdata/accepted.txt"))
}

// What makes a file unreadable is named where it began.
func TestField11_FilesThatAreNoYAML(t *testing.T) {
	holdRules(t, "testdata/rules_yaml.txt", ruleCases(t, planFile, "testdata/rules_yaml.txt"))
	for changed, want := range map[string][2]string{
		"    reviews:\u00a0[]\n  - id: check": {"job.yml:13:5: could not find expected ':'", "U+00A0 (no-break space), in column 13"},
		"\u200bversion:":                      {"job.yml:2:1: [\"\\u200bversion\"]: unknown key: did you mean version?", "an invisible character, U+200B (zero width space), in column 1: it may be the cause)"},
		"\ufeffversion:":                      {"job.yml:2:1: the character U+FEFF (byte order mark) at offset 11 is not allowed"},
	} {
		plain := strings.NewReplacer("\u00a0", " ", "\u200b", "", "\ufeff", "").Replace(changed)
		_, faults := Parse("", FileName, bytes.Replace(readFile(t, planFile), []byte(plain), []byte(changed), 1))
		testkit.Equal(t, len(faults), 1, "%q", changed)
		testkit.ContainsAll(t, faults.Error(), want[:])
	}
}

// One mistake is one fault.
func TestField23_FollowUpsAreLeftOut(t *testing.T) {
	holdRules(t, "testdata/rules_once.txt", ruleCases(t, planFile, "testdata/rules_once.txt"))
}

// noText has the faults of files that are no text.
var noText = map[string]string{
	"not UTF-8":         "job.yml:4:54: the byte 0xff at offset 106 is not UTF-8: save the file as UTF-8",
	"cut character":     "job.yml:4:54: the byte 0xc3 at offset 106 is not UTF-8: save the file as UTF-8",
	"NUL":               "job.yml:4:53: the byte at offset 105 is NUL: this is not a text file, or it was cut off while it was written; write it again",
	"control character": "job.yml:4:54: the character U+001B at offset 107 is not allowed in YAML: remove it, or write it as an escape in double quotes",
	"UTF-16":            "job.yml:1:1: is UTF-16: save the file as UTF-8",
}

// says checks what is said of a text, "" for nothing.
func says(t *testing.T, got, want, text string) {
	t.Helper()
	testkit.True(t, (got == "") == (want == "") && strings.Contains(got, want), "%.20q: %q", text, got)
}

// The rules of paths and lengths, where they end.
func TestRulesOfTexts(t *testing.T) {
	for text, want := range map[string]string{
		"steps/a.md": "", "a..b": "", "1:x": "", "@:x": "", "`:x": "", "{:x": "", "x": "", "a/../b": "",
		"": "is empty", "a\tb": "control characters", `a\b`: "backslashes", "/a": "is absolute", "a:x": "drive letter", "Z:": "drive letter", "z:": "drive letter", "A:": "drive letter",
		"..": "leads out", "../a": "leads out", "a/../../b": "leads out", ".": "is a folder", "a/": "is a folder", "a/.": "is a folder", "b/a/..": "is a folder",
	} {
		says(t, insidePath(text), want, text)
	}
	for text, want := range map[string]string{"project": "", "a/b": "", "x": "", "": "is empty", "/a": "not below", "..": "not below", "../a": "not below", "c:": "not below", `a\b`: "backslashes"} {
		says(t, insideFolder(text), want, text)
	}
	long := strings.Repeat("é", maxName)
	for text, want := range map[string]string{"tests/**": "", "go.mod": "", "tests/": "is a folder: add **", "a[b]": "other special characters", "!a": "other special characters", long: "", long + "x": "is " + strconv.Itoa(maxName+1) + " characters long"} {
		says(t, pattern(text), want, text)
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
