package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"gopkg.in/yaml.v3"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/standard"
	"deepwork/cmd/deepwork/library"
)

// TestJobsOfAFolder loads each job file of a folder, of any format, converts it first if it must be, and walks each of
// its workflows over MCP with made-up values. It walks the small files of the project, the examples of its pages, and
// those of DEEPWORK_TEST_JOBS if that is set: a folder of job files, or of jobs with their files. Files that
// a job names and that do not exist are made up.
func TestJobsOfAFolder(t *testing.T) {
	ownUser(t, "")
	folders := []string{"../../catalog/job/testdata/valid"}
	if more := os.Getenv("DEEPWORK_TEST_JOBS"); more != "" {
		folders = append(folders, more)
	}
	examples := t.TempDir()
	for i, s := range snippets(t, "yaml job") {
		writeFiles(t, examples, map[string]string{fmt.Sprintf("README_%d.yml", i+1): s.text})
	}

	for _, folder := range append(folders, examples) {
		found := 0
		must(t, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".yml") && !d.IsDir() {
				found++
				name, _ := filepath.Rel(folder, path)
				t.Run(filepath.ToSlash(name), func(t *testing.T) { walkFile(t, path) })
			}
			return err
		}))
		testkit.True(t, found != 0, "%s has no job files", folder)
	}
}

func walkFile(t *testing.T, path string) {
	source := testkit.Get(os.ReadFile(path)).Must(t)
	var file any
	must(t, yaml.Unmarshal(source, &file))
	root := t.TempDir()
	dir := filepath.Join(root, ".deepwork", "jobs", strings.TrimSuffix(filepath.Base(path), ".yml"))
	if filepath.Base(path) == job.FileName {
		dir = filepath.Join(filepath.Dir(dir), filepath.Base(filepath.Dir(path)))
		must(t, os.MkdirAll(filepath.Dir(dir), 0o755))
		must(t, os.CopyFS(dir, os.DirFS(filepath.Dir(path))))
	} else {
		writeFiles(t, dir, map[string]string{job.FileName: string(source)})
	}
	makeUp(t, dir, file)
	j, faults := job.Load(dir)
	if j == nil || len(j.Workflows) == 0 {
		testkit.Need(t, j != nil || strings.Contains(faults[0].Message, "'deepwork jobs convert "),
			"its first fault does not say how to convert it: %v", faults)
		mustPrint(t, root, "jobs", "convert", "--write", filepath.Base(dir))
		j, faults = job.Load(dir)
		testkit.Need(t, j != nil, "it does not load when converted: %v", faults)
	}
	for i := range j.Workflows {
		for _, s := range j.Of(j.Workflows[i].Name).Steps {
			if c := s.Call; c != nil && c.Job != "" && c.Job != j.Name {
				made := strings.Replace(jobText(c.Job, "only"), "name: w,", "name: "+c.Workflow+",", 1)
				writeFiles(t, filepath.Join(root, ".deepwork", "jobs", c.Job),
					map[string]string{"job.yml": made, "a.md": "Do it."})
			}
		}
	}
	w := walker{t, root, passingClient(t, root), j}
	for i := range j.Workflows {
		checked := slices.ContainsFunc(j.Of(j.Workflows[i].Name).Steps, func(s job.Step) bool {
			return len(s.Checks) > 0 && j.Workflows[i].Find(s.ID) >= 0
		})
		if len(j.Workflows[i].Entries) > 0 && !checked { // checks run programs, which these projects do not have
			w.walk(&j.Workflows[i])
		}
	}
}

// passingClient is a client of a server that has no reviewer. Its user passes every review of a person.
func passingClient(t *testing.T, root string) *mcp.ClientSession {
	return askedClient(t, root, func(string) *mcp.ElicitResult {
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "pass"}}
	}, "--no-quality-gate")
}

// makeUp makes the files that a job names and that are missing.
func makeUp(t *testing.T, dir string, value any) {
	switch value := value.(type) {
	case []any:
		for _, v := range value {
			makeUp(t, dir, v)
		}
	case map[string]any:
		for key, v := range value {
			name, ok := v.(string)
			text := "What " + name + " says.\n"
			switch key {
			case "json_schema", "schema":
				text = "{}"
			case "instructions_file", "prompt_file", "script":
			default:
				ok = false
			}
			if !ok {
				makeUp(t, dir, v)
			} else if !fileExists(filepath.Join(dir, name)) {
				writeFiles(t, dir, map[string]string{name: text})
			}
		}
	}
}

// A walker walks the workflows of a job as an agent does.
type walker struct {
	t      *testing.T
	root   string
	client *mcp.ClientSession
	job    *job.Job
}

// A shown is what an agent is shown of a step.
type shown struct {
	SessionID string `json:"session_id"`
	StepID    string `json:"step_id"`
	Outputs   []struct {
		Name     string
		Required bool
	} `json:"step_expected_outputs"`
	Instructions string `json:"step_instructions"`
	all          []byte // of it
	workflow     string // of its session, as job/workflow
}

func (s *shown) UnmarshalJSON(data []byte) error {
	type plain shown
	s.all = slices.Clone(data)
	return json.Unmarshal(data, (*plain)(s))
}

type progress struct {
	Status     string
	Feedback   string
	BeginStep  *shown   `json:"begin_step"`
	Concurrent []*shown `json:"concurrent_steps"`
	Closing    string   `json:"post_workflow_instructions"`
	Stack      []struct {
		SessionID string `json:"session_id"`
		Workflow  string
	}
}

func (w *walker) walk(wf *job.Workflow) {
	args := map[string]any{"goal": "walk", "job_name": w.job.Name, "workflow_name": wf.Name}
	inputs := map[string]any{}
	for _, p := range wf.Inputs {
		inputs[p.Name] = w.value("in/"+wf.Name, p.Name, p.Type, job.ContentSchema{}, wanted(wf, p.Name))
	}
	if len(inputs) > 0 {
		args["inputs"] = inputs
	}
	now := w.call("start_workflow", args)
	given := map[string]map[string]any{now.BeginStep.SessionID: inputs}
	todo := now.steps()
	for n := 0; len(todo) > 0; n++ {
		s := todo[0]
		todo = todo[1:]
		testkit.Need(w.t, n <= 200, "%s does not end", wf.Name)

		jobName, name, _ := strings.Cut(s.workflow, "/")
		outputs := map[string]any{}
		at := w.job.Workflow(name)
		if jobName == w.job.Name { // else it is a workflow that makeUp has made
			view := w.job.Of(name)
			w.compare(view, s, given[s.SessionID])
			for _, o := range s.Outputs {
				declared := view.Step(s.StepID).Output(o.Name)
				outputs[o.Name] = w.value("out/"+name+"/"+s.StepID, o.Name, declared.Type, declared.Schema,
					wanted(at, o.Name))
			}
		}

		now = w.call("finished_step", map[string]any{
			"outputs":    outputs,
			"notes":      "It was made up.",
			"step_id":    s.StepID,
			"session_id": s.SessionID,
		})
		testkit.Need(w.t, now.Status != "needs_work", "%s: step %s: %s", s.workflow, s.StepID, now.Feedback)
		if now.Status == "workflow_complete" && at != nil && jobName == w.job.Name {
			testkit.Contains(w.t, now.Closing, strings.TrimSpace(at.Closing), "%s: the closing instructions",
				s.workflow)
		}

		todo = append(todo, now.steps()...)
	}
	testkit.True(w.t, now.Status == "workflow_complete", "%s does not end", wf.Name)
}

// steps returns the steps that a reply begins, each with its session and workflow.
func (p *progress) steps() (all []*shown) {
	if p.BeginStep == nil {
		return nil
	}

	for _, s := range append([]*shown{p.BeginStep}, p.Concurrent...) {
		if s.SessionID == "" {
			s.SessionID = p.BeginStep.SessionID
		}
		for _, e := range p.Stack {
			if e.SessionID == s.SessionID {
				s.workflow = e.Workflow
			}
		}

		all = append(all, s)
	}
	return all
}

// wanted returns the text that an output or input must have for the forms of a workflow: its lists have an
// item each, all conditions hold, and there is one round. It is "" if they say nothing of it.
func wanted(wf *job.Workflow, name string) string {
	for _, f := range wf.Forms {
		if f == nil {
			continue
		}
		c := f.When
		if f.Repeat != nil {
			c = &f.Repeat.Until
		}
		switch {
		case f.ForEach != nil && f.ForEach.Output == name:
			return `["first", {"second": 2}]`
		case c == nil || c.Output != name && c.Input != name:
		case c.Is != nil:
			return *c.Is
		case c.In != nil:
			return c.In[0]
		case c.IsNot != nil:
			return "not " + *c.IsNot
		}
	}

	return ""
}

func (w *walker) call(tool string, args map[string]any) (now progress) {
	w.t.Helper()
	must(w.t, json.Unmarshal(callTool(w.t, w.client, tool, args), &now))
	return now
}

var unfit = regexp.MustCompile(`[^a-zA-Z0-9._-]+`)

// value makes a value of a type up; files are in a folder.
func (w *walker) value(folder, name string, kind job.OutputType, schema job.ContentSchema, wanted string) any {
	text := cmp.Or(wanted, "A value of "+name+".\n")
	if schema.JSON != nil {
		s := new(jsonschema.Schema)
		must(w.t, json.Unmarshal(schema.JSON, s))
		text = string(testkit.Get(json.Marshal(instance(s))).Must(w.t))
	}
	if kind == job.Text || kind == "" {
		return text
	}
	paths := []string{folder + "/" + unfit.ReplaceAllString(name, "_") + ".md"}
	if kind == job.Files {
		paths = append(paths, paths[0]+".more.md")
	}
	for _, path := range paths {
		writeFiles(w.t, w.root, map[string]string{path: text})
	}
	if kind == job.Files || kind == job.FilePath && len(name)%2 == 0 { // of this type both are right
		return paths
	}
	return paths[0]
}

// instance makes a value up that satisfies a simple schema.
func instance(s *jsonschema.Schema) any {
	switch {
	case s == nil:
		return "text"
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.Const != nil:
		return *s.Const
	}

	switch s.Type {
	case "object":
		made := map[string]any{}
		for _, name := range s.Required {
			made[name] = instance(s.Properties[name])
		}
		return made
	case "array":
		made := []any{}
		for range max(1, orZero(s.MinItems)) {
			made = append(made, instance(s.Items))
		}
		return made
	case "number", "integer":
		return 1
	case "boolean":
		return true
	}

	return strings.Repeat("text", 1+orZero(s.MinLength)/4)
}

func orZero(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

// compare compares what is shown of a step with the job.
func (w *walker) compare(view *job.Job, s *shown, inputs map[string]any) {
	w.t.Helper()
	place := s.workflow + "/" + s.StepID
	template, _, _ := job.SplitItem(s.StepID)
	of := view.Step(template)
	testkit.Need(w.t, of != nil, "%s: the job has no such step", place)
	want := testkit.Get(job.Instructions(view, of)).Must(w.t)
	got, _, _ := strings.Cut(s.Instructions, "\n**CONCURRENT STEPS**") // how to hand them out follows
	testkit.True(w.t, strings.TrimSpace(got) == strings.TrimSpace(want), "%s: its instructions are %q, want %q", place,
		s.Instructions, want)

	var names, expected []string
	for _, o := range s.Outputs {
		names = append(names, fmt.Sprint(o.Name, o.Required))
	}
	for _, o := range of.Outputs {
		expected = append(expected, fmt.Sprint(o.Name, o.Required))
	}
	testkit.True(w.t, slices.Equal(names, expected), "%s: its outputs are %v, want %v", place, names, expected)

	for _, in := range of.Inputs {
		values, several := inputs[in.Name].([]string)
		if value, ok := inputs[in.Name].(string); ok && !several {
			values = []string{value}
		}
		for _, value := range values {
			text := testkit.Get(json.Marshal(strings.TrimSpace(value))).Must(w.t)
			testkit.Contains(w.t, string(s.all), string(text[1:len(text)-1]), "%s: its input %s", place, in.Name)
		}
	}
}

// TestLaidOutJobs checks every job that this program lays out, with the files it names.
func TestLaidOutJobs(t *testing.T) {
	jobs := t.TempDir()
	for _, dir := range []string{"library/jobs", "demo/jobs"} {
		must(t, os.CopyFS(jobs, os.DirFS(dir)))
	}

	check := func(name string) {
		t.Helper()
		j, faults := job.Load(filepath.Join(jobs, name))
		testkit.Need(t, j != nil, "%v", faults)
		for _, d := range append(job.CheckFiles(j), j.Warnings...) {
			t.Errorf("%s: %v", name, d)
		}
	}
	for _, p := range library.All() {
		if p.Say != "" {
			check(p.Name)
		}
	}
	check("almanac")
	check("newsletter")
}

// There is one example of a job: what init lays out is what the bundled job teaches.
func TestOneExample(t *testing.T) {
	taught := testkit.Get(fs.ReadFile(standard.FS(), "deepwork_jobs/templates/job.yml.example")).Must(t)
	laidOut := testkit.Get(os.ReadFile("library/jobs/" + library.Example + "/job.yml")).Must(t)
	testkit.Same(t, string(laidOut), string(taught),
		"catalog/standard/jobs/deepwork_jobs/templates/job.yml.example and the library's job.yml")
}

// A name is shown on one line.
func TestInitInAFolderWithALineBreakInItsName(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no such names there")
	}
	root := filepath.Join(t.TempDir(), "a\ncreated  b\x1b")
	writeFiles(t, root, map[string]string{".mcp.json": "[]"})
	out, err := exec.Command("deepwork", "init", "--path", root).CombinedOutput()
	testkit.Fails(t, err, "exit status 1")
	testkit.Equal(t, strings.Count(string(out), `/a\ncreated  b\u001b/`), 6, "%s", out)
	testkit.True(t, !strings.Contains(string(out), "\ncreated  b"), "%s", out)
}

// TestValidateWatch edits a job in the ways editors save and reads what the real command prints of each.
func TestValidateWatch(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be interrupted there")
	}
	root := t.TempDir()
	dir := filepath.Join(root, ".deepwork", "jobs", "one")
	file := filepath.Join(dir, "job.yml")
	writeFiles(t, root, map[string]string{
		".deepwork/jobs/one/job.yml": jobText("one", "a", "b"),
		".deepwork/jobs/one/a.md":    "Do it.\n",
	})

	watch := exec.CommandContext(t.Context(), "deepwork", "validate", "--watch", "--path", root)
	watch.Env = append(os.Environ(), config.JobsFoldersEnv+"=")
	out := testkit.Get(watch.StdoutPipe()).Must(t)
	stderr := testkit.Get(watch.StderrPipe()).Must(t)
	must(t, watch.Start())
	lines, notes := bufio.NewScanner(out), bufio.NewScanner(stderr)

	expect := func(s *bufio.Scanner, want string) {
		t.Helper()
		for s.Scan() {
			if strings.Contains(s.Text(), want) {
				return
			}
			t.Logf("passed over: %s", s.Text())
		}
		t.Fatalf("the output ended without %q", want)
	}
	expect(notes, "1 job checked: 0 errors, 0 warnings")
	expect(notes, "watching")

	// Truncate and write: a fault.
	must(t, os.WriteFile(file, []byte(strings.Replace(jobText("one", "a", "b"), "1.0.0", "one", 1)), 0o644))
	expect(lines, file+":2:")
	expect(notes, "1 error")

	// Rename: the fault is gone.
	must(t, os.WriteFile(file+".new", []byte(jobText("one", "b")), 0o644))
	must(t, os.Rename(file+".new", file))
	expect(lines, file+": ok")

	// A new job, and one that goes.
	writeFiles(t, root, map[string]string{
		".deepwork/jobs/three/job.yml": jobText("three", "a"),
		".deepwork/jobs/three/a.md":    "Do it.\n",
	})
	expect(lines, filepath.Join("three", "job.yml")+": ok")
	must(t, os.RemoveAll(filepath.Join(root, ".deepwork", "jobs", "three")))
	expect(lines, filepath.Join("three", "job.yml")+": removed")

	must(t, watch.Process.Signal(os.Interrupt))
	for lines.Scan() {
		t.Errorf("printed more: %s", lines.Text())
	}

	for notes.Scan() {
		t.Logf("stderr: %s", notes.Text())
	}
	err := watch.Wait()
	testkit.True(t, err == nil, "after an interrupt: %v, want exit 0", err)
}
