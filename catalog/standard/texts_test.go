package standard_test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/catalog/standard"
)

// The tools and their arguments that the texts may name. A tool that is renamed
// or loses an argument must be renamed in the texts too.
var tools = map[string][]string{
	"get_workflows":  {},
	"start_workflow": {"goal", "job_name", "workflow_name", "instance_id", "parent_session_id", "request_id"},
	"finished_step":  {"outputs", "notes", "quality_review_override_reason", "session_id", "step_id", "request_id"},
	"abort_workflow": {"explanation", "session_id", "request_id"},
	"get_step":       {"session_id", "step_id"},
	"go_to_step":     {"step_id", "session_id", "request_id"},
}

// What else of the program the texts may name: fields of replies, keys of a session's record, subcommands.
var (
	fields   = []string{"jobs", "errors", "stack", "begin_step", "job_dir", "job_name", "error", "status", "step_progress", "quality_attempts", "idle_timeout"}
	commands = []string{"serve", "init", "validate", "run", "jobs", "sessions", "schema", "version", "completion", "demo", "trust"}
)

var (
	fence    = regexp.MustCompile("(?ms)^ *```([^\n]*)\n(.*?)^ *```$")
	code     = regexp.MustCompile("`([^`]+)`")
	snake    = regexp.MustCompile(`^[a-z]+(_[a-z]+)+$`)
	command  = regexp.MustCompile(`\bdeepwork ([a-z]+)\b`)
	template = regexp.MustCompile("`(templates/[A-Za-z0-9_.]+)`")
	absolute = regexp.MustCompile("(?m)(^|[\\s`\"'(=])(/[A-Za-z]|~/|[A-Za-z]:\\\\)")
)

// blocks yields the fenced blocks of a Markdown text with this info string.
func blocks(text, info string) []string {
	var out []string
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		if m[1] == info {
			out = append(out, m[2])
		}
	}
	return out
}

// prose is what an agent reads of a job: common info and instructions, by name.
func prose(t *testing.T, j *job.Job) map[string]string {
	t.Helper()
	out := map[string]string{"common info": j.CommonInfo}
	for _, s := range j.Steps {
		out[s.InstructionsFile] = testkit.Get(job.Instructions(j, &s)).Must(t)
	}
	return out
}

// checkJobs parses every block that is marked as a job.
func checkJobs(t *testing.T, name, text string) int {
	t.Helper()
	found := blocks(text, "yaml job")
	for _, source := range found {
		checkJob(t, name, []byte(source))
	}
	return len(found)
}

// checkJob parses a job, which must have neither faults nor warnings.
func checkJob(t *testing.T, name string, source []byte) {
	t.Helper()
	j, ds := job.Parse(t.TempDir(), name, source)
	testkit.Need(t, j != nil, "a job in %s is not valid:\n%v", name, ds)
	testkit.Same(t, j.Warnings, nil, "warnings of a job in %s", name)
}

func templateFile(t *testing.T, name string) []byte {
	t.Helper()
	return testkit.Get(fs.ReadFile(standard.FS(), "deepwork_jobs/templates/"+name)).Must(t)
}

func TestCommonInfoTeachesAValidJob(t *testing.T) {
	j := load(t)["deepwork_jobs"]
	testkit.True(t, checkJobs(t, "common info", j.CommonInfo) != 0, "the common info shows no job")
	for name, text := range prose(t, j) {
		checkJobs(t, name, text)
	}
}

// The common info claims to name every key; whatever the schema allows and it
// does not mention would be refused by an agent's reading of it.
func TestCommonInfoNamesEveryKey(t *testing.T) {
	var schema any
	testkit.Must(t, json.Unmarshal(job.Schema(), &schema))
	info := load(t)["deepwork_jobs"].CommonInfo
	for _, name := range []string{"other_form.yml.example", "forms.yml.example"} {
		checkJob(t, name, templateFile(t, name))
		info += string(templateFile(t, name))
	}
	seen := 0
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if properties, ok := v["properties"].(map[string]any); ok {
				for key := range properties {
					seen++
					// The old name of hooks.after_agent is for old files alone.
					testkit.True(t, key == "stop_hooks" || regexp.MustCompile(`\b`+regexp.QuoteMeta(key)+`\b`).MatchString(info), "neither the common info nor an example names the key %s", key)
				}
			}
			for _, child := range v {
				walk(child)
			}
		case []any:
			for _, child := range v {
				walk(child)
			}
		}
	}
	walk(schema)
	testkit.True(t, seen >= 20, "the schema has only %d keys in all: the walk does not reach them", seen)
}

func TestTemplateJobIsValidAndRunsAsAFolder(t *testing.T) {
	dir := t.TempDir()
	checkJob(t, "the template", templateFile(t, "job.yml.example"))
	testkit.Write(t, filepath.Join(dir, job.FileName), string(templateFile(t, "job.yml.example")))
	j, _ := job.Load(dir)
	for _, s := range j.Steps {
		testkit.Write(t, filepath.Join(dir, s.InstructionsFile), string(templateFile(t, "step.md")))
	}
	testkit.Same(t, job.CheckFiles(j), nil, "the template's folder")
}

// Each instructions file ends with the call that finishes its step. Copied as it
// stands, that call must pass the checks of seed 000, 001.5, but for the files.
func TestInstructionsShowTheFinishingCall(t *testing.T) {
	for _, j := range load(t) {
		for _, s := range j.Steps {
			text := testkit.Get(job.Instructions(j, &s)).Must(t)
			shown := false
			for _, block := range blocks(text, "json") {
				checkCall(t, s.InstructionsFile, block)
				var call struct {
					Outputs map[string]any `json:"outputs"`
				}
				testkit.Must(t, json.Unmarshal([]byte(block), &call))
				if call.Outputs == nil {
					continue
				}
				shown = true
				for name, value := range call.Outputs {
					o := s.Output(name)
					testkit.Need(t, o != nil, "%s: the call has an output %s that the step does not declare", s.InstructionsFile, name)
					_, list := value.([]any)
					testkit.Equal(t, list, o.Type == job.Files, "%s: output %s is of type %s, the call gives %v", s.InstructionsFile, name, o.Type, value)
				}
				for _, o := range s.Outputs {
					_, ok := call.Outputs[o.Name]
					testkit.True(t, !o.Required || ok, "%s: the call leaves out the required output %s", s.InstructionsFile, o.Name)
				}
			}
			testkit.True(t, shown, "%s shows no call of finished_step", s.InstructionsFile)
			for _, o := range s.Outputs {
				testkit.True(t, strings.Contains(text, "`"+o.Name+"`") || strings.Contains(text, `"`+o.Name+`"`), "%s never names the output %s", s.InstructionsFile, o.Name)
			}
		}
	}
}

// checkCall checks that a JSON block is an object whose keys are arguments of one tool.
func checkCall(t *testing.T, name, block string) {
	t.Helper()
	var call map[string]json.RawMessage
	testkit.Must(t, json.Unmarshal([]byte(block), &call))
	fits := func(arguments []string) bool {
		for key := range call {
			if !slices.Contains(arguments, key) {
				return false
			}
		}
		return true
	}
	testkit.True(t, slices.ContainsFunc(slices.Collect(maps.Values(tools)), fits), "%s: no tool takes all these arguments:\n%s", name, block)
}

func TestTextsNameOnlyWhatExists(t *testing.T) {
	for _, j := range load(t) {
		known := slices.Concat(fields, vocabulary(t, j))
		for tool, arguments := range tools {
			known = append(append(known, tool), arguments...)
		}
		for name, text := range prose(t, j) {
			plain := fence.ReplaceAllString(text, "")
			for _, m := range code.FindAllStringSubmatch(plain, -1) {
				testkit.True(t, !snake.MatchString(m[1]) || slices.Contains(known, m[1]), "%s names %s, which is no tool, argument, key, step or output", name, m[1])
				for _, c := range command.FindAllStringSubmatch(m[1], -1) {
					testkit.True(t, slices.Contains(commands, c[1]), "%s names the command deepwork %s, which does not exist", name, c[1])
				}
			}
		}
	}
}

// vocabulary is the words of the format and of the job itself.
func vocabulary(t *testing.T, j *job.Job) []string {
	t.Helper()
	words := []string{
		j.Name, "release_notes", "draft_notes", // the last two are made up as examples; below are keys of job.yml, and values of them
		"instructions_file", "from_step", "run_each", "quality_criteria", "additional_review_guidance",
		"after_agent", "before_tool", "before_prompt", "prompt_file", "stop_hooks", "doc_spec", "post_workflow_instructions", "step_arguments", "workflow_name", "json_schema",
	}
	for _, w := range j.Workflows {
		words = append(words, w.Name)
	}
	for _, s := range j.Steps {
		words = append(words, s.ID)
		for _, o := range s.Outputs {
			words = append(words, o.Name)
		}
	}
	return words
}

func TestTemplatesAreReferredToAndExist(t *testing.T) {
	for dir, j := range load(t) {
		used := make(map[string]bool)
		for name, text := range prose(t, j) {
			for _, m := range template.FindAllStringSubmatch(text, -1) {
				used[m[1]] = true
				testkit.Works(t, testkit.Get(fs.Stat(standard.FS(), path.Join(dir, m[1]))).Err(), "%s refers to %s", name, m[1])
			}
		}
		for name := range texts(t, path.Join(dir, "templates")) {
			testkit.True(t, used[strings.TrimPrefix(name, dir+"/")], "no text refers to %s", name)
		}
	}
}

func TestTextsAreCleanAndPortable(t *testing.T) {
	for name, text := range texts(t, ".") {
		testkit.Equal(t, absolute.FindString(text), "", "%s has an absolute path", name)
		testkit.True(t, !strings.Contains(text, "\r") && !strings.Contains(text, "\t"), "%s has carriage returns or tabs", name)
		testkit.True(t, strings.HasSuffix(text, "\n") && !strings.HasSuffix(text, "\n\n"), "%s does not end in exactly one newline", name)
		for i, line := range strings.Split(text, "\n") {
			testkit.Equal(t, strings.TrimRight(line, " "), line, "%s:%d ends in blanks", name, i+1)
		}
	}
}
