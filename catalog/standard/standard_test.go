package standard_test

import (
	"fmt"
	"io/fs"
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

func TestFSHoldsOnlyJobs(t *testing.T) {
	testkit.Must(t, fstest.TestFS(standard.FS(), "deepwork_jobs/job.yml"))
	for _, e := range testkit.Get(fs.ReadDir(standard.FS(), ".")).Must(t) {
		testkit.True(t, e.IsDir(), "%s is beside the jobs and is not a job", e.Name())
	}
}

func TestBundledJobsLoadWithoutFault(t *testing.T) {
	jobs := load(t)
	for dir, j := range jobs {
		testkit.Equal(t, j.Name, dir, "the job is not named as its folder: a job that shadows it by folder would not shadow it by name")
	}
	j := jobs["deepwork_jobs"]
	testkit.Need(t, j != nil, "there is no job deepwork_jobs")
	var workflows []string
	for _, w := range j.Workflows {
		workflows = append(workflows, fmt.Sprint(w.Name, w.Entries))
	}
	testkit.Same(t, workflows, []string{"new_job[[define] [implement] [test] [iterate]]", "repair[[diagnose] [fix]]", "learn[[reflect] [apply]]"})
}

func TestEveryStepCanBeFinishedAndIsReviewed(t *testing.T) {
	for _, j := range load(t) {
		for _, s := range j.Steps {
			testkit.True(t, slices.ContainsFunc(s.Outputs, func(o job.Output) bool { return o.Required }), "%s/%s requires no output", j.Name, s.ID)
			testkit.True(t, len(s.Reviews) != 0, "%s/%s has no review", j.Name, s.ID)
			testkit.True(t, len(s.Checks) == 0, "%s/%s has checks, which would need an approval in each project", j.Name, s.ID)
			for _, r := range s.Reviews {
				for _, c := range r.Criteria {
					testkit.True(t, strings.HasSuffix(c.Question, "?"), "%s/%s: criterion %s is no question: %q", j.Name, s.ID, c.Name, c.Question)
				}
			}
			for _, in := range s.Inputs {
				testkit.True(t, in.FromStep == "" || j.Step(in.FromStep).Output(in.File) != nil, "%s/%s reads %q of %s, which has no such output", j.Name, s.ID, in.File, in.FromStep)
			}
		}
	}
}

func TestInstructionsFilesAreNamedByJobYML(t *testing.T) {
	for dir, j := range load(t) {
		named := make(map[string]bool)
		for _, s := range j.Steps {
			testkit.True(t, !named[s.InstructionsFile], "%s is the instructions file of two steps", s.InstructionsFile)
			named[s.InstructionsFile] = true
		}
		for _, f := range testkit.Get(fs.Glob(standard.FS(), path.Join(dir, "steps", "*"))).Must(t) {
			testkit.True(t, named[strings.TrimPrefix(f, dir+"/")], "%s belongs to no step", f)
		}
	}
}

// An agent reads common info and instructions with every step; what is too long
// is read with less care, and what is too short says nothing.
func TestTextsAreOfSensibleSize(t *testing.T) {
	const maxCommon, maxInstructions, maxTemplate = 10_000, 8_000, 8_000
	for dir, j := range load(t) {
		n := len(j.CommonInfo)
		testkit.True(t, n <= maxCommon, "%s: the common info has %d bytes, more than %d", j.Name, n, maxCommon)
		for _, s := range j.Steps {
			text := testkit.Get(job.Instructions(j, &s)).Must(t)
			lines := strings.Count(text, "\n")
			testkit.True(t, lines >= 40 && lines <= 150 && len(text) <= maxInstructions, "%s/%s: the instructions have %d lines and %d bytes", j.Name, s.ID, lines, len(text))
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

// The common info lists what the server refuses. Each claim is tried on the very example above it.
func TestServerRefusesWhatTheCommonInfoSays(t *testing.T) {
	found := blocks(load(t)["deepwork_jobs"].CommonInfo, "yaml job")
	testkit.Need(t, len(found) != 0, "the common info shows no job")
	example := found[0]
	const dependsOnFirst = "    dependencies: [sort_tickets]\n"
	for _, c := range []struct{ claim, old, new, says string }{
		{"an unknown key", "summary: \"Turn", "sumary: x\nsummary: \"Turn", "sumary"},
		{"a key twice", "name: customer_digest", "name: customer_digest\nname: other", "name"},
		{"a second document", "name: customer_digest", "---\nname: other\n---\nname: customer_digest", "document"},
		{"no name", "name: customer_digest", "# nothing", "name"},
		{"no version", "version: \"1.0.0\"", "# nothing", "version"},
		{"no instructions_file", "    instructions_file: steps/sort_tickets.md", "    #", "instructions_file"},
		{"no reviews", "    reviews: []\n", "", "reviews"},
		{"no type of an output", "        type: files\n", "", "type"},
		{"no summary of a workflow", "    summary: \"From", "    # \"From", "summary"},
		{"a version of two numbers", "\"1.0.0\"", "1.0", "version"},
		{"from_step without a dependency", dependsOnFirst, "", "sort_tickets"},
		{"an unknown dependency", dependsOnFirst, "    dependencies: [sort_tickets, sort_mail]\n", "sort_mail"},
		{"a cycle", "    instructions_file: steps/sort_tickets.md", "    dependencies: [write_digest]\n    instructions_file: steps/sort_tickets.md", "write_digest"},
		{"a step before its dependency", "      - sort_tickets\n      - [find_trends, pick_quotes]", "      - [find_trends, pick_quotes]\n      - sort_tickets", "sort_tickets"},
		{"a step beside its dependency", "      - sort_tickets\n      - [find_trends,", "      - [sort_tickets, find_trends,", "sort_tickets"},
		{"a step twice in a workflow", "[find_trends, pick_quotes]", "[find_trends, pick_quotes, find_trends]", "find_trends"},
		{"run_each of no output", "run_each: quotes", "run_each: quote", "quote"},
		{"instructions outside the folder", "steps/sort_tickets.md", "../sort_tickets.md", "../sort_tickets.md"},
	} {
		t.Run(c.claim, func(t *testing.T) {
			testkit.Need(t, strings.Contains(example, c.old), "the example does not hold %q any more", c.old)
			j, ds := job.Parse(t.TempDir(), job.FileName, []byte(strings.Replace(example, c.old, c.new, 1)))
			testkit.Need(t, j == nil, "it is accepted")
			testkit.Contains(t, ds.Error(), c.says, "the fault")
		})
	}
}

// repository is the root of the module, as seen from this package's tests.
const repository = "../.."

var (
	link    = regexp.MustCompile(`\]\(([^)]+)\)`)
	slug    = regexp.MustCompile(`[^a-z0-9_-]`) // what an anchor leaves out
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

func readme(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for _, p := range testkit.Pages(t, repository) {
		text.WriteString(p.Text)
	}
	return text.String()
}

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
			testkit.True(t, anchor == "" || hasHeading(t, target, anchor), "%s links to the heading %s, which is not there", p.Path, m[1])
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
		name, is := strings.CutPrefix(p.Path, testkit.Docs)
		if !is || p.Text == index {
			continue
		}
		testkit.Contains(t, index, "]("+name, "the index of the documentation does not link to %s", name)
		words := len(strings.Fields(p.Text))
		testkit.True(t, words <= 800 || strings.HasPrefix(name, "reference/") || !strings.Contains(name, "/"), "%s has %d words; expected at most 800", name, words)
		testkit.True(t, regexp.MustCompile("^# .*\n.*\n[A-Z].*\n").MatchString(p.Text), "%s does not begin with a title and a sentence", name)
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

// What the bundled jobs may say of tools and commands is what the documentation has, which is made from their schemas and
// their help.
func TestDocumentationHasEveryToolAndCommand(t *testing.T) {
	text := readme(t)
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
