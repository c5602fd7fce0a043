package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"deepwork/session/attempt"
)

// demoPages are the steps of the almanac that run at the same time.
var demoPages = []string{"weather", "garden", "kitchen"}

// leadWriters has `deepwork run` lead agents through the almanac.
func (d *demo) leadWriters(ctx context.Context) error {
	project, err := d.layOut("almanac", "WRITER")
	if err != nil {
		return err
	}
	if err := copyTree(demoFiles, "demo/almanac", filepath.Join(project, ".deepwork", "jobs", "almanac")); err != nil {
		return err
	}
	if err := d.command(ctx, project, shownOfRun, "run", "almanac/month", "--goal", "November", "--executor", "WRITER"); err != nil {
		return err
	}
	data, err := d.deepwork(ctx, project, "run", "status", "latest", "--json").Output()
	if err != nil {
		return fmt.Errorf("deepwork run status: %w", err)
	}
	var r attempt.RunReply
	if err := json.Unmarshal(data, &r); err != nil {
		return err
	}
	return d.checkRun(project, &r)
}

// shownOfRun are the lines of a run that are printed: those of steps, and how it ended.
var shownOfRun = regexp.MustCompile(`WRITER|^state:`)

// checkRun checks what the run is said to do.
func (d *demo) checkRun(project string, r *attempt.RunReply) error {
	almanac, err := os.ReadFile(filepath.Join(project, "almanac.md"))
	if err != nil {
		return err
	}
	if len(r.Steps) != len(demoPages)+1 {
		return fmt.Errorf("this does not hold: each step has one agent: %d have worked", len(r.Steps))
	}
	began, ended, pages := "", "~", 0 // the last begin and the first end of a page
	corrected := ""                   // what its agent says
	last := r.Steps[len(demoPages)]
	for _, x := range r.Steps[:len(demoPages)] {
		began, ended = max(began, sortable(x.StartedAt)), min(ended, sortable(x.EndedAt))
		if x.StepID == "garden" {
			corrected = optional(x.FinalMessage)
		}
		if strings.Contains(string(almanac), demoText(x.StepID)) && sortable(x.EndedAt) <= sortable(last.StartedAt) {
			pages++
		}
	}
	for _, c := range []struct {
		what  string
		holds bool
	}{
		{"three agents write at the same time", began < ended},
		{"the agent of the garden corrects its page", strings.Contains(corrected, "Add a tip")},
		{"the pages are bound when all are done", last.StepID == "bind" && pages == len(demoPages)},
		{"the run is complete", r.State == string(attempt.RunComplete)},
	} {
		if !c.holds {
			return fmt.Errorf("this does not hold: %s: %+v", c.what, r)
		}
		d.claims++
	}
	d.out.Text("", fmt.Sprintf("   (garden: %q)\n   (almanac.md has all %d pages)", corrected, strings.Count(string(almanac), "\n")))
	return nil
}

// sortable returns a time of a run so that the order of texts is that of the times.
func sortable(stamp *string) string {
	at, err := time.Parse(time.RFC3339Nano, optional(stamp))
	if err != nil {
		return ""
	}
	return at.UTC().Format("2006-01-02T15:04:05.000000000")
}
