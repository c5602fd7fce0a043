package job

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
	"gopkg.in/yaml.v3"

	"deepwork/actor/testkit"
	"deepwork/actor/xslices"
	"deepwork/catalog/fieldtag"
	"deepwork/catalog/internal/follow"
)

func write(t testing.TB, content string, path ...string) string {
	t.Helper()
	name := filepath.Join(path...)
	testkit.Write(t, name, content)
	return name
}

func symlink(t testing.TB, target, name string) {
	t.Helper()
	if err := os.Symlink(target, name); err != nil {
		t.Skip("no symlinks here: ", err)
	}
}

func baseJob(t testing.TB) (dir string, j *Job) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "report")
	write(t, string(readFile(t, "testdata/valid/base.yml")), dir, FileName)
	write(t, "Gather.\n", dir, "steps", "gather.md")
	write(t, "Draft.\n", dir, "steps", "draft.md")
	j, ds := Load(dir)
	testkit.Must(t, ds.Err())
	return dir, j
}

func TestLoad(t *testing.T) {
	dir, j := baseJob(t)
	testkit.Equal(t, j.Name+" in "+j.Dir, "report in "+dir)
	// What others find wrong with a job is reported at its place.
	testkit.Equal(t, j.NameFault("x", "taken").String(), "x:1:7: name: taken")
	testkit.Equal(t, j.Warning("x", "gone", "steps", 1, "executor").String(),
		"x:13:5: warning: steps[1].executor: gone")
	// A missing instructions file is found without reading the files.
	testkit.Same(t, MissingFiles(j), nil)

	testkit.Must(t, os.Remove(filepath.Join(dir, "steps", "draft.md")))
	want := `job.yml:16:24: steps[1].instructions_file: "steps/draft.md" does not exist in ` + dir +
		": write the file, or correct the path in job.yml"
	testkit.Equal(t, MissingFiles(j).Error(), want)

	linked := t.TempDir()
	symlink(t, write(t, string(j.Source), t.TempDir(), "x.yml"), filepath.Join(linked, FileName))
	j, ds := Load(linked)
	testkit.True(t, ds == nil && j.Dir == linked, "through a link: %v", ds)

	t.Chdir(filepath.Dir(dir))
	j, ds = Load("report")
	testkit.True(t, ds == nil && filepath.IsAbs(j.Dir), "a relative folder: %v, %v", j, ds)
}

// The faults of a file that a link has brought in quote nothing of it.
func TestFaultsOfALinkQuoteNothing(t *testing.T) {
	dir := testkit.Dir(t)
	faults := Diagnostics{{File: FileName, Message: "is a text (secret)"}}
	testkit.Write(t, filepath.Join(dir, FileName), "secret")
	testkit.Same(t, Unquoted(dir, faults), faults)
	testkit.Must(t, os.Remove(filepath.Join(dir, FileName)))
	symlink(t, write(t, "secret", t.TempDir(), "id_rsa"), filepath.Join(dir, FileName))
	testkit.Equal(t, len(Unquoted(dir, nil)), 0)

	got := Unquoted(dir, faults)
	testkit.Need(t, len(got) == 1, "%v", got)
	testkit.True(t, !strings.Contains(got.Error(), "secret"), "%v", got)
	testkit.Contains(t, got.Error(), "is not a valid job, and")
}

func TestLoadFaults(t *testing.T) {
	for name, c := range map[string]struct {
		make func(t *testing.T, dir string)
		want string
	}{
		"missing": {func(*testing.T, string) {}, "job.yml: does not exist in "},
		"folder": {func(t *testing.T, dir string) {
			write(t, "", dir, FileName, "x")
		}, "job.yml: is a folder, not a file: put a file in its place"},
		"large": {func(t *testing.T, dir string) {
			write(t, strings.Repeat("#", MaxBytes+1), dir, FileName)
		}, "job.yml: has 1048577 bytes, over the limit of 1048576: move long texts"},
		"dangling link": {func(t *testing.T, dir string) {
			symlink(t, "nowhere", filepath.Join(dir, FileName))
		}, "job.yml: does not exist in "},
		"circular link": {func(t *testing.T, dir string) {
			symlink(t, FileName, filepath.Join(dir, FileName))
		}, "job.yml: cannot be read: "},
		"empty": {func(t *testing.T, dir string) { write(t, "", dir, FileName) }, "job.yml:1:1: is empty: write name,"},
		"bad":   {func(t *testing.T, dir string) { write(t, "[", dir, FileName) }, "job.yml:1:1: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.make(t, dir)
			j, ds := Load(dir)
			testkit.Need(t, j == nil, "got %v, want %s", ds, c.want)
			testkit.Need(t, len(ds) != 0, "got %v, want %s", ds, c.want)
			testkit.True(t, strings.HasPrefix(ds.Error(), c.want), "got %v, want %s", ds, c.want)
		})
	}
	_, ds := Load(filepath.Join(t.TempDir(), "gone"))
	testkit.Contains(t, ds.Error(), "does not exist in")
}

// TestReq001_3_10_Instructions reads the instructions of a step.
func TestReq001_3_10_Instructions(t *testing.T) {
	dir, j := baseJob(t)
	s := j.Step("draft")
	expect := func(want string) {
		t.Helper()
		testkit.Equal(t, testkit.Get(Instructions(j, s)).Must(t), want)
	}
	expect("Draft.\n")
	write(t, "\xef\xbb\xbfAnew é.\r\n", dir, "steps", "draft.md")
	expect("Anew é.\r\n")
	write(t, strings.Repeat("x", MaxInstructionsBytes), dir, "steps", "draft.md")
	expect(strings.Repeat("x", MaxInstructionsBytes))
	file := filepath.Join(dir, "steps", "draft.md")
	write(t, "Linked.", dir, "shared", "text.md")
	for _, target := range []string{filepath.Join("..", "shared", "text.md"), filepath.Join(dir, "shared", "text.md")} {
		os.Remove(file)
		symlink(t, target, file)
		expect("Linked.")
	}

	// The job's folder itself may be reached through a link.
	link := filepath.Join(t.TempDir(), "link")
	symlink(t, dir, link)
	j, ds := Load(link)
	testkit.Must(t, ds.Err())
	s = j.Step("draft")
	expect("Linked.")
}

func TestInstructionsFaults(t *testing.T) {
	const begin = `reading the instructions of step "draft" of job "report": the instructions_file "steps/draft.md" `
	for name, c := range map[string]struct {
		make func(t *testing.T, dir, file string)
		want string
		is   error
	}{
		"missing": {func(t *testing.T, dir, file string) {},
			"does not exist in DIR: write the file, or correct the path in job.yml", fs.ErrNotExist},
		"folder": {func(t *testing.T, dir, file string) {
			write(t, "", file, "x")
		}, "is a folder, not a file: put a text file in its place", nil},
		"large": {func(t *testing.T, dir, file string) {
			write(t, strings.Repeat("x", MaxInstructionsBytes+1), file)
		}, "has 1048577 bytes, over the limit of 1048576: shorten it, or let it refer to other files", nil},
		"not UTF-8": {func(t *testing.T, dir, file string) {
			write(t, "one\ntwo\n\xff", file)
		}, "is not UTF-8 text (line 3): save the file as UTF-8", nil},
		"binary": {func(t *testing.T, dir, file string) {
			write(t, "one\n\x00", file)
		}, "is not a text file, it has a NUL byte in line 2: put a text in its place", nil},
		"link outside": {func(t *testing.T, dir, file string) {
			symlink(t, write(t, "secret", dir, "..", "secret"), file)
		}, "leads out of DIR, to ", nil},
		"relative link": {func(t *testing.T, dir, file string) {
			write(t, "secret", dir, "..", "secret")
			symlink(t, "../../secret", file)
		}, "leads out of DIR, to ", nil},
		"folder link": {func(t *testing.T, dir, file string) {
			os.Remove(filepath.Dir(file))
			write(t, "secret", dir, "..", "out", "draft.md")
			symlink(t, "../out", filepath.Dir(file))
		}, "leads out of DIR, to ", nil},
		"dangling link": {func(t *testing.T, dir, file string) {
			symlink(t, "nowhere", file)
		}, "does not exist in DIR", fs.ErrNotExist},
		"job folder gone": {func(t *testing.T, dir, file string) {
			os.RemoveAll(dir)
		}, "cannot be read, since its job's folder DIR is gone: put it back", fs.ErrNotExist},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each waits for the end of a save
			dir, j := baseJob(t)
			file := filepath.Join(dir, "steps", "draft.md")
			testkit.Must(t, os.Remove(file))
			os.Remove(filepath.Join(dir, "steps", "gather.md"))
			c.make(t, dir, file)
			_, err := Instructions(j, j.Step("draft"))
			testkit.Fails(t, err, begin+strings.ReplaceAll(c.want, "DIR", dir))
			testkit.True(t, c.is == nil || errors.Is(err, c.is), "%v is not %v", err, c.is)
		})
	}
}

// A file that an editor is saving just now is waited for.
func TestInstructionsThatAreBeingSaved(t *testing.T) {
	for name, saving := range map[string]func(t *testing.T, file string){
		"deleted, to be created": func(t *testing.T, file string) { os.Remove(file) },
		"truncated":              func(t *testing.T, file string) { os.Truncate(file, 0) },
		"half a letter":          func(t *testing.T, file string) { write(t, "Saved \xc3", file) },
		"its folder moved away":  func(t *testing.T, file string) { os.RemoveAll(filepath.Dir(file)) },
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 {
				dir, j := baseJob(t)
				file := filepath.Join(dir, "steps", "draft.md")
				began := time.Now()
				saving(t, file)
				took, schema := make(chan time.Duration), make(chan string, 1)
				go func() {
					text, _ := ContentSchema{File: "steps/draft.md"}.Text(dir)
					schema <- string(text)
				}()
				go func() {
					time.Sleep(5 * follow.Settle)
					testkit.Works(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o777),
						os.WriteFile(file, []byte("Saved é."), 0o666)))
					took <- time.Since(began)
				}()

				got, err := Instructions(j, j.Step("draft"))
				if <-took > follow.SaveBound/2 {
					continue // the machine stood still
				}
				testkit.True(t, err == nil && got == "Saved é.", "got %q, %v", got, err)
				testkit.Equal(t, <-schema, `"Saved é."`, "a schema")
				return
			}

			t.Skip("no save was quick enough here")
		})
	}
}

// A link that is led elsewhere all the time always leads to one of the texts.
func TestInstructionsWhoseLinkMoves(t *testing.T) {
	dir, j := baseJob(t)
	file := filepath.Join(dir, "steps", "draft.md")
	testkit.WriteAll(t, dir, map[string]string{"saves/a": "Text a.", "saves/b": "Text b."})

	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			aside := filepath.Join(dir, "aside")
			switch n % 3 {
			case 0:
				testkit.Works(t, os.Symlink(filepath.Join(dir, "saves", "a"), aside))
			case 1:
				testkit.Works(t, os.WriteFile(aside, []byte("Text c."), 0o644))
			case 2:
				testkit.Works(t, os.Symlink("../saves/b", aside))
			}
			testkit.Works(t, os.Rename(aside, file))
		}
	})

	wanted := []string{"Draft.\n", "Text a.", "Text b.", "Text c."}
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		got, err := Instructions(j, j.Step("draft"))
		testkit.Need(t, err == nil && slices.Contains(wanted, got), "got %q, %v", got, err)
	}
}

func TestCheckFiles(t *testing.T) {
	dir, j := baseJob(t)
	testkit.Same(t, CheckFiles(j), nil)
	testkit.WriteAll(t, dir, map[string]string{
		FileName:               string(readFile(t, "testdata/valid/report.yml")),
		"steps/check_facts.md": "x",
		"steps/check_style.md": "\xff",
		"steps/publish.md":     " \n",
		"hooks/spell.sh":       "#!/bin/sh\n",
	})

	os.Remove(filepath.Join(dir, "steps", "draft.md"))
	write(t, "", dir, "hooks", "tone.md", "x")
	j, ds := Load(dir)
	testkit.Must(t, ds.Err())
	nothing := func(at, hook string) string {
		return at + ": warning: steps[1]." + hook +
			"[0]: nothing runs this hook: make it a review of the step; 'deepwork jobs convert' does so if it has a " +
			"prompt and runs after the step"
	}
	want := strings.ReplaceAll(strings.Join([]string{
		`job.yml:40:24: steps[1].instructions_file: "steps/draft.md" does not exist in DIR: write the file, or ` +
			`correct the path in job.yml`,
		nothing("job.yml:53:11", "hooks.after_agent"),
		nothing("job.yml:55:11", "hooks.before_tool"),
		nothing("job.yml:57:11", "hooks.before_prompt"),
		`job.yml:57:11: warning: steps[1].hooks.before_prompt[0]: "hooks/tone.md" is a folder, not a file: ` +
			`put a text file in its place`,
		nothing("job.yml:59:9", "stop_hooks"),
		`job.yml:76:24: steps[3].instructions_file: "steps/check_style.md" is not UTF-8 text (line 1): save the ` +
			`file as UTF-8`,
		`job.yml:84:24: warning: steps[4].instructions_file: "steps/publish.md" is empty: write what it should say`,
	}, "\n"), "DIR", dir)
	testkit.Equal(t, CheckFiles(j).Error(), want)
}

// An input that names no output of its step is a fault for those who check, but the job loads with a warning
// that says which one was probably meant.
func TestField26_InputsOfUnknownOutputs(t *testing.T) {
	dir, j := baseJob(t)
	testkit.Same(t, j.Warnings, nil)
	for file, c := range map[string]struct{ warned, fault string }{
		"figure": {"did you mean figures?",
			`steps[1].inputs[0].file: step "gather" makes no output "figure": did you mean figures?`},
		"prose.md": {"write one of figures",
			`steps[1].inputs[0].file: step "gather" makes no output "prose.md": its outputs are figures`},
		"none": {"has no outputs, so the input is always empty: add one",
			`steps[1].inputs[0].file: step "gather" makes no output "none": it has no outputs; add one, or remove ` +
				`the input`},
	} {
		changed := strings.Replace(string(readFile(t, baseFile)), "file: figures", "file: "+file, 1)
		if file == "none" {
			changed = strings.Replace(changed, "outputs:\n      figures: {type: file, description: The figures}\n",
				"outputs: {}\n", 1)
		}
		j, ds := Parse(dir, FileName, []byte(changed))
		testkit.Must(t, ds.Err())
		testkit.Contains(t, Diagnostics(j.Warnings).Error(), c.warned)
		testkit.Contains(t, CheckFiles(j).Error()+"\n", c.fault+"\n")
	}
}

// A schema in a file that does not exist, or that cannot be used, is a fault for those who check.
func TestSchemaFiles(t *testing.T) {
	dir := t.TempDir()
	j, ds := Parse(dir, FileName, readFile(t, "testdata/valid/format2.yml"))
	testkit.Must(t, ds.Err())
	for _, c := range []struct{ schema, want string }{
		{"", "does not exist in " + dir},
		{"{", "is not YAML or JSON"},
		{"type: nothing", "the JSON Schema cannot be used"},
		{"type: object", ""},
	} {
		if c.schema != "" {
			write(t, c.schema, dir, "schemas", "summary.json")
		}
		got := CheckFiles(j).Error()
		testkit.Contains(t, got, c.want)
		testkit.True(t, c.want == "" || strings.HasPrefix(got, "job.yml:23:18: step_arguments[3].json_schema: "),
			"%q: got %s", c.schema, got)
		testkit.Equal(t, len(MissingFiles(j)) > 0, c.schema == "", "%v", c.schema)
	}
}

// asJSON gives what an editor makes of YAML before it applies a schema.
func asJSON(n *yaml.Node) any {
	switch n.Kind {
	case yaml.DocumentNode:
		return asJSON(n.Content[0])
	case yaml.AliasNode:
		return asJSON(n.Alias)
	case yaml.SequenceNode:
		return xslices.Map(n.Content, asJSON)
	case yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		for i := 0; i < len(n.Content); i += 2 {
			m[n.Content[i].Value] = asJSON(n.Content[i+1])
		}
		return m
	}

	switch n.Tag {
	case "!!int", "!!float":
		f, _ := strconv.ParseFloat(n.Value, 64)
		return f
	case "!!bool":
		return strings.EqualFold(n.Value, "true")
	case "!!null":
		return nil
	}
	return n.Value
}

// TestSchemaAgrees holds the schema against the parser: what one accepts the
// other does, except what is marked as the parser's alone, and nothing else is.
func TestSchemaAgrees(t *testing.T) {
	var s jsonschema.Schema
	testkit.Must(t, json.Unmarshal(Schema(), &s))
	r := testkit.Get(s.Resolve(nil)).Must(t)
	judge := func(t *testing.T, source []byte) error {
		t.Helper()
		var n yaml.Node
		testkit.Must(t, yaml.Unmarshal(source, &n))
		return r.Validate(asJSON(&n))
	}
	for _, name := range append(validFiles(t), testkit.Get(filepath.Glob("testdata/mapping/*.yml")).Must(t)...) {
		j, _ := Parse("/jobs/x", FileName, readFile(t, name))
		testkit.Equal(t, judge(t, readFile(t, name)) == nil, (j != nil), "%v %v", name, j != nil)
	}

	ours, other := string(readFile(t, "testdata/valid/base.yml")), string(readFile(t, "testdata/valid/format2.yml"))
	for name, mix := range map[string]string{
		"ours with step_arguments": ours + "step_arguments: []\n",
		"ours with workflows of the other": strings.Replace(ours, "workflows:\n",
			"workflows: {w: {summary: W, steps: [{name: a, instructions: A}]}}\nnone:\n", 1),
		"the other with steps":     other + "steps: []\n",
		"the other with a version": other + "version: \"1.0.0\"\n",
		"the other with workflows as a list": strings.Replace(other, "workflows:\n",
			"workflows: [{name: w, summary: W, steps: []}]\nnone:\n", 1),
	} {
		j, _ := Parse("/jobs/x", FileName, []byte(mix))
		testkit.True(t, j == nil && judge(t, []byte(mix)) != nil, "%s: accepted by the parser: %v, by the schema: %v",
			name, j != nil, judge(t, []byte(mix)) == nil)
	}

	for _, c := range baseRules(t) {
		var n yaml.Node
		if c.parserOnly && (!utf8.Valid(c.source) || strings.Contains(c.name, "alias circle") ||
			yaml.Unmarshal(c.source, &n) != nil || n.Kind == 0) {
			continue // an editor makes no JSON of it
		}
		testkit.Equal(t, judge(t, c.source) == nil, c.parserOnly, "%v", c.name)
	}
}

// TestSchemaHasTheShapes holds the keys of the schema, and which are required,
// against the parser's tables, and every property against having no description.
func TestSchemaHasTheShapes(t *testing.T) {
	parse := func(data json.RawMessage) (o object) {
		t.Helper()
		testkit.Must(t, json.Unmarshal(data, &o))
		return o
	}
	root := parse(Schema())
	step := parse(root.Defs["step"])
	for name, of := range map[string]any{
		"job":       Job{},
		"format2":   file2{},
		"argument":  argument2{},
		"review2":   review2{},
		"workflow2": workflow2{},
		"step2":     step2{},
		"use":       use2{},
		"parameter": Parameter{},
		"step":      Step{},
		"check":     StepCheck{},
		"output":    Output{},
		"review":    Review{},
		"input":     Input{},
		"hook":      Hook{},
		"workflow":  Workflow{},
	} {
		checkShape(t, of, parse(root.Defs[name]))
	}
	checkShape(t, Hooks{}, parse(step.Properties["hooks"]))
}

type object struct {
	Required             []string                   `json:"required"`
	Properties           map[string]json.RawMessage `json:"properties"`
	AdditionalProperties *bool                      `json:"additionalProperties"`
	Defs                 map[string]json.RawMessage `json:"$defs"`
}

func checkShape(t *testing.T, of any, o object) {
	t.Helper()
	var all, required []string
	for _, f := range reflect.VisibleFields(reflect.TypeOf(of)) {
		f.Tag = fieldtag.Of(reflect.TypeOf(of), f)
		name := f.Tag.Get("yaml")
		if name == "" || name[0] == ',' {
			continue
		}
		all = append(all, name)
		if f.Tag.Get("add") != "" {
			required = append(required, name)
		}
	}
	testkit.Same(t, slices.Sorted(maps.Keys(o.Properties)), slices.Sorted(slices.Values(all)), "%T: keys", of)
	testkit.Same(t, slices.Sorted(slices.Values(o.Required)), slices.Sorted(slices.Values(required)),
		"%T: required keys", of)
	testkit.True(t, o.AdditionalProperties != nil && !*o.AdditionalProperties, "%T: the schema allows other keys", of)

	for name, p := range o.Properties {
		var described struct {
			Description string `json:"description"`
		}
		testkit.True(t, json.Unmarshal(p, &described) == nil && len(described.Description) >= 10,
			"%T: property %s has no description", of, name)
	}
}

// The page has a table for each object of the schema, with a row for each key that says whether it is required.
func TestDocumentationDescribesEveryKey(t *testing.T) {
	var schema object
	testkit.Must(t, json.Unmarshal(Schema(), &schema))
	page := readFile(t, "../../cmd/deepwork/docs/reference/job-file.md")
	for name, of := range schema.Defs {
		var o struct {
			Properties map[string]any
			Required   []string
		}
		testkit.Must(t, json.Unmarshal(of, &o))
		title := strings.ToUpper(name[:1]) + name[1:]
		_, section, _ := strings.Cut(string(page), "\n### "+title+"\n")
		section, _, _ = strings.Cut(section, "\n### ")
		for key := range o.Properties {
			required := map[bool]string{true: "yes", false: "no"}[slices.Contains(o.Required, key)]
			described := func(line string) bool {
				cells := strings.Split(line, " | ")
				return len(cells) == 3 && strings.Contains(cells[0], "`"+key+"`") && cells[1] == required
			}
			testkit.True(t, slices.ContainsFunc(strings.Split(section, "\n"), described),
				"job-file.md has no row for %s under the heading %s that says required: %s", key, title, required)
		}
	}
}
