package job

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

func TestFormat2(t *testing.T) {
	j, ds := Parse("/jobs/survey", FileName, readFile(t, "testdata/valid/format2.yml"))
	testkit.Must(t, ds.Err())
	ask, again := j.Of("ask"), j.Of("again")
	for name, c := range map[string]struct{ got, want string }{
		"a step of the one workflow":         {ask.Step("prepare").Description, "Prepare the questions"},
		"the step of that name in the other": {again.Step("prepare").Description, "Change the questions"},
		"the step with its workflow":         {j.Step("again/prepare").Description, "Change the questions"},
		"the step without":                   {j.Step("prepare").Description, "Prepare the questions"},
		"the common info of the one":         {ask.CommonInfo, "Be polite."},
		"the common info of the other":       {again.CommonInfo, ""},
	} {
		testkit.Equal(t, c.got, c.want, name)
	}
	testkit.Equal(t, testkit.Get(Instructions(j, ask.Step("ask"))).Must(t), "Ask them.")
}

// Each rule of the mapping of format 2, and each older format, has a file of its own, which the walk of
// TestJobsOfAFolder follows too; the golden says what it becomes.
func TestMapping(t *testing.T) {
	files, err := filepath.Glob("testdata/mapping/*.yml")
	testkit.Must(t, err)
	var all strings.Builder
	rules := 0
	for _, file := range files {
		source := readFile(t, file)
		j, _ := Parse("/jobs/x", FileName, source)
		if j == nil {
			c, err := Convert("", source)
			testkit.Must(t, err)
			var ds Diagnostics
			if j, ds = Parse("/jobs/x", FileName, c.Source); j == nil {
				t.Errorf("%s: %v", file, ds)
				continue
			}
		}
		if rules++; strings.Contains(file, "old_") || strings.Contains(file, "ours_") {
			rules--
		} else if want := fmt.Sprintf("%02d_", rules); !strings.HasPrefix(filepath.Base(file), want) {
			t.Errorf("%s comes where rule %s is expected", file, want)
		}
		steps := j.Steps
		if j.Format == 2 {
			steps = nil // those of the workflows
		}
		shown, err := json.Marshal(struct {
			Name, Summary, Version, CommonInfo string
			Steps                              []Step
			Workflows                          []Workflow
			Warnings                           Diagnostics
		}{j.Name, j.Summary, j.Version, j.CommonInfo, steps, j.Workflows, j.Warnings})
		testkit.Must(t, err)
		all.WriteString("# " + filepath.Base(file) + "\n" + withoutEmpty(t, shown) + "\n")
	}
	testkit.True(t, rules == 28, "%d rules have files, want 28", rules)
	testkit.Golden(t, "testdata/mapping.golden", all.String(), *update)
}

// withoutEmpty returns JSON without the members that have no value, indented.
func withoutEmpty(t *testing.T, data []byte) string {
	var v any
	testkit.Must(t, json.Unmarshal(data, &v))
	var clean func(v any) any
	clean = func(v any) any {
		switch v := v.(type) {
		case []any:
			for i := range v {
				v[i] = clean(v[i])
			}
			if len(v) == 0 {
				return nil
			}
		case map[string]any:
			for key, value := range v {
				if v[key] = clean(value); v[key] == nil || v[key] == "" || v[key] == false {
					delete(v, key)
				}
			}
			if len(v) == 0 {
				return nil
			}
		}
		return v
	}
	out, err := json.MarshalIndent(clean(v), "", " ")
	testkit.Must(t, err)
	return string(out)
}
