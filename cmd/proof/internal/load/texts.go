package load

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// The jobs of a load all have one workflow: plan, then a concurrent group, then
// wrap. Whatever they say says by which save it was written, so that a reply
// that is made of two saves, or of half of one, is known.
const (
	jobCount     = 4
	workflowName = "main"
	stepPlan     = "plan"
	stepWrap     = "wrap"
)

func jobName(job int) string { return "load_" + strconv.Itoa(job) }

// jobIndex is the number of a job of ours, or -1.
func jobIndex(name string) int {
	for i := range jobCount {
		if jobName(i) == name {
			return i
		}
	}
	return -1
}

// entries are the workflow's steps, those of a group together.
func entries(group int) [][]string {
	var members []string
	for i := range group {
		members = append(members, "part_"+strconv.Itoa(i+1))
	}
	return [][]string{{stepPlan}, members, {stepWrap}}
}

// stepIDs are the workflow's steps in order.
func stepIDs(group int) []string {
	var all []string
	for _, e := range entries(group) {
		all = append(all, e...)
	}
	return all
}

// outputOf names the one output of a step, and tells whether it is a list.
func outputOf(step string) (name string, list bool) {
	switch step {
	case stepPlan:
		return "report", false
	case stepWrap:
		return "papers", true
	}
	return step, false
}

// The common info of a job is the last key of its job.yml, so that less than the
// whole of a save never is a valid job, and so that text can be appended to it.
const infoKey = "common_job_info_provided_to_all_steps_at_runtime: |\n"

// infoText is the common info of the save last, which saves after base have
// appended to.
func infoText(job string, base, last int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s as written by save %d.", job, base)
	for n := base + 1; n <= last; n++ {
		fmt.Fprintf(&b, "\nAppended by save %d.", n)
	}
	return b.String()
}

var infoPattern = regexp.MustCompile(`^\w+ as written by save (\d+)\.$`)

// parseInfo tells which save a common info is of; false: it is of none, or torn.
func parseInfo(job, info string) (base, last int, ok bool) {
	info = strings.TrimRight(info, "\n")
	first, rest, _ := strings.Cut(info, "\n")
	m := infoPattern.FindStringSubmatch(first)
	if m == nil {
		return 0, 0, false
	}
	base, _ = strconv.Atoi(m[1])
	last = base
	if rest != "" {
		last += strings.Count(rest, "\n") + 1
	}
	return base, last, info == infoText(job, base, last)
}

// outputText is the description of a step's output.
func outputText(step string, base int) string {
	return fmt.Sprintf("What came of %s, save %d", step, base)
}

// summaryText is the summary of a job.
func summaryText(job string, base int) string { return fmt.Sprintf("Load %s, save %d", job, base) }

// jobText is the job.yml of a save that writes all of it.
func jobText(job string, group, base int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nversion: \"1.0.0\"\nsummary: %s\nsteps:\n", job, summaryText(job, base))
	for _, step := range stepIDs(group) {
		output, list := outputOf(step)
		kind := "file"
		if list {
			kind = "files"
		}
		fmt.Fprintf(&b, "  - id: %s\n    name: %s\n    description: The step %s of a load\n    instructions_file: %s.md\n    reviews: []\n", step, step, step, step)
		fmt.Fprintf(&b, "    outputs:\n      %s: {type: %s, required: true, description: %q}\n", output, kind, outputText(step, base))
	}
	var steps []string
	for _, e := range entries(group) {
		text := strings.Join(e, ", ")
		if len(e) > 1 {
			text = "[" + text + "]"
		}
		steps = append(steps, text)
	}
	fmt.Fprintf(&b, "workflows:\n  - {name: %s, summary: The work of a load, steps: [%s]}\n", workflowName, strings.Join(steps, ", "))
	fmt.Fprintf(&b, "%s  %s\n", infoKey, infoText(job, base, base))
	return b.String()
}

// appendedText is what save number appends to a job.yml.
func appendedText(number int) string { return fmt.Sprintf("  Appended by save %d.\n", number) }

// instructionsText is a step's instructions file, as a save writes it.
func instructionsText(job, step string, number int) string {
	return fmt.Sprintf("# %s of %s, save %d\n\n%s\nThis is the end of save %d.\n", step, job, number,
		strings.Repeat("Read what there is, do what is asked, and write down what came of it.\n", 8), number)
}

var instructionsPattern = regexp.MustCompile(`^# \w+ of \w+, save (\d+)\n`)

// parseInstructions tells which save instructions are of; what the server adds
// to those of a group stands behind them.
func parseInstructions(job, step, text string) (number int, ok bool) {
	m := instructionsPattern.FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	number, _ = strconv.Atoi(m[1])
	return number, strings.HasPrefix(text, strings.TrimRight(instructionsText(job, step, number), "\n"))
}
