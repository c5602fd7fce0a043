package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The jobs all have the same workflows. Whatever they say says by which save it was
// written, so that a reply that is made of two saves, or of half of one, is known.
const jobCount = 4

func jobName(job int) string { return "load_" + strconv.Itoa(job) }

// jobNames are the names of the jobs.
var jobNames = func() (all []string) {
	for i := range jobCount {
		all = append(all, jobName(i))
	}
	return all
}()

func jobDir(root, job string) string { return filepath.Join(root, ".deepwork", "jobs", job) }

// outputFiles is how many files there are that steps can name as outputs.
const outputFiles = 64

// outputPath is one of them, relative to the project.
func outputPath(n int) string { return "load_outputs/" + strconv.Itoa(n) + ".md" }

// layOut writes the config and the outputs that steps can name.
func layOut(root, config string) error {
	files := map[string]string{".deepwork/config.yml": config}
	for n := range outputFiles {
		files[outputPath(n)] = fmt.Sprintf("Output %d.\n", n)
	}
	return writeFiles(root, files)
}

// writeFiles writes files, by path below a folder, and makes their folders.
func writeFiles(root string, files map[string]string) error {
	for name, text := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// The common info of a job is the last key of its job.yml, so that less than the
// whole of a save never is a valid job, and so that text can be appended to it: it names
// the save that wrote the file, and each that has appended to it since.
const infoKey = "common_job_info_provided_to_all_steps_at_runtime: |\n"

func infoText(base, last int) string {
	var b strings.Builder
	for n := base; n <= last; n++ {
		fmt.Fprintf(&b, "Written by save %d.\n", n)
	}
	return b.String()
}

var firstSave = regexp.MustCompile(`^\D+(\d+)\.\n`)

// parseInfo returns which save a common info is of, or false: it is of none, or torn.
func parseInfo(info string) (base, last int, ok bool) {
	if m := firstSave.FindStringSubmatch(info); m != nil {
		base, _ = strconv.Atoi(m[1])
	}
	last = base + strings.Count(info, "\n") - 1
	return base, last, base > 0 && info == infoText(base, last)
}

// outputText is the description of a step's report, and summaryText the summary of a job.
func outputText(step string, base int) string {
	return fmt.Sprintf("What came of %s, save %d", step, base)
}

func summaryText(job string, base int) string { return fmt.Sprintf("Job %s, save %d", job, base) }

// stepsOf are the steps of a job whose group is so wide.
func stepsOf(group int) []string { return stepNames[:max(7, group+2)] }

// jobText is the job.yml that the save base has written, and those until last have
// appended to.
func jobText(job string, group, base, last int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nversion: \"1.0.0\"\nsummary: %s\nworkflows:\n", job, summaryText(job, base))
	for _, name := range []string{wide(group), "chain", "groups", "fork", "short"} {
		var entries []string
		for _, e := range workflows[name] {
			entries = append(entries, "["+strings.Join(e, ", ")+"]")
		}
		fmt.Fprintf(&b, "  - {name: %s, summary: W, steps: [%s]}\n", name, strings.Join(entries, ", "))
	}
	b.WriteString("steps:\n")
	for _, step := range stepsOf(group) {
		fmt.Fprintf(&b, "  - {id: %s, name: A, description: A, instructions_file: %s.md, reviews: [], outputs: {report: {type: file, required: true, description: %q}, papers: {type: files, required: false, description: More}}}\n",
			step, step, outputText(step, base))
	}
	b.WriteString(infoKey)
	for n := base; n <= last; n++ {
		b.WriteString("  " + infoText(n, n))
	}
	return b.String()
}

// instructionsText is a step's instructions file, as a save writes it.
func instructionsText(job, step string, save int) string {
	return fmt.Sprintf("# %s of %s, save %d.\n\n%s\nThis is the end of save %d.\n", step, job, save,
		strings.Repeat("Read what there is, do what is asked, and write down what came of it.\n", 8), save)
}

var instructionsPattern = regexp.MustCompile(`^# \w+ of \w+, save (\d+)\.\n`)

// parseInstructions returns which save instructions are of, or false: they are of none,
// or torn. What the server adds to those of a group follows them.
func parseInstructions(job, step, text string) (save int, ok bool) {
	m := instructionsPattern.FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	save, _ = strconv.Atoi(m[1])
	return save, strings.HasPrefix(text, strings.TrimRight(instructionsText(job, step, save), "\n"))
}

// fileNames are the files of each job: job.yml, then the instructions of each step.
func fileNames(group int) []string {
	all := []string{"job.yml"}
	for _, step := range stepsOf(group) {
		all = append(all, step+".md")
	}
	return all
}

func jobIndex(name string) int { return slices.Index(jobNames, name) }
