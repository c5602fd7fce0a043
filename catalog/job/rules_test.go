package job

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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

// ruleCases reads a file of cases: a name, a change of base, and the faults or warnings. A change is a line
// number, lines that are removed there, and lines that are added; without a number the added lines are the
// whole file.
func ruleCases(t testing.TB, base, file string) (all []ruleCase) {
	lines := strings.Split(string(readFile(t, base)), "\n")
	text := strings.ReplaceAll(string(readFile(t, file)), "\r\n", "\n")
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		head, rest, _ := strings.Cut(block, "\n")
		change, _, _ := strings.Cut("\n"+rest, "\n!")
		c := ruleCase{
			name:       head,
			change:     strings.TrimPrefix(change, "\n"),
			parserOnly: strings.HasSuffix(head, "(parser only)"),
		}
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
	for name, text := range map[string]string{
		"not UTF-8":         "Be \xff brief.",
		"cut character":     "Be \xc3",
		"NUL":               "Be\x00",
		"control character": "Bé \x1b",
	} {
		all = append(all, ruleCase{
			name:       name,
			source:     bytes.Replace(readFile(t, baseFile), []byte("Be brief."), []byte(text), 1),
			parserOnly: true,
		})
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
			testkit.True(t, d.Message != "" && !strings.ContainsAny(d.String(), "\n\r"), "%s: bad diagnostic %q",
				c.name, d)
			testkit.True(t, i <= 0 || d.Line >= ds[i-1].Line && (d.Line != ds[i-1].Line || d.Column >= ds[i-1].Column),
				"%s: %v is not in the order of positions", c.name, d)
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
		"    reviews:\u00a0[]\n  - id: check": {"job.yml:13:5: could not find expected ':'",
			"U+00A0 (no-break space), in column 13"},
		"\u200bversion:": {"job.yml:2:1: [\"\\u200bversion\"]: unknown key: did you mean version?",
			"an invisible character, U+200B (zero width space), in column 1: it may be the cause)"},
		"\ufeffversion:": {"job.yml:2:1: the character U+FEFF (byte order mark) at offset 11 is not allowed"},
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
	"not UTF-8":     "job.yml:4:54: the byte 0xff at offset 106 is not UTF-8: save the file as UTF-8",
	"cut character": "job.yml:4:54: the byte 0xc3 at offset 106 is not UTF-8: save the file as UTF-8",
	"NUL": "job.yml:4:53: the byte at offset 105 is NUL: this is not a text file, or it was cut off while it was " +
		"written; write it again",
	"control character": "job.yml:4:54: the character U+001B at offset 107 is not allowed in YAML: remove it, or " +
		"write it as an escape in double quotes",
	"UTF-16": "job.yml:1:1: is UTF-16: save the file as UTF-8",
}

// says checks what is said of a text, "" for nothing.
func says(t *testing.T, got, want, text string) {
	t.Helper()
	testkit.True(t, (got == "") == (want == "") && strings.Contains(got, want), "%.20q: %q", text, got)
}

// The rules of paths and lengths, where they end.
func TestRulesOfTexts(t *testing.T) {
	for text, want := range map[string]string{
		"steps/a.md": "",
		"a..b":       "",
		"1:x":        "",
		"@:x":        "",
		"`:x":        "",
		"{:x":        "",
		"x":          "",
		"a/../b":     "",
		"":           "is empty",
		"a\tb":       "control characters",
		`a\b`:        "backslashes",
		"/a":         "is absolute",
		"a:x":        "drive letter",
		"Z:":         "drive letter",
		"z:":         "drive letter",
		"A:":         "drive letter",
		"..":         "leads out",
		"../a":       "leads out",
		"a/../../b":  "leads out",
		".":          "is a folder",
		"a/":         "is a folder",
		"a/.":        "is a folder",
		"b/a/..":     "is a folder",
	} {
		says(t, insidePath(text), want, text)
	}
	for text, want := range map[string]string{"project": "", "a/b": "", "x": "", "": "is empty", "/a": "not below",
		"..": "not below", "../a": "not below", "c:": "not below", `a\b`: "backslashes"} {
		says(t, insideFolder(text), want, text)
	}

	long := strings.Repeat("é", maxName)
	for text, want := range map[string]string{
		"tests/**": "",
		"go.mod":   "",
		"tests/":   "is a folder: add **",
		"a[b]":     "other special characters",
		"!a":       "other special characters",
		long:       "",
		long + "x": "is " + strconv.Itoa(maxName+1) + " characters long",
	} {
		says(t, pattern(text), want, text)
	}

	for n := range 2 { // a schema, and a file, that are as large as they may be
		schema := ContentSchema{JSON: []byte(`{"description":"` +
			strings.Repeat("x", MaxSchemaBytes-len(`{"description":""}`)+n) + `"}`)}
		testkit.Equal(t, testkit.Get(schema.Compile("")).Err() == nil, n == 0, "a schema of %d bytes", len(schema.JSON))
		dir := t.TempDir()
		write(t, "#"+strings.Repeat("x", MaxBytes-1+n), dir, FileName)
		_, faults := Load(dir)
		testkit.Equal(t, strings.Contains(faults.Error(), "over the limit"), n == 1, "%.200s", faults.Error())
	}

	// A circle of many steps is shortened in its middle.
	for _, n := range []int{10, 11, 12} {
		var steps strings.Builder
		for i := range n {
			fmt.Fprintf(&steps, "  - {id: s%d, name: n, description: d, instructions: i, outputs: {}, reviews: [], "+
				"dependencies: [s%d]}\n", i, (i+1)%n)
		}
		_, ds := Parse("/j", FileName,
			[]byte("name: a\nversion: \"1.0.0\"\nsummary: s\ncommon_job_info_provided_to_all_steps_at_runtime: "+
				"c\nsteps:\n"+steps.String()))
		testkit.Equal(t, strings.Contains(ds.Error(), "…"), n > 10, "%v", ds)
		testkit.Equal(t, strings.Count(ds.Error(), "->"), min(n, 11), "%v", ds)
	}
}

// hostileBytes is how large hostile input is made: an eighth of what is allowed, so that the tests are
// quick; a check that takes quadratic time shows at this size as well.
const hostileBytes = MaxBytes / 8

const head = "name: a\nversion: 1.0.0\nsummary: s\ncommon_job_info_provided_to_all_steps_at_runtime: c\n"
const arguments = "name: a\nsummary: s\nstep_arguments: []\n"

// each repeats a text; %[1]d and %[2]d in it are the number of the repetition and the next one.
func each(n int, text string) string {
	return many(0, n, func(i int) string { return fmt.Sprintf(text, i, i+1) })
}

// goodStep returns a step, whose id is a number, with dependencies on others.
func goodStep(i int, dependencies string) string {
	return fmt.Sprintf("- {id: s%d,name: a,description: a,instructions_file: a,outputs: {},reviews: [],dependencies: "+
		"[%s]}\n", i, dependencies)
}

func many(from, to int, line func(i int) string) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		b.WriteString(line(i))
	}
	return b.String()
}

func ids(from, to int) string {
	return many(from, to, func(i int) string { return fmt.Sprintf("s%d,", i) })
}

// link is a step that depends on the one before.
func link(i int) string { return goodStep(i, ids(max(0, i-1), i)) }

// A hostile is input that is made to cost: a beginning, then lines as often as there is room for them, and an
// end. Faults are what is said of it, or a part of that.
type hostile struct {
	begin, end string
	line       func(i int) string
	fault      string
}

// repeatedInput is hostile input that repeats a text; %[1]d in it is the number of the repetition.
func repeatedInput(begin, text, end, fault string) hostile {
	line := func(int) string { return text }
	if strings.Contains(text, "%[1]d") {
		line = func(i int) string { return fmt.Sprintf(text, i) }
	}
	return hostile{begin, end, line, fault}
}

func (h hostile) source() []byte {
	b := []byte(h.begin)
	for i := 0; ; i++ {
		line := h.line(i)
		if len(b)+len(line)+len(h.end) > hostileBytes || line == "" {
			return append(b, h.end...)
		}
		b = append(b, line...)
	}
}

func once(text, fault string) hostile { return repeatedInput(text, "", "", fault) }

var hostiles = map[string]hostile{
	"flow list":           repeatedInput("[", "a,", "", ""),
	"flow map":            repeatedInput("{", "a,", "}", ""),
	"deep flow":           once(strings.Repeat("[", 10_000), "did not find expected node content"),
	"deep closed":         once(strings.Repeat("[", 9_999)+strings.Repeat("]", 9_999), ""),
	"deep then wide":      repeatedInput(strings.Repeat("[", 9_990), "a,", "", ""),
	"too deep":            once(strings.Repeat("{a: ", 200_000), "exceeded max depth of 10000"),
	"deep blocks":         once(strings.Repeat("- ", 9_990)+"a\n", ""),
	"deep steps":          once(head+"steps: "+strings.Repeat("[", 9_000)+strings.Repeat("]", 9_000), ""),
	"list of empties":     repeatedInput("", "-\n", "", ""),
	"question marks":      repeatedInput("", "?\n", "", ""),
	"same key":            repeatedInput("", "name:\n", "", ""),
	"comments":            repeatedInput("", "a: #x\n #\n\n", "", ""),
	"comments in flow":    repeatedInput("[\n", "a, #\n", "", ""),
	"tag directives":      repeatedInput("", "%%TAG !%[1]d! a\n", "", "more than 16 %TAG directives"),
	"CR tag directives":   repeatedInput("", "%%TAG !%[1]d! a\r", "", "more than 16 %TAG directives"),
	"many documents":      repeatedInput("", "---\n", "", ""),
	"anchors":             repeatedInput("", "- &a%[1]d b\n", "", ""),
	"one anchor, aliases": repeatedInput("- &a b\n", "- *a\n", "", ""),
	"open quote":          repeatedInput(head+"description: \"", "a\n", "", ""),
	"blank lines":         repeatedInput(head+"description: |\n", "\n", "", ""),
	"huge key":            repeatedInput("", "k", ": v\n", ""),
	"huge quoted key":     repeatedInput("\"", "k", "\": v\n", ""),
	"huge complex key":    repeatedInput("? ", "é", "\n: v\n", ""),
	"huge name":           repeatedInput("name: ", "a", "\n", ""),
	"unknown keys":        repeatedInput("", "k%[1]d: v\n", "", ""),
	"mistyped keys":       repeatedInput("", "nmae: v\n", "", ""),
	"bare steps":          repeatedInput(head+"steps:\n", "- id: s%[1]d\n", "", ""),
	"steps that are null": repeatedInput(head+"steps:\n", "-\n", "", ""),
	"steps of one id":     repeatedInput(head+"steps:\n", goodStep(1, ""), "", ""),
	"aliased steps":       repeatedInput(head+"steps:\n- &s "+goodStep(1, "")[2:], "- *s\n", "", ""),
	"unknown dependencies": repeatedInput(head+"steps:\n- {id: s,name: a,description: a,instructions_file: "+
		"a,outputs: {},reviews: [],dependencies: [", "x,", "]}\n", ""),
	"long chain": {head + "steps:\n", "", link, ""},
	"long circle": {head + "steps:\n", "", func(i int) string {
		return goodStep(i, fmt.Sprintf("s%d", (i+1)%(hostileBytes/120)))
	},
		"the dependencies go in a circle, s0 -> s1 -> s2 -> s3 -> s4 -> … -> "},
	"chain and workflows": repeatedInput(head+"steps:\n"+many(0, 500, link)+"workflows:\n",
		"- {name: w%[1]d,summary: a,steps: [s499,s498]}\n", "", ""),
	"dense dependencies": {head + "steps:\n", "", func(i int) string { return goodStep(i, ids(0, i)) }, ""},
	"dense, backwards":   {head + "steps:\n", "", func(i int) string { return goodStep(i, ids(i+1, 200)) }, ""},
	"everything in one group": {head + "steps:\n" + goodStep(0, ""),
		"workflows:\n- name: w\n  summary: s\n  steps: [[" + ids(0, 900) + "]]\n",
		func(i int) string { return goodStep(i+1, "s0") }, `is in one group with "s0", which it depends on`},
	"outputs and reviews": repeatedInput(head+"steps:\n- id: s\n  outputs:\n"+many(0, 1800, func(i int) string {
		return fmt.Sprintf("    o%d: {type: file,description: a}\n", i)
	})+"  reviews:\n",
		"  - {run_each: p%[1]d,quality_criteria: {a: b}}\n", "", ""),
	"inputs and dependencies": repeatedInput(head+"steps:\n- id: s\n  dependencies: ["+ids(0, 9_000)+"]\n  inputs:\n",
		"  - {file: f,from_step: e%[1]d}\n", "", ""),
	"billion laughs": {head + "steps:\n- &a0 [x,x,x,x,x,x,x,x,x,x]\n", "", func(i int) string {
		return strings.Repeat(fmt.Sprintf("- &a%d [%s*a%d]\n", i+1, strings.Repeat(fmt.Sprintf("*a%d,", i), 9), i),
			min(1, max(0, 60-i)))
	}, "the aliases of this file expand to more than 100000 values"},
	"workflows that call the " +
		"next twice": once(arguments+"workflows:\n"+
		each(900, "  w%[1]d: {summary: s,steps: [{name: a,sub_workflow: {workflow_name: w%[2]d}},{name: "+
			"b,sub_workflow: {workflow_name: w%[2]d}}]}\n"), "this job has no workflow"),
	"inputs that are passed on": once(arguments+"workflows:\n"+
		each(900, "  w%[1]d: {summary: s,steps: [{name: a,inputs: {i%[1]d: {}},sub_workflow: {workflow_name: "+
			"w%[2]d}}]}\n"), "more than 200 inputs"),
	"a step of many inputs": once(arguments+"workflows: {w: {summary: s,steps: [{name: a,instructions: x,inputs: {"+
		each(90_000, "a%[1]d: {},")+"}}]}}\n", "more than 200 inputs"),
	"own steps": once(arguments+"workflows:\n"+
		each(18_000, "  w%[1]d: {summary: s,steps: [{name: a,instructions: b}]}\n"), ""),
	"a value made again": once("name: a\nsummary: s\nstep_arguments: [{name: x,description: d,type: "+
		"string}]\nworkflows:\n  w:\n    summary: s\n    steps:\n"+
		each(14_000, "    - {name: a%[1]d,instructions: x,inputs: {x: {}},outputs: {x: {}}}\n"), ""),
	"a wide schema": once("name: a\nsummary: s\nworkflows: {}\nstep_arguments:\n- {name: a,description: "+
		"d,type: string,json_schema: {properties: {"+each(90_000, "a%[1]d: {},")+"}}}\n", "more than 20000 keys"),
	"equal keys in a schema": once("name: a\nsummary: s\nworkflows: {}\nstep_arguments:\n- {name: a,description: "+
		"d,type: string,json_schema: {properties: {"+strings.Repeat("a: {},", 9_000)+"}}}\n",
		`the key "a" is already defined`),
	"steps times workflows": once(head+"steps:\n"+many(0, 4000, link)+"workflows:\n"+
		each(4000, "- {name: w%[1]d,summary: a,steps: [s0,{workflow: j/x}]}\n"), "too many workflows"),
	"a long for_each": once(head+"steps: ["+strings.TrimSpace(goodStep(0, "")[2:])+
		"]\nworkflows: [{name: w,summary: s,steps: [s0,{for_each: o,steps: ["+each(50_000, "{workflow: j/w%[1]d},")+
		"]}]}]\n", "has an output"),
	"text bomb": repeatedInput(head+"description: &d "+strings.Repeat("x", 1000)+"\nsteps:\n", "- *d\n", "",
		"or 1048576 bytes (here at *d)"),
	"alias to itself":       once(head+"steps: &s [*s]\n", "the alias *s is inside the value it names"),
	"aliases to each other": once(head+"steps: &s {a: &t [*s], b: *t}\n", "the alias *s is inside the value it names"),
	"binary": repeatedInput(head+"description: !!binary ", "QUJD", "\n",
		`the tag "!!binary" is not supported`),
	"merge keys":   repeatedInput("", "<<: {}\n", "", "merge keys (<<) are not supported"),
	"dates":        repeatedInput("", "- !!str 2001-01-01\n", "", ""),
	"random bytes": repeatedInput("\xfe", "\x80", "", ""),
}

// TestHostile: whatever the input, Parse comes back soon with few diagnostics, none of them long.
func TestHostile(t *testing.T) {
	for name, h := range hostiles {
		t.Run(name, func(t *testing.T) {
			source := h.source()
			began := time.Now()
			j, ds := Parse("/d", FileName, source)
			took := time.Since(began)
			t.Logf("%v for %d bytes: %.200q", took.Round(time.Millisecond), len(source), ds)
			checkBounded(t, j, ds)
			testkit.Contains(t, ds.Error(), h.fault)
			// A second is the promise; a busy machine, or the race detector, takes several times as long, a
			// quadratic check far more.
			testkit.True(t, took <= time.Minute, "took %v", took)
		})
	}
}

func checkBounded(t *testing.T, j *Job, ds Diagnostics) {
	t.Helper()
	testkit.Need(t, (j == nil) != (len(ds) == 0), "a job %v with diagnostics %v", j != nil, ds)
	all := ds
	if j != nil {
		all = j.Warnings
	}
	testkit.True(t, len(all) <= MaxDiagnostics+1, "%d diagnostics", len(all))
	for _, d := range all {
		testkit.True(t, len(d.String()) <= 2000 && !strings.ContainsAny(d.String(), "\n\r\x00"),
			"bad diagnostic of %d bytes: %.200q", len(d.String()), d)
	}
}

func TestTooManyFaultsAreCounted(t *testing.T) {
	var b strings.Builder
	for i := range 150 {
		fmt.Fprintf(&b, "k%d: v\n", i)
	}

	_, ds := Parse("/d", FileName, []byte(b.String()))
	testkit.Need(t, len(ds) == MaxDiagnostics+1, "%d diagnostics", len(ds))
	// 150 unknown keys and 5 missing ones.
	testkit.Equal(t, ds[MaxDiagnostics].String(), "job.yml: 55 more errors were found: fix the ones above first")

	exact := readFile(t, baseFile)
	exact = append(exact, bytes.Repeat([]byte("\n"), MaxBytes-len(exact))...)
	_, ds = Parse("/d", FileName, exact)
	testkit.Works(t, ds.Err(), "as large as it may be")
	_, ds = Parse("/d", FileName, append(exact, '\n'))
	testkit.Equal(t, ds.Error(), "job.yml: is larger than 1048576 bytes (1 MiB), the most that is read: shorten it")
}

// FuzzParse: Parse never panics, its diagnostics are bounded, and what it accepts it accepts again, as the same job.
func FuzzParse(f *testing.F) {
	for _, name := range validFiles(f) {
		f.Add(readFile(f, name))
	}
	for _, c := range baseRules(f) {
		f.Add(c.source)
	}
	for _, name := range []string{"billion laughs", "alias to itself", "aliases to each other"} {
		f.Add(hostiles[name].source())
	}

	f.Fuzz(func(t *testing.T, source []byte) {
		j, ds := Parse("/d", FileName, source)
		checkBounded(t, j, ds)
		if j == nil {
			return
		}
		again, ds := Parse(j.Dir, FileName, j.Source)
		testkit.Need(t, ds == nil && reflect.DeepEqual(j, again), "parsed again, the job differs: %v", ds)
		// What the rest of the program relies on without checking.
		testkit.Need(t, len(j.Steps) != 0, "accepted %+v", j)
		testkit.Need(t, identifier(j.Name) == "", "accepted %+v", j)
		testkit.Need(t, summary(j.Summary) == "", "accepted %+v", j)
		for i := range j.Steps {
			s := &j.Steps[i]
			testkit.Need(t, (j.Format == 2 || j.Step(s.ID) == s) && (s.Call != nil ||
				(s.Instructions == "") != (insidePath(s.InstructionsFile) != "")), "accepted step %+v", s)
		}

		for i := range j.Workflows {
			w := &j.Workflows[i]
			testkit.Need(t, j.Workflow(w.Name) == w, "accepted workflow %+v", w)
			for e, entry := range w.Entries {
				for _, id := range entry {
					s := j.Of(w.Name).Step(id)
					testkit.Need(t, s != nil && w.Find(id) == e, "accepted entry %d of %+v", e, w)
					for _, dep := range s.Dependencies {
						same := w.Form(e) != nil && w.Form(e).ForEach != nil && w.Find(dep) == e &&
							slices.Index(entry, dep) < slices.Index(entry, id)
						testkit.Need(t, w.Find(dep) < e || same, "%q does not come after %q in %+v", id, dep, w)
					}
				}
			}
		}
	})
}
