package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
)

// TestShowIsWhatAgentsRead walks an agent through every job that init and the
// demo lay out, and compares each begin_step with what `jobs show` prints of it.
func TestShowIsWhatAgentsRead(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"library/jobs", "demo/jobs"} {
		must(t, os.CopyFS(root+"/.deepwork/jobs", os.DirFS(dir)))
	}
	writeFiles(t, root, map[string]string{"out": "made\n"})
	client, _ := startClient(t, root)
	steps := 0
	for _, name := range []struct{ job, workflow string }{{"release_notes", "write"}, {"almanac", "month"}} {
		reply := callTool(t, client, "start_workflow", workflow.StartArgs{Goal: "Compare", JobName: name.job, WorkflowName: name.workflow})
		for string(lookup(reply, "status")) != `"workflow_complete"` {
			var described struct {
				BeginStep       *machine.StepInfo  `json:"begin_step"`
				ConcurrentSteps []machine.StepInfo `json:"concurrent_steps"`
			}
			must(t, json.Unmarshal(reply, &described))
			if described.BeginStep == nil {
				t.Fatalf("no begin_step in %s", reply)
			}
			for _, read := range append(described.ConcurrentSteps, *described.BeginStep) {
				read.JobDir, read.CommonJobInfo = described.BeginStep.JobDir, described.BeginStep.CommonJobInfo // once per reply
				compareShown(t, root, name.job, read)
				steps++
			}
			reply = callTool(t, client, "finished_step", workflow.FinishArgs{
				Outputs:        outputsOf(t, described.BeginStep),
				OverrideReason: new("compared, not reviewed"),
			})
		}
	}
	if steps != 7 {
		t.Errorf("compared %d steps, want all 7", steps)
	}
}

func compareShown(t *testing.T, root, jobName string, read machine.StepInfo) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "deepwork", "jobs", "show", jobName+"/"+read.StepID, "--json", "--path", root).Output()
	must(t, err)
	var shown machine.StepInfo
	must(t, json.Unmarshal(out, &shown))
	read.SessionID, read.BranchName, read.BranchStatus, read.ProjectRoot = "", "", "", ""
	for i := range read.Inputs {
		read.Inputs[i].Paths = nil
	}
	want, _ := json.MarshalIndent(read, "", "  ")
	got, _ := json.MarshalIndent(shown, "", "  ")
	if string(got) != string(want) {
		t.Errorf("jobs show prints\n%s\nand an agent reads\n%s", got, want)
	}

	text, err := exec.CommandContext(t.Context(), "deepwork", "jobs", "show", jobName+"/"+read.StepID, "--path", root).Output()
	must(t, err)
	for _, part := range []string{read.Instructions, *read.CommonJobInfo} {
		if !strings.Contains(string(text), part) {
			t.Errorf("jobs show does not print %q", part)
		}
	}
}

// outputsOf gives every output of a step the same file.
func outputsOf(t *testing.T, step *machine.StepInfo) json.RawMessage {
	t.Helper()
	outputs := map[string]any{}
	for _, o := range step.ExpectedOutputs {
		if outputs[o.Name] = "out"; o.Type == "files" {
			outputs[o.Name] = []string{"out"}
		}
	}
	data, err := json.Marshal(outputs)
	must(t, err)
	return data
}
