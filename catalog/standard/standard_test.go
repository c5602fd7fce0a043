package standard_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/catalog/standard"
)

// load lays the bundled jobs out in a fresh folder, as package catalog does, and loads each.
func load(t *testing.T) map[string]*job.Job {
	t.Helper()
	dir := t.TempDir()
	testkit.Must(t, os.CopyFS(dir, standard.FS()))
	jobs := make(map[string]*job.Job)
	for _, e := range testkit.Get(os.ReadDir(dir)).Must(t) {
		j, ds := job.Load(filepath.Join(dir, e.Name()))
		testkit.Need(t, j != nil, "the bundled job %s does not load:\n%v", e.Name(), ds)
		testkit.Same(t, j.Warnings, nil, "warnings of the bundled job %s", e.Name())
		testkit.Same(t, job.CheckFiles(j), nil, "the files of the bundled job %s", e.Name())
		jobs[e.Name()] = j
	}

	return jobs
}

// A job is each folder, and nothing else is there.
func TestBundledJobsLoadWithoutFault(t *testing.T) {
	testkit.Must(t, fstest.TestFS(standard.FS(), "deepwork_jobs/job.yml"))
	jobs := load(t)
	for dir, j := range jobs {
		testkit.Equal(t, j.Name, dir,
			"the job is not named as its folder: a job that shadows it by folder would not shadow it by name")
	}
	j := jobs["deepwork_jobs"]
	testkit.Need(t, j != nil, "there is no job deepwork_jobs")

	var workflows []string
	for _, w := range j.Workflows {
		workflows = append(workflows, fmt.Sprint(w.Name, w.Entries))
	}
	testkit.Same(t, workflows, []string{"new_job[[define] [implement] [test] [iterate]]", "repair[[diagnose] [fix]]",
		"learn[[reflect] [apply]]"})
}

// Each step also has an instructions file of its own, and there is no other one.
func TestEveryStepCanBeFinishedAndIsReviewed(t *testing.T) {
	for dir, j := range load(t) {
		named := make(map[string]bool)
		for _, s := range j.Steps {
			testkit.True(t, !named[s.InstructionsFile], "%s is the instructions file of two steps", s.InstructionsFile)
			named[s.InstructionsFile] = true
			testkit.True(t, slices.ContainsFunc(s.Outputs, func(o job.Output) bool { return o.Required }),
				"%s/%s requires no output", j.Name, s.ID)
			testkit.True(t, len(s.Reviews) != 0, "%s/%s has no review", j.Name, s.ID)
			testkit.True(t, len(s.Checks) == 0, "%s/%s has checks, which would need an approval in each project",
				j.Name, s.ID)

			for _, r := range s.Reviews {
				for _, c := range r.Criteria {
					testkit.True(t, strings.HasSuffix(c.Question, "?"), "%s/%s: criterion %s is no question: %q",
						j.Name, s.ID, c.Name, c.Question)
				}
			}
			for _, in := range s.Inputs {
				testkit.True(t, in.FromStep == "" || j.Step(in.FromStep).Output(in.File) != nil,
					"%s/%s reads %q of %s, which has no such output", j.Name, s.ID, in.File, in.FromStep)
			}
		}
		for _, f := range testkit.Get(fs.Glob(standard.FS(), path.Join(dir, "steps", "*"))).Must(t) {
			testkit.True(t, named[strings.TrimPrefix(f, dir+"/")], "%s belongs to no step", f)
		}
	}
}

// An agent reads common info and instructions with every step; what is too long is read with less care, and
// what is too short says nothing.
func TestTextsAreOfSensibleSize(t *testing.T) {
	const maxCommon, maxInstructions, maxTemplate = 10_000, 8_000, 8_000
	for dir, j := range load(t) {
		n := len(j.CommonInfo)
		testkit.True(t, n <= maxCommon, "%s: the common info has %d bytes, more than %d", j.Name, n, maxCommon)
		for _, s := range j.Steps {
			text := testkit.Get(job.Instructions(j, &s)).Must(t)
			lines := strings.Count(text, "\n")
			testkit.True(t, lines >= 40, "%s/%s: the instructions have %d lines and %d bytes", j.Name, s.ID, lines,
				len(text))
			testkit.True(t, lines <= 150, "%s/%s: the instructions have %d lines and %d bytes", j.Name, s.ID, lines,
				len(text))
			testkit.True(t, len(text) <= maxInstructions, "%s/%s: the instructions have %d lines and %d bytes", j.Name,
				s.ID, lines, len(text))
		}
		for name, text := range texts(t, path.Join(dir, "templates")) {
			testkit.True(t, len(text) <= maxTemplate, "%s has %d bytes, more than %d", name, len(text), maxTemplate)
		}
	}
}

// texts reads every file below a folder of the bundled jobs, by its path.
func texts(t *testing.T, root string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	err := fs.WalkDir(standard.FS(), root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(standard.FS(), p)
		out[p] = string(data)
		return err
	})
	testkit.Must(t, err)
	testkit.Need(t, len(out) != 0, "there are no files below %s", root)
	return out
}

// repository is the root of the module, as seen from this package's tests.
const repository = "../.."

var (
	link    = regexp.MustCompile(`\]\(([^)]+)\)`)
	slug    = regexp.MustCompile(`[^a-z0-9_-]`) // what an anchor leaves out
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

// Every link of a page leads to a file, and to a heading of it if it names one.
func TestReadmeLinksLeadSomewhere(t *testing.T) {
	for _, p := range testkit.Pages(t, repository) {
		for _, m := range link.FindAllStringSubmatch(p.Text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := filepath.Join(repository, filepath.FromSlash(p.Path))
			if file != "" {
				target = filepath.Join(filepath.Dir(target), filepath.FromSlash(file))
			}
			testkit.Works(t, testkit.Get(os.Stat(target)).Err(), "%s links to %s", p.Path, m[1])
			testkit.True(t, anchor == "" || hasHeading(t, target, anchor),
				"%s links to the heading %s, which is not there", p.Path, m[1])
		}
	}
}

func hasHeading(t *testing.T, path, anchor string) bool {
	t.Helper()
	data := testkit.Get(os.ReadFile(path)).Must(t)
	return slices.ContainsFunc(heading.FindAllStringSubmatch(string(data), -1), func(m []string) bool {
		return slug.ReplaceAllString(strings.ReplaceAll(strings.ToLower(m[1]), " ", "-"), "") == anchor
	})
}

// README.md is at most 400 lines and links to the documentation, whose index links to each of its pages. A tutorial or
// how-to has at most 800 words, and each page begins with a sentence.
func TestEveryPageIsShortAndLinked(t *testing.T) {
	pages := testkit.Pages(t, repository)
	lines := strings.Count(pages[0].Text, "\n")
	testkit.True(t, lines <= 400, "README.md has %d lines; expected at most 400", lines)
	testkit.Contains(t, pages[0].Text, "]("+testkit.Docs, "README.md does not link to the documentation")

	index := string(testkit.Get(os.ReadFile(filepath.Join(repository, testkit.Docs, "README.md"))).Must(t))
	for _, p := range pages {
		name, ok := strings.CutPrefix(p.Path, testkit.Docs)
		if !ok || p.Text == index {
			continue
		}
		testkit.Contains(t, index, "]("+name, "the index of the documentation does not link to %s", name)
		words := len(strings.Fields(p.Text))
		testkit.True(t, words <= 800 || strings.HasPrefix(name, "reference/") || !strings.Contains(name, "/"),
			"%s has %d words; expected at most 800", name, words)
		testkit.True(t, regexp.MustCompile("^# .*\n.*\n[A-Z].*\n").MatchString(p.Text),
			"%s does not begin with a title and a sentence", name)
	}
}

// CONTRIBUTING.md says why each module is needed that go.mod requires directly, and names no other.
func TestContributingGivesTheReasonOfEveryDependency(t *testing.T) {
	data := testkit.Get(os.ReadFile(filepath.Join(repository, "go.mod"))).Must(t)
	text := string(testkit.Get(os.ReadFile(filepath.Join(repository, ".github", "CONTRIBUTING.md"))).Must(t))
	_, section, found := strings.Cut(text, "\n## Dependencies\n")
	section, _, _ = strings.Cut(section, "\n## ")
	testkit.Need(t, found, "CONTRIBUTING.md has no section of dependencies")

	names := func(pattern, text string) map[string]bool {
		all := map[string]bool{}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			all[m[1]] = true
		}
		return all
	}
	required := names(`(?m)^(?:\t|require )([^\s/]+\.[^\s]+) v[^\s]+$`, string(data))
	testkit.Need(t, len(required) >= 10, "go.mod requires %d modules; were they found?", len(required))

	required["honnef.co/go/tools"] = true // a tool, which go.mod marks as indirect
	testkit.Same(t, names("`([a-z.]+\\.[a-z]+/[^`]+)`", section), required, "what CONTRIBUTING.md gives reasons for")
}

// What the bundled jobs may say of tools and commands is what the documentation has, which is made from their
// schemas and their help.
func TestDocumentationHasEveryToolAndCommand(t *testing.T) {
	text := ""
	for _, p := range testkit.Pages(t, repository) {
		text += p.Text
	}
	for tool, arguments := range tools {
		_, section, found := strings.Cut(text, "\n### "+tool+"\n")
		testkit.Need(t, found, "no page describes %s", tool)
		section, _, _ = strings.Cut(section, "\n### ")
		section, _, _ = strings.Cut(section, "\n| field of the reply |")
		for _, argument := range arguments {
			testkit.Contains(t, section, "\n| `"+argument+"` |", "%s has no argument %s, says its page", tool, argument)
		}
	}
	for _, c := range commands {
		testkit.Contains(t, text, "\n### deepwork "+c, "no page describes the command deepwork %s", c)
	}
}

// The tools and their arguments that the texts may name. A tool that is renamed or loses an argument must be
// renamed in the texts too.
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
	fields = []string{"jobs", "errors", "stack", "begin_step", "job_dir", "job_name", "error", "status",
		"step_progress", "quality_attempts", "idle_timeout"}
	examples = []string{"release_notes", "draft_notes"} // which the texts make up
	keys     = []string{"instructions_file", "from_step", "run_each", "quality_criteria", "additional_review_guidance",
		"after_agent", "before_tool", "before_prompt", "prompt_file",
		"stop_hooks", "doc_spec", "post_workflow_instructions", "step_arguments", "workflow_name", "json_schema"}
	commands = []string{"serve", "init", "validate", "run", "jobs", "sessions", "schema", "version", "completion",
		"demo", "trust"}
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

// The common info claims to name every key; whatever the schema allows and it does not mention would be
// refused by an agent's reading of it.
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
					testkit.True(t, key == "stop_hooks" ||
						regexp.MustCompile(`\b`+regexp.QuoteMeta(key)+`\b`).MatchString(info),
						"neither the common info nor an example names the key %s", key)
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
				var call map[string]any
				testkit.Must(t, json.Unmarshal([]byte(block), &call))
				fits := slices.ContainsFunc(slices.Collect(maps.Values(tools)), func(arguments []string) bool {
					return !slices.ContainsFunc(slices.Collect(maps.Keys(call)), func(key string) bool {
						return !slices.Contains(arguments, key)
					})
				})
				testkit.True(t, fits, "%s: no tool takes all these arguments:\n%s", s.InstructionsFile, block)

				outputs, ok := call["outputs"].(map[string]any)
				if !ok {
					continue
				}

				shown = true
				for name, value := range outputs {
					o := s.Output(name)
					testkit.Need(t, o != nil, "%s: the call has an output %s that the step does not declare",
						s.InstructionsFile, name)
					_, list := value.([]any)
					testkit.Equal(t, list, o.Type == job.Files, "%s: output %s is of type %s, the call gives %v",
						s.InstructionsFile, name, o.Type, value)
				}
				for _, o := range s.Outputs {
					_, ok := outputs[o.Name]
					testkit.True(t, !o.Required || ok, "%s: the call leaves out the required output %s",
						s.InstructionsFile, o.Name)
				}
			}
			testkit.True(t, shown, "%s shows no call of finished_step", s.InstructionsFile)
			for _, o := range s.Outputs {
				testkit.True(t, strings.Contains(text, "`"+o.Name+"`") || strings.Contains(text, `"`+o.Name+`"`),
					"%s never names the output %s", s.InstructionsFile, o.Name)
			}
		}
	}
}

// Of templates they name all.
func TestTextsNameOnlyWhatExists(t *testing.T) {
	for dir, j := range load(t) {
		used := make(map[string]bool)
		known := append(slices.Concat(fields, examples, keys), j.Name)
		for _, w := range j.Workflows {
			known = append(known, w.Name)
		}
		for _, s := range j.Steps {
			known = append(known, s.ID)
			for _, o := range s.Outputs {
				known = append(known, o.Name)
			}
		}
		for tool, arguments := range tools {
			known = append(append(known, tool), arguments...)
		}
		for name, text := range prose(t, j) {
			for _, m := range template.FindAllStringSubmatch(text, -1) {
				used[m[1]] = true
				testkit.Works(t, testkit.Get(fs.Stat(standard.FS(), path.Join(dir, m[1]))).Err(), "%s refers to %s",
					name, m[1])
			}
			plain := fence.ReplaceAllString(text, "")
			for _, m := range code.FindAllStringSubmatch(plain, -1) {
				testkit.True(t, !snake.MatchString(m[1]) || slices.Contains(known, m[1]),
					"%s names %s, which is no tool, argument, key, step or output", name, m[1])
				for _, c := range command.FindAllStringSubmatch(m[1], -1) {
					testkit.True(t, slices.Contains(commands, c[1]),
						"%s names the command deepwork %s, which does not exist", name, c[1])
				}
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
		testkit.True(t, !strings.Contains(text, "\r") && !strings.Contains(text, "\t"),
			"%s has carriage returns or tabs", name)
		testkit.True(t, strings.HasSuffix(text, "\n") && !strings.HasSuffix(text, "\n\n"),
			"%s does not end in exactly one newline", name)
		for i, line := range strings.Split(text, "\n") {
			testkit.Equal(t, strings.TrimRight(line, " "), line, "%s:%d ends in blanks", name, i+1)
		}
	}
}
