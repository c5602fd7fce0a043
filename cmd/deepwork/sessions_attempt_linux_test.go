package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"deepwork/session/board"
)

// A step that waits for a person in the workspace of an attempt needs attention, and the session is
// found from the project by its id: shown, listed and overridden while its server runs.
func TestSessionsOfAttempts(t *testing.T) {
	onBothStores(t, func(t *testing.T) {
		p := newBoardProject(t, "quality_gate: {override: human}\n")
		writeFiles(t, p.root, map[string]string{".deepwork/jobs/release/job.yml": reviewedJob("release", isItGood, "a")})
		if out := mustPrint(t, p.root, "sessions", "list"); out != "There are no sessions.\n" {
			t.Errorf("at first: %s", out)
		}
		gate, open := p.gate("go")
		x := p.start(p.workflowTask("! write out.txt done", "! review "+gate))
		var item board.Attention
		p.eventually(func() string {
			items := boardCall[board.AttentionReply](p, "needs_attention", map[string]any{}).Items
			i := slices.IndexFunc(items, func(i board.Attention) bool { return i.Kind == board.AttentionStep })
			if i < 0 {
				return fmt.Sprintf("nothing waits: %+v\n%s", items, p.output(x.AttemptID))
			}
			item = items[i]
			return ""
		})
		if now := p.get(x.AttemptID); deref(now.WorkflowSession) != item.ID || !strings.HasPrefix(item.Title, "Step a: ") || item.Since == nil {
			t.Errorf("%+v of %+v", item, now)
		}
		var printed []board.Attention
		if err := json.Unmarshal([]byte(mustPrint(t, p.root, "board", "--json")), &printed); err != nil || !slices.ContainsFunc(printed, func(i board.Attention) bool { return i.ID == item.ID && i.Command == item.Command }) {
			t.Errorf("deepwork board: %+v, %v", printed, err)
		}
		for _, id := range []string{item.ID, item.ID[:5], "latest"} {
			if out := mustPrint(t, p.root, "sessions", "show", id); !strings.Contains(out, "session:  "+item.ID) || !strings.Contains(out, "attempt:  "+x.AttemptID) {
				t.Errorf("show %s: %s", id, out)
			}
		}
		if out := mustPrint(t, p.root, "sessions", "list"); !strings.Contains(out, "ATTEMPT") || !strings.Contains(out, item.ID+"  active") || !strings.Contains(out, x.AttemptID[:8]) {
			t.Errorf("list: %s", out)
		}
		words := strings.Fields(strings.Replace(item.Command, "TEXT", "seen", 1))
		if out, _, err := typing(t, "yes", append(words, "--path", p.root)...); err != nil || !strings.Contains(out, "The agent was asked to have its outputs judged by") || !strings.Contains(out, "Overridden.") {
			t.Errorf("%v: %v\n%s", words, err, out)
		}
		for _, i := range boardCall[board.AttentionReply](p, "needs_attention", map[string]any{}).Items {
			if i.ID == item.ID {
				t.Errorf("it still waits: %+v", i)
			}
		}
		open()
		if now := p.ends(x.AttemptID); deref(now.WorkflowStatus) != "completed" {
			t.Errorf("%+v\n%s", now, p.output(x.AttemptID))
		}
		if out := mustPrint(t, p.root, "sessions", "show", item.ID); !strings.Contains(out, "status:   completed") || !strings.Contains(out, "overridden by a person") {
			t.Errorf("at the end: %s", out)
		}
	})
}
