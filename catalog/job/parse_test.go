package job

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

var update = flag.Bool("update", false, "write golden files anew")

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	return testkit.Get(os.ReadFile(name)).Must(t)
}

func validFiles(t testing.TB) []string {
	t.Helper()
	names, err := filepath.Glob("testdata/valid/*.yml")
	testkit.Need(t, err == nil && len(names) != 0, "no valid files: %v", err)
	return names
}

// The model of a job says what its file does.
func TestParseModel(t *testing.T) {
	for _, name := range []string{"report", "format2"} {
		source := readFile(t, "testdata/valid/"+name+".yml")
		j, ds := Parse("/jobs/"+name, FileName, source)
		testkit.Must(t, ds.Err())
		shown := testkit.Get(json.Marshal(struct {
			*Job
			Workflows    []Workflow
			Source, Hash bool
		}{j, j.Workflows, string(j.Source) == string(source), len(j.Hash) == 64})).Must(t)
		testkit.Golden(t, "testdata/"+name+".golden", withoutEmpty(t, shown)+"\n", *update)
		again, ds := Parse(j.Dir, FileName, j.Source)
		testkit.True(t, ds == nil && reflect.DeepEqual(j, again), "parsed again, the job differs: %v", ds)
	}
	j, _ := Parse("/jobs/report", FileName, readFile(t, "testdata/valid/report.yml"))
	gather, full := j.Step("gather"), j.Workflow("full")
	testkit.Equal(t, gather.Output("raw_material"), &gather.Outputs[1])
	testkit.True(t, gather.Output("x") == nil && j.Step("x") == nil && j.Workflow("x") == nil, "what is unknown is found")
	testkit.Same(t, []int{full.Find("check_style"), full.Find("nobody")}, []int{2, -1})
}

// TestSameJobHoweverSaved: line endings and a byte order mark change nothing
// of what a job says.
func TestSameJobHoweverSaved(t *testing.T) {
	for _, name := range validFiles(t) {
		source := bytes.ReplaceAll(readFile(t, name), []byte("\r\n"), []byte("\n"))
		want, ds := Parse("/d", FileName, source)
		testkit.Need(t, ds == nil, "%s: %v", name, ds)
		for how, changed := range map[string][]byte{
			"BOM":          append([]byte("\xef\xbb\xbf"), source...),
			"CRLF":         bytes.ReplaceAll(source, []byte("\n"), []byte("\r\n")),
			"no last line": bytes.TrimSuffix(source, []byte("\n")),
		} {
			got, ds := Parse("/d", FileName, changed)
			testkit.Need(t, ds == nil, "%s, %s: %v", name, how, ds)
			for _, j := range append(slices.Collect(maps.Values(got.views)), got) {
				j.Source, j.Hash = want.Source, want.Hash
			}
			testkit.True(t, reflect.DeepEqual(got, want), "%s, %s: got another job", name, how)
		}
	}
	_, ds := Parse("/d", FileName, []byte("\xef\xbb\xbfcolour: red\n")) // a byte order mark is no column
	testkit.Contains(t, ds.Error(), "job.yml:1:1: colour: ")
}

// A check without files is bound to less in a group, which validate says.
func TestAGroupsCheckWithoutFilesIsAWarning(t *testing.T) {
	source := strings.Replace(string(readFile(t, "testdata/valid/checks.yml")), "steps: [port]", "steps: [[port, other]]", 1)
	source = strings.Replace(source, "workflows:", "  - {id: other, name: O, description: O, instructions: O, outputs: {}, reviews: []}\nworkflows:", 1)
	j, ds := Parse("/d", FileName, []byte(source))
	testkit.True(t, j != nil && len(j.Warnings) == 2 && strings.Contains(j.Warnings[0].Message, `the check "lint.sh" without files, which here is bound to the outputs alone`), "%v, %v", ds, j)
}

func TestPatterns(t *testing.T) {
	for pattern, names := range map[string]string{ // with ! before those that it doesn't name
		"tests/**": "tests/a tests/a/b !tests !mytests/a", "**/*_test.go": "a_test.go x/y/a_test.go !x/a.go", "*.go": "a.go !x/a.go", "./go.mod": "go.mod",
		"a?c": "abc !a/c", "**": "anything/at/all", "src/**/x": "src/x src/a/b/x", "a.c": "!abc", "(a+)": "(a+)",
	} {
		for name := range strings.FieldsSeq(names) {
			testkit.Equal(t, Matches([]string{pattern}, strings.TrimPrefix(name, "!")), name[0] != '!', "%s names %s", pattern, name)
		}
	}
}
