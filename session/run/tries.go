package run

import (
	"fmt"
	"strings"

	"deepwork/catalog/jsontext"
	"deepwork/catalog/task"
	"deepwork/session/attempt/runner"
)

// exhausted returns why no agent is started again for a step, or "". A limit of the provider, the end of
// a leader and outputs that a person was asked about do not count, nor what was before the run was resumed.
func (d *leader) exhausted(j job) string {
	tries, children := 0, len(j.ended)
	why, said := "", ""
	for _, x := range j.before {
		if x.CreatedAt.Before(d.lead.Since) || x.LimitedUntil != nil || asked(x, j.state.Progress(j.step)) || x.State != task.Completed && x.State != task.Failed && !d.cut[x.ID] {
			continue
		}
		if tries++; tries == 1 { // the newest
			said = strings.Join(strings.Fields(deref(x.FinalMessage)), " ")
		}
		if why == "" {
			why = deref(x.Error)
		}
	}
	if tries-children <= d.retries {
		return ""
	}
	agents := "1 agent"
	if tries > 1 {
		agents = fmt.Sprintf("%d agents", tries)
	}
	text := agents + " ended without finishing it."
	if why != "" {
		text += " " + why
	}
	if said != "" && !strings.Contains(why, said) {
		text += fmt.Sprintf(" The last one said: %q.", jsontext.Clip(said, 300))
	}
	if d.silent[j.place] {
		text += fmt.Sprintf(" The last one never connected to the MCP server %s: its program must know that server ('Runs' in the README).", runner.MCPName)
	}
	return text
}
