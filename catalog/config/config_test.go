package config

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
)

// What is absent or null is the default.
func TestEmptyFileIsTheDefaults(t *testing.T) {
	for _, source := range []string{
		"", "\n\n", "# quality_gate:\n#   default_timeout: 3\n", "~\n", "{}",
		"version:\nplatforms:\nquality_gate:\ngit:\ntoolsets:\n",
		"quality_gate: {agent_review_command: , default_timeout: ~, default_max_attempts: null, reviewer_executor: }",
		"projects:\nexecutors:\nattempts:\n", "projects: []\nexecutors: {}\nattempts: {}", "sessions: {keep_ended: 0}",
		"attempts: {max_concurrent: , worktrees: ~, copy: , setup: }", "attempts: {setup: []}",
		"http:", "http: {}", "http: {tokens: , allowed_hosts: ~, max_requests: null, idle_timeout: }", "notify:",
		"prices:",
		"workflow_tools: {enabled: , include: , prefix: , refresh_interval: , max_concurrent_executions: ~, " +
			"sources: null}",
	} {
		testkit.Same(t, parsed(t, source), Default())
		testkit.Same(t, parsedUser(t, source).Over(Default()), Default())
	}

	d := Default()
	testkit.Equal(t, d.QualityGate.MaxConcurrentReviews, max(2, runtime.GOMAXPROCS(0)), "defaults are %+v", d)
	testkit.Need(t, d.Toolsets == nil, "defaults are %+v", d)
	testkit.True(t, d.QualityGate.AgentReviewCommand == nil, "defaults are %+v", d)
}

// accepts holds what files say, where it differs from the defaults, against a file: each block of it is a
// file, and below it are lines that begin with "= ". A file that begins with "# user" is a user's own.
func accepts(t *testing.T, file string) {
	text := strings.ReplaceAll(strings.TrimSpace(string(testkit.Get(os.ReadFile(file)).Must(t))), "\r\n", "\n")
	defaults := values(t, Default())
	var all []string
	for block := range strings.SplitSeq(text, "\n\n") {
		source, _, _ := strings.Cut(block, "\n= ")
		var c *Config
		if strings.HasPrefix(source, "# user") {
			c = parsedUser(t, source).Over(Default())
		} else {
			c = parsed(t, source)
		}

		got := values(t, c)
		for _, key := range slices.Sorted(maps.Keys(got)) {
			if got[key] != defaults[key] {
				source += "\n= " + strings.ReplaceAll(key+" = "+got[key], UserFile(), "USERFILE")
			}
		}
		all = append(all, source)
	}
	testkit.Golden(t, file, strings.Join(all, "\n\n")+"\n", *update)
}

// values returns the values of a config by their keys, as JSON in which the items of lists leave out zero fields.
func values(t *testing.T, c *Config) map[string]string {
	all := map[string]string{}
	var walk func(key string, v reflect.Value)
	walk = func(key string, v reflect.Value) {
		if v.Kind() == reflect.Pointer && !v.IsNil() {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct {
			all[key] = string(testkit.Get(json.Marshal(nonzero(v))).Must(t))
			return
		}
		for field, value := range v.Fields() {
			walk(strings.TrimPrefix(key+"."+field.Name, "."), value)
		}
	}
	walk("", reflect.ValueOf(c))
	return all
}

// nonzero returns a value with each struct as a map of the fields that are not zero. A pointer to zero is kept.
func nonzero(v reflect.Value) any {
	switch {
	case v.Kind() == reflect.Slice && !v.IsNil():
		all := []any{}
		for _, item := range v.Seq2() {
			all = append(all, nonzero(item))
		}
		return all
	case v.Kind() == reflect.Struct:
		fields := map[string]any{}
		for field, value := range v.Fields() {
			if !value.IsZero() {
				fields[field.Name] = nonzero(value)
			}
		}
		return fields
	}
	return v.Interface()
}

// TestAcceptedFiles begins with the example of seed 001, "Configuration".
func TestAcceptedFiles(t *testing.T) { accepts(t, "testdata/accepted.txt") }

// The example, every key of it.
func TestReq003_4_1_WorkflowTools(t *testing.T) { accepts(t, "testdata/workflow_tools.txt") }

// The user's limits are in force where they set some, and those of the project elsewhere.
func TestLimitsAndAutoStart(t *testing.T) {
	c := parsed(t, "attempts: {max_cost_usd: 12.5, max_unknown: 0, auto_start: {executor: 'CODEX:PLAN', "+
		"max_in_review: 3}}")
	a := parsedUser(t, "attempts: {max_cost_usd: 20, max_unknown: , auto_start: false}").Over(c).Attempts
	testkit.Equal(t, *a.MaxCostUSD, Limit{20, UserFile()})
	testkit.Equal(t, *a.MaxUnknown, Limit{0, ".deepwork/config.yml"})
	testkit.True(t, a.AutoStart == nil, "%+v", a)
}

var update = flag.Bool("update", false, "rewrite golden files")

// TestFaults holds every fault, with its position and remedy, against testdata/faults.txt: files, each
// with its faults below, which begin with "! ". A file that begins with "# user" is a user's own.
func TestFaults(t *testing.T) {
	const file = "testdata/faults.txt"
	text := testkit.Get(os.ReadFile(file)).Must(t)
	var all []string
	for block := range strings.SplitSeq(strings.ReplaceAll(strings.TrimSpace(string(text)), "\r\n", "\n"), "\n\n") {
		source := regexp.MustCompile(`(?m)\n! .*$`).ReplaceAllString(block, "")
		var faults job.Diagnostics
		if strings.HasPrefix(source, "# user") {
			_, faults = ParseUser("config.yml", []byte(source))
		} else {
			_, faults = Parse("config.yml", []byte(source))
		}
		testkit.True(t, faults != nil, "accepted:\n%s", source)

		// neither passwords nor tokens are repeated
		for _, secret := range []string{"s3cret", "my-secret", "me:secret"} {
			testkit.True(t, !strings.Contains(faults.Error(), secret), "the secret is in %v", faults)
		}
		all = append(all, source+"\n! "+
			strings.ReplaceAll(strings.ReplaceAll(faults.Error(), UserFile(), "USERFILE"), "\n", "\n! "))
	}
	testkit.Golden(t, file, strings.Join(all, "\n\n")+"\n", *update)
}

func TestFilesThatAreNoText(t *testing.T) {
	for source, want := range map[string]string{
		"version: 1\n# \xff\n": "config.yml:2:3: the byte 0xff at offset 13 is " +
			"not UTF-8",
		strings.Repeat("#", MaxBytes+1):                             "config.yml: is larger than 1048576 bytes",
		"workflow_tools: {prefix: " + strings.Repeat("a", 33) + "}": "at most 32 letters",
	} {
		refused(t, source, want)
	}
}

func refused(t *testing.T, source, want string) {
	t.Helper()
	c, faults := Parse("config.yml", []byte(source))
	testkit.True(t, c == nil && strings.Contains(faults.Error(), want), "%.40q: %v, want %s", source, faults, want)
}

func TestFaultsAreBounded(t *testing.T) {
	_, faults := Parse("config.yml", []byte("platforms: ["+strings.Repeat("1,", 50_000)+"]"))
	testkit.Need(t, len(faults) == job.MaxDiagnostics+1, "%d faults", len(faults))
	testkit.Contains(t, faults[job.MaxDiagnostics].Message, "49900 more errors")
}

func TestSplitCommand(t *testing.T) {
	for line, want := range map[string][]string{
		``:                                nil,
		"  \t ":                           nil,
		`claude --print`:                  {"claude", "--print"},
		`a 'b c' "d e" f\ g`:              {"a", "b c", "d e", "f g"},
		`a'b'"c"d`:                        {"abcd"},
		`a '' ""`:                         {"a", "", ""},
		`'it'\''s'`:                       {"it's"},
		`"a\"b\\c\$d\e"`:                  {`a"b\c$d\e`},
		`'a\b'`:                           {`a\b`},
		"a\\\nb \"c\\\nd\"":               {"ab", "cd"},
		`a '|' "&&" \; x|y`:               {"a", "|", "&&", ";", "x|y"},
		`x --allowed 'Bash(git:*)' $HOME`: {"x", "--allowed", "Bash(git:*)", "$HOME"},
		`ünï cödé`:                        {"ünï", "cödé"},
	} {
		testkit.Same(t, testkit.Get(SplitCommand(line)).Must(t), want, "%q", line)
	}
	for _, line := range []string{`'a`, `"a`, `a\`, `"a\"`, `a | b`, `a > b`, `a && b`, `a ; b`, "a\x00b", "\"\x00\""} {
		testkit.Fails(t, testkit.Get(SplitCommand(line)).Err(), "", "%q is split", line)
	}
}

func FuzzConfig(f *testing.F) {
	for _, seed := range []string{
		"", "version: \"1.0\"\nplatforms: [claude]\n",
		"quality_gate:\n  agent_review_command: \"claude --print\"\n  default_timeout: 2m\n",
		"git: {branch: create}\ntoolsets: [remote]\nhttp: {a: [b]}\n",
		"a: &a [*a]\n", "---\n---\n", "? [x]\n: y\n", "git: &x {branch: name}\nhttp: *x\n", "\xff",
	} {
		f.Add([]byte(seed))
	}

	f.Fuzz(func(t *testing.T, source []byte) {
		c, faults := Parse("config.yml", source)
		testkit.Need(t, (c == nil) != (len(faults) == 0), "%v beside %v", c, faults)
		for _, d := range faults {
			testkit.True(t, d.Message != "", "diagnostic %+v", d)
			testkit.Equal(t, d.File, "config.yml", "diagnostic %+v", d)
			testkit.True(t, d.Line >= 0, "diagnostic %+v", d)
			testkit.True(t, d.Column >= 0, "diagnostic %+v", d)
			testkit.Equal(t, (d.Line == 0), (d.Column == 0), "diagnostic %+v", d)
		}

		if c == nil {
			return
		}

		q := c.QualityGate
		most := min(q.DefaultMaxAttempts-1, q.MaxConcurrentReviews-1, q.MaxInlineFiles)
		testkit.True(t, most >= 0, "accepted: %+v", c)
		testkit.True(t, q.DefaultTimeout >= 0, "accepted: %+v", c)
		testkit.True(t, q.ReplyWithin > 0, "accepted: %+v", c)
		testkit.True(t, c.Git.Branch != "", "accepted: %+v", c)
	})
}

// Neither aliases nor directives make a small file cost much.
func TestAFileThatExpands(t *testing.T) {
	var bomb, tags strings.Builder
	bomb.WriteString("executors:\n  E: &e\n    command: [x]\n    variants:\n")
	for i := range 10_000 {
		fmt.Fprintf(&bomb, "      V%d: {command: [x]}\n", i)
	}
	for i := range 10_000 {
		fmt.Fprintf(&bomb, "  E%d: *e\n", i)
		fmt.Fprintf(&tags, "%%TAG !a%d! tag:x,2000:\n", i)
	}

	for source, want := range map[string]string{
		bomb.String(): "expand to more than",
		tags.String() + "---\nversion: \"1.0\"\n": "%TAG directives",
		"projects: &a [*a]\n":                     "never end",
		"executors: &a {x: *a}\n":                 "never end",
	} {
		refused(t, source, want)
	}
}

func TestPlacesOfAliases(t *testing.T) {
	lines := Places([]byte("git: {branch: &n create}\nworkflow_tools:\n  sources:\n    - &s\n      name: *n\n      " +
		"command: [x]\n    - {name: two, command: &c [x]}\n    - *s\nexecutors:\n  *n : {command: *c}\n"))
	for key, want := range map[string]int{
		"git.branch":                    1,
		"workflow_tools.sources.create": 8,
		"workflow_tools.sources.two":    7,
		"executors.create":              10,
	} {
		testkit.Equal(t, lines[key], want, "%s is in line", key)
	}
}

// FuzzSplitCommand checks that words, each quoted, come back as they were.
func FuzzSplitCommand(f *testing.F) {
	f.Add("a 'b' \"c\" \\d")
	f.Add("x | y")
	f.Fuzz(func(t *testing.T, line string) {
		words, err := SplitCommand(line)
		if err != nil {
			return
		}
		quoted := make([]string, len(words))
		for i, w := range words {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		again, err := SplitCommand(strings.Join(quoted, " "))
		testkit.True(t, err == nil && slices.Equal(again, words), "%q became %q (%v)", words, again, err)
	})
}

// The page of the config shows the defaults, every key, and examples of sources and of a task board.
func TestDocumentedExamples(t *testing.T) {
	data := testkit.Get(os.ReadFile("../../cmd/deepwork/docs/reference/config.md")).Must(t)
	block := func(kind string) string {
		_, rest, found := strings.Cut(string(data), "```yaml "+kind+"\n")
		text, _, closed := strings.Cut(rest, "```")
		testkit.Need(t, found && closed, "config.md shows no %s", kind)
		return text
	}
	shown := block("config")
	c, faults := Parse("config.yml", []byte(shown))
	testkit.Need(t, faults == nil && slices.Equal(c.Toolsets, DefaultToolsets), "config.md shows %+v, %v", c, faults)
	c.Toolsets, c.Platforms = nil, nil
	testkit.True(t, reflect.DeepEqual(c, Default()), "config.md shows\n%+v\nthe defaults are\n%+v", c, Default())
	c, faults = Parse("config.yml",
		[]byte(regexp.MustCompile(`(?m)^(\s*)# ([a-z_]+: )`).ReplaceAllString(shown, "$1$2")))
	testkit.True(t, faults == nil && len(c.QualityGate.AgentReviewCommand) == 2,
		"with every setting that is commented out it is %+v, %v", c, faults)

	told := func(text, fault string) {
		_, faults := Parse("config.yml", []byte(fault))
		_, keys, _ := strings.Cut(faults.Error(), "with the keys ")
		for key := range strings.SplitSeq(keys, ", ") {
			testkit.Contains(t, text, " "+key+":", "config.md does not describe %s", key)
		}
	}
	told(shown, "workflow_tools: 7\n")
	example := block("sources")
	c, faults = Parse("config.yml", []byte(example))
	testkit.True(t, faults == nil && len(c.WorkflowTools.Sources) == 2, "config.md's sources: %+v %v", c, faults)
	told(example, "workflow_tools: {sources: [7]}\n")
	board := block("board")
	c, faults = Parse("config.yml", []byte(board))
	testkit.Need(t, faults == nil, "config.md's board: %+v %v", c, faults)
	testkit.Need(t, len(c.Executors) != 0, "config.md's board: %+v %v", c, faults)
	testkit.Need(t, len(c.Executors[0].Variants) != 0, "config.md's board: %+v %v", c, faults)
	testkit.True(t, len(c.Projects) != 0, "config.md's board: %+v %v", c, faults)

	told(board, "executors: {A: 7}\n")
	told(board, "projects: [7]\n")
	told(board, "projects: [{name: a, repos: [7]}]\n")
}
