//go:build unix

package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A told is what one call of a tool of the board, or of a run, came to.
type told struct {
	kind      kind
	code      string // of a refusal
	text      string
	call, ret int64 // of a lost one ret is when it can have no effect any more
}

// The codes of the board's refusals.
var (
	// boardPassing have no effect: the disk, the end of a server, or what the
	// attempts of the task do just now.
	boardPassing = []string{
		"disk_full", "shutting_down", "attempt_running", "attempt_busy", "being_deleted", "being_removed", "no_session",
		"workspace_gone", "not_removed", "work_not_kept", "worktree_in_use", "git_failed",
	}
	boardUncertain = []string{"board_busy", "still_stopping", "stopping"}
	boardGone      = []string{"unknown_task", "unknown_attempt", "unknown_session", "deleted_since"}
)

// tell makes a call of a process and says what came of it.
func (a *agent) tell(ctx context.Context, r *run, tool string, args map[string]any, passing, uncertain, gone []string) told {
	h := a.world.history
	t := told{call: h.now()}
	result, odd := a.exchange(ctx, r, tool, args)
	h.count(&h.calls)
	if odd != "" {
		t.kind, t.text = oddAnswer, odd
	} else if result == nil {
		t.kind = lostAnswer
	} else {
		for _, c := range result.Content {
			if text, ok := c.(*mcp.TextContent); ok {
				t.text += text.Text
			}
		}
		if result.IsError {
			meta, _ := result.Meta["deepwork/error"].(map[string]any)
			t.code, _ = meta["code"].(string)
			switch {
			case slices.Contains(passing, t.code):
				t.kind = noEffect
			case slices.Contains(uncertain, t.code):
				t.kind = lostAnswer
			case slices.Contains(gone, t.code):
				t.kind = goneAnswer
			default:
				t.kind = oddAnswer
			}
		}
	}
	t.ret = h.now()
	switch t.kind {
	case lostAnswer:
		h.count(&h.lost)
		if a.alive(r) {
			t.ret = never
		}
	case noEffect:
		h.count(&h.refused)
	case oddAnswer:
		h.fault("client %d: %s %v: code %q: %s", a.number, tool, args, t.code, t.text)
	}
	return t
}

// board makes a call of a tool of the board, again where its answer is lost and
// again says that it may be made again. unsure are the calls whose answers were lost.
func (a *agent) board(ctx context.Context, tool string, args map[string]any, again bool) (t told, unsure []told) {
	var at *run
	t.kind = lostAnswer
	for range tries {
		r, err := a.pick(ctx, at)
		if err != nil {
			return told{kind: noEffect}, unsure
		}
		at = r
		t = a.tell(ctx, r, tool, args, boardPassing, boardUncertain, boardGone)
		switch {
		case t.kind == lostAnswer:
			unsure = append(unsure, t)
			if !again {
				return t, unsure
			}
		case t.kind == noEffect && again && (len(unsure) > 0 || t.code == "disk_full"):
			pause(ctx, 20*time.Millisecond)
		default:
			return t, unsure
		}
	}
	return t, unsure
}

// reads decodes a reply, and tells where it cannot be.
func (a *agent) reads(t told, into any) bool {
	if err := json.Unmarshal([]byte(t.text), into); err != nil {
		a.world.history.fault("client %d: a reply cannot be read: %v: %.300s", a.number, err, t.text)
		return false
	}
	return true
}

// token makes a name that no other call has.
func (a *agent) token(kind string) string {
	a.serial++
	return fmt.Sprintf("%s%d-%d", kind, a.number, a.serial)
}
