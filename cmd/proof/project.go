package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	folder "deepwork/session/state"
)

// The jobs all have the same workflows. Every text contains the number of its save, so that a reply
// made from two saves, or from half of one, is detected.
const jobCount = 4

func jobName(job int) string { return "load_" + strconv.Itoa(job) }

// stateOf returns the folder with the state of a project.
func stateOf(root string) *folder.Folder { return folder.Of(root) }

func (w *world) jobFile(job int) string {
	return filepath.Join(w.root, ".deepwork", "jobs", jobName(job), "job.yml")
}

// outputFiles is the number of files that steps can name as outputs.
const outputFiles = 64

// outputPath is one of them, relative to the project.
func outputPath(n int) string { return "load_outputs/" + strconv.Itoa(n) + ".md" }

// writeProject writes the config, the outputs that steps can name, and the jobs.
func (w *world) writeProject(config string) error {
	files := map[string]string{".deepwork/config.yml": config, "README": "A project.\n"}
	for n := range outputFiles {
		files[outputPath(n)] = fmt.Sprintf("Output %d.\n", n)
	}

	for job := range jobCount {
		for _, step := range stepNames {
			files[".deepwork/jobs/"+jobName(job)+"/"+step+".md"] = instructionsText(jobName(job), step)
		}
	}

	for name, text := range files {
		path := filepath.Join(w.root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	for job := range jobCount {
		if err := w.save(job, roughWays[0]); err != nil {
			return err
		}
	}

	return nil
}

// gitAll runs commands of git in the project.
func (w *world) gitAll(ctx context.Context, commands ...string) error {
	for _, args := range commands {
		if _, err := w.git(ctx, w.root, strings.Fields(args)...); err != nil {
			return err
		}
	}
	return nil
}

// git runs a command of git in a folder, and returns what it printed.
func (w *world) git(ctx context.Context, root string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git",
		append([]string{"-c", "user.name=Sim", "-c", "user.email=sim@example.com"}, args...)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// The common info of a job is the last key of its job.yml, so that a part of a save is never a
// valid job.
const infoKey = "common_job_info_provided_to_all_steps_at_runtime: "

func infoText(save int) string { return fmt.Sprintf("Written by save %d.", save) }

// outputText is the description of a step's report.
func outputText(step string, save int) string {
	return fmt.Sprintf("What came of %s, save %d", step, save)
}

var savePattern = regexp.MustCompile(`save (\d+)\.`)

// saveIn returns which save wrote a text, or 0.
func saveIn(text string) (save int) {
	if m := savePattern.FindStringSubmatch(text); m != nil {
		save, _ = strconv.Atoi(m[1])
	}
	return save
}

// jobText is the job.yml that a save has written.
func jobText(job string, save int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nversion: \"1.0.0\"\nsummary: Job %s, save %d\nworkflows:\n", job, job, save)
	for _, name := range slices.Sorted(maps.Keys(workflows)) {
		var entries []string
		for i, e := range workflows[name] {
			text := "[" + strings.Join(e, ", ") + "]"
			switch f, ok := forms[name][i]; {
			case e[0] == calledStep:
				text = "{" + strings.Replace(calledStep, ":", ": ", 1) + "}"
			case ok && i > f.first:
				continue
			case ok:
				text = formText(f, strings.Join(slices.Concat(workflows[name][i:f.last+1]...), ", "))
			}
			entries = append(entries, text)
		}
		fmt.Fprintf(&b, "  - {name: %s, summary: W, steps: [%s]}\n", name, strings.Join(entries, ", "))
	}

	b.WriteString("steps:\n")
	for _, step := range stepNames {
		reviews := "[]"
		switch step {
		case reviewedStep, judgedStep:
			reviews = `[{run_each: report, quality_criteria: {good: "Is it good?"}}]`
		case personStep:
			reviews = `[{run_each: report, by: human, quality_criteria: {good: "Is it good?"}}]`
		}
		fmt.Fprintf(&b, "  - {id: %s, name: A, description: A, instructions_file: %s.md, reviews: %s, outputs: "+
			"{report: {type: file, required: true, description: %q}, papers: {type: files, required: false, "+
			"description: More}, said: {type: string, required: false, description: Said}}}\n",
			step, step, reviews, outputText(step, save))
	}

	return b.String() + infoKey + infoText(save) + "\n"
}

// instructionsText is a step's instructions file, which nobody edits.
func instructionsText(job, step string) string {
	return fmt.Sprintf("# %s of %s\n\n%sThis is the end.\n", step, job,
		strings.Repeat("Read all of it, do what is asked, and write down what came of it.\n", 8))
}

// isInstructions reports whether a text is the whole of a step's instructions. What the
// server adds to those of a group follows them.
func isInstructions(job, step, text string) bool {
	return strings.HasPrefix(text, strings.TrimRight(instructionsText(job, step), "\n"))
}
