package job

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

// hostileBytes is how large hostile input is made: an eighth of what is allowed, so that the tests are
// quick; a check that takes quadratic time shows at this size as well.
const hostileBytes = MaxBytes / 8

// upTo repeats s between a beginning and an end as often as hostileBytes lets it.
func upTo(begin, s, end string) []byte {
	n := (hostileBytes - len(begin) - len(end)) / len(s)
	return []byte(begin + strings.Repeat(s, n) + end)
}

func numbered(limit int, begin string, line func(i int) string) []byte {
	var b bytes.Buffer
	b.WriteString(begin)
	for i := 0; ; i++ {
		s := line(i)
		if b.Len()+len(s) > limit {
			return b.Bytes()
		}
		b.WriteString(s)
	}
}

const head = "name: a\nversion: 1.0.0\nsummary: s\ncommon_job_info_provided_to_all_steps_at_runtime: c\n"

const goodStep = "- {id: s%d,name: a,description: a,instructions_file: a,outputs: {},reviews: [],dependencies: [%s]}\n"

// hostile is input of up to hostileBytes that is made to cost.
var hostile = map[string]func() []byte{
	"flow list":      func() []byte { return upTo("[", "a,", "") },
	"flow map":       func() []byte { return upTo("{", "a,", "}") },
	"deep flow":      func() []byte { return []byte(strings.Repeat("[", 10_000)) },
	"deep closed":    func() []byte { return []byte(strings.Repeat("[", 9_999) + strings.Repeat("]", 9_999)) },
	"too deep":       func() []byte { return []byte(strings.Repeat("{a: ", 200_000)) },
	"deep then wide": func() []byte { return upTo(strings.Repeat("[", 9_990), "a,", "") },
	"deep blocks":    func() []byte { return []byte(strings.Repeat("- ", 9_990) + "a\n") },
	"deep steps": func() []byte {
		return []byte(head + "steps: " + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000))
	},
	"list of empties":  func() []byte { return upTo("", "-\n", "") },
	"question marks":   func() []byte { return upTo("", "?\n", "") },
	"same key":         func() []byte { return upTo("", "a:\n", "") },
	"name again":       func() []byte { return upTo("", "name:\n", "") },
	"comments":         func() []byte { return upTo("", "#\n", "") },
	"comments between": func() []byte { return upTo("", "a: #x\n #\n\n", "") },
	"comments in flow": func() []byte { return upTo("[\n", "a, #\n", "") },
	"tag directives": func() []byte {
		return numbered(hostileBytes, "", func(i int) string { return fmt.Sprintf("%%TAG !%d! a\n", i) })
	},
	"CR tag directives": func() []byte {
		return numbered(hostileBytes, "", func(i int) string { return fmt.Sprintf("%%TAG !%d! a\r", i) })
	},
	"many documents": func() []byte { return upTo("", "---\n", "") },
	"anchors": func() []byte {
		return numbered(hostileBytes, "", func(i int) string { return fmt.Sprintf("- &a%d b\n", i) })
	},
	"one anchor, aliases": func() []byte { return upTo("- &a b\n", "- *a\n", "") },
	"open quote":          func() []byte { return upTo(head+"description: \"", "a\n", "") },
	"blank lines":         func() []byte { return upTo(head+"description: |\n", "\n", "") },
	"huge key":            func() []byte { return upTo("", "k", ": v\n") },
	"huge quoted key":     func() []byte { return upTo("\"", "k", "\": v\n") },
	"huge complex key":    func() []byte { return upTo("? ", "é", "\n: v\n") },
	"huge name":           func() []byte { return upTo("name: ", "a", "\n") },
	"huge summary":        func() []byte { return upTo("summary: ", "é", "\n") },
	"unknown keys": func() []byte {
		return numbered(hostileBytes, "", func(i int) string { return fmt.Sprintf("k%d: v\n", i) })
	},
	"mistyped keys": func() []byte { return upTo("", "nmae: v\n", "") },
	"100,000 bare steps": func() []byte {
		return numbered(hostileBytes, head+"steps:\n", func(i int) string { return fmt.Sprintf("- id: s%x\n", i) })
	},
	"steps that are null": func() []byte { return upTo(head+"steps:\n", "-\n", "") },
	"steps of one id": func() []byte {
		return upTo(head+"steps:\n", strings.Replace(fmt.Sprintf(goodStep, 1, ""), "\n", "\n", 1), "")
	},
	"aliased steps": func() []byte { return upTo(head+"steps:\n- &s "+fmt.Sprintf(goodStep, 1, "")[2:], "- *s\n", "") },
	"unknown dependencies": func() []byte {
		return upTo(head+"steps:\n- {id: s,name: a,description: a,instructions_file: a,outputs: {},reviews: [],dependencies: [", "x,", "]}\n")
	},
	"long chain": func() []byte {
		return numbered(hostileBytes, head+"steps:\n", func(i int) string { return fmt.Sprintf(goodStep, i, fmt.Sprintf("s%d", max(i-1, 0))) })
	},
	"long circle": func() []byte {
		return numbered(hostileBytes, head+"steps:\n", func(i int) string { return fmt.Sprintf(goodStep, i, fmt.Sprintf("s%d", (i+1)%(hostileBytes/120))) })
	},
	"chain and workflows": func() []byte {
		n := 0
		steps := numbered(hostileBytes/2, head+"steps:\n", func(i int) string {
			n = i
			return fmt.Sprintf(goodStep, i, fmt.Sprintf("s%d", max(i-1, 1)))
		})
		steps = bytes.Replace(steps, []byte("[s1]"), []byte("[]"), 3)
		return numbered(hostileBytes, string(steps)+"workflows:\n", func(i int) string {
			return fmt.Sprintf("- {name: w%d,summary: a,steps: [s%d,s%d]}\n", i, n-1, n-2)
		})
	},
	"dense dependencies": func() []byte {
		return numbered(hostileBytes, head+"steps:\n", func(i int) string {
			var deps strings.Builder
			for k := range i {
				fmt.Fprintf(&deps, "s%d,", k)
			}
			return fmt.Sprintf(goodStep, i, deps.String())
		})
	},
	"dense dependencies, backwards": func() []byte {
		return numbered(hostileBytes, head+"steps:\n", func(i int) string {
			var deps strings.Builder
			for k := i + 1; k < 200; k++ {
				fmt.Fprintf(&deps, "s%d,", k)
			}
			return fmt.Sprintf(goodStep, i, deps.String())
		})
	},
	"everything in one group": func() []byte {
		n := 0
		steps := numbered(hostileBytes*4/5, head+"steps:\n", func(i int) string {
			n = i
			return fmt.Sprintf(goodStep, i, "s0")
		})
		members := numbered(hostileBytes/7, "s0", func(i int) string {
			if i < n-1 {
				return fmt.Sprintf(",s%d", i+1)
			}
			return strings.Repeat(" ", 100)
		})
		return fmt.Appendf(steps, "workflows:\n- name: w\n  summary: s\n  steps: [[%s]]\n", members)
	},
	"outputs and reviews": func() []byte {
		b := numbered(hostileBytes/2, head+"steps:\n- id: s\n  outputs:\n", func(i int) string { return fmt.Sprintf("    o%d: {type: file,description: a}\n", i) })
		return numbered(hostileBytes, string(b)+"  reviews:\n", func(i int) string { return fmt.Sprintf("  - {run_each: p%d,quality_criteria: {a: b}}\n", i) })
	},
	"inputs and dependencies": func() []byte {
		b := numbered(hostileBytes/2, head+"steps:\n- id: s\n  dependencies:\n", func(i int) string { return fmt.Sprintf("  - d%d\n", i) })
		return numbered(hostileBytes, string(b)+"  inputs:\n", func(i int) string { return fmt.Sprintf("  - {file: f,from_step: e%d}\n", i) })
	},
	"billion laughs": func() []byte {
		return numbered(4000, head+"steps:\n- &a0 [x,x,x,x,x,x,x,x,x,x]\n", func(i int) string {
			return fmt.Sprintf("- &a%d [%s*a%d]\n", i+1, strings.Repeat(fmt.Sprintf("*a%d,", i), 9), i)
		})
	},
	"text bomb": func() []byte {
		return upTo(head+"description: &d "+strings.Repeat("x", 1000)+"\nsteps:\n", "- *d\n", "")
	},
	"alias to itself":       func() []byte { return []byte(head + "steps: &s [*s]\n") },
	"aliases to each other": func() []byte { return []byte(head + "steps: &s {a: &t [*s], b: *t}\n") },
	"binary":                func() []byte { return upTo(head+"description: !!binary ", "QUJD", "\n") },
	"merge keys":            func() []byte { return upTo("", "<<: {}\n", "") },
	"tags":                  func() []byte { return upTo("", "- !!str\n", "") },
	"dates":                 func() []byte { return upTo("", "- 2001-01-01\n", "") },
	"random bytes":          func() []byte { return upTo("\xfe", "\x80", "") },
	"many dashes":           func() []byte { return upTo("", "- - - - \n", "") },
}

// TestHostile: whatever the input, Parse comes back soon with few diagnostics,
// none of them long.
func TestHostile(t *testing.T) {
	for name := range hostileMessages {
		testkit.True(t, hostile[name] != nil, "hostileMessages has %q, which is no hostile input", name)
	}
	for name, build := range hostile {
		t.Run(name, func(t *testing.T) {
			source := build()
			testkit.Need(t, len(source) <= MaxBytes, "the input has %d bytes", len(source))
			began := time.Now()
			j, ds := Parse("/d", FileName, source)
			took := time.Since(began)
			t.Logf("%v for %d bytes: %.200q", took.Round(time.Millisecond), len(source), ds)
			checkBounded(t, j, ds)
			testkit.Contains(t, ds.Error(), hostileMessages[name])
			// A second is the promise; a busy machine, or the race detector,
			// takes several times as long, a quadratic check far more.
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
		testkit.True(t, len(d.String()) <= 2000 && !strings.ContainsAny(d.String(), "\n\r\x00"), "bad diagnostic of %d bytes: %.200q", len(d.String()), d)
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
	got, want := ds[MaxDiagnostics].String(), "job.yml: 55 more errors were found: fix the ones above first"
	testkit.True(t, got == want, "got %q, want %q", got, want)
}

// hostileMessages are parts of what is said of some hostile input.
var hostileMessages = map[string]string{
	"billion laughs":          "the aliases of this file expand to more than 100000 values",
	"text bomb":               "or 1048576 bytes (here at *d)",
	"alias to itself":         "the alias *s is inside the value it names",
	"aliases to each other":   "the alias *s is inside the value it names",
	"deep flow":               "did not find expected node content",
	"too deep":                "exceeded max depth of 10000",
	"tag directives":          "more than 16 %TAG directives",
	"CR tag directives":       "more than 16 %TAG directives",
	"merge keys":              "merge keys (<<) are not supported",
	"binary":                  `the tag "!!binary" is not supported`,
	"long circle":             "the dependencies go in a circle, s0 -> s1 -> s2 -> s3 -> s4 -> … -> ",
	"everything in one group": `is in one group with "s0", which it depends on`,
}

func TestTooLarge(t *testing.T) {
	exact := readFile(t, "testdata/valid/base.yml")
	exact = append(exact, bytes.Repeat([]byte("\n"), MaxBytes-len(exact))...)
	if _, ds := Parse("/d", FileName, exact); ds != nil {
		t.Errorf("%d bytes: %v", len(exact), ds)
	}
	_, ds := Parse("/d", FileName, append(exact, '\n'))
	got, want := ds.Error(), "job.yml: is larger than 1048576 bytes (1 MiB), the most that is read: shorten it"
	testkit.True(t, got == want, "got %q, want %q", got, want)
}
