package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"deepwork/actor/wait"
)

// A porter is an agent of a session of many items, in a process of its own that may be killed at any moment: it asks a
// server what may be done, does some of it, and logs what it was told.
type porter struct {
	dir, id string
	conns   map[string]*conn // by URL
}

// runPorter is the subcommand porter: `proof porter DIR SESSION`, in the project.
func runPorter(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errUsage
	}

	p := porter{args[0], args[1], map[string]*conn{}}
	for ctx.Err() == nil {
		if err := p.act(ctx); err != nil { // its server was killed
			clear(p.conns)
		}
		_ = wait.For(ctx, rand.N(50*time.Millisecond))
	}

	return nil
}

// calledSession is the session of a step that is a workflow, in its instructions.
var calledSession = regexp.MustCompile(`session_id '([0-9a-f]{8})'`)

// act does one of the steps that may be done.
func (p *porter) act(ctx context.Context) error {
	var open []stepInfo
	for args := map[string]any{"session_id": p.id}; ; {
		var r struct {
			reply
			Next string `json:"next_cursor"`
		}
		code, err := p.call(ctx, "get_step", args, &r)
		if err != nil {
			return err
		}
		if code == "session_ended" {
			return p.finish(ctx, p.id, "end", map[string]any{}) // whose reply may have been lost
		}
		if code == "bad_cursor" { // others have done what was on that page
			break
		}

		open = append(open, r.infos()...)
		args["cursor"] = r.Next
		if r.Next == "" {
			break
		}
	}
	if len(open) == 0 {
		return nil
	}
	info := open[rand.IntN(len(open))]
	step, item, _ := strings.Cut(info.Step, "[")
	switch step {
	case "list":
		return p.finish(ctx, p.id, info.Step, map[string]any{"todo": "todo.json"})
	case "port":
		path := "out/" + strings.TrimSuffix(item, "]") + ".md"
		if _, err := os.Stat(path); err != nil {
			if err = errors.Join(os.MkdirAll("out", 0o755), replace(path, "Done: "+item+"\n")); err != nil {
				return err
			}
		}
		return p.finish(ctx, p.id, info.Step, map[string]any{"out": path})
	case "workflow:tidy":
		m := calledSession.FindStringSubmatch(info.Instructions)
		if m == nil {
			return p.log("odd", info.Step, "no-session")
		}
		return p.finish(ctx, m[1], "tidy",
			map[string]any{"tidied": fmt.Sprintf("%d-%d", os.Getpid(), time.Now().UnixNano())})
	case "sum":
		return p.finish(ctx, p.id, info.Step, map[string]any{"docs": "yes"})
	case "fix":
		return p.finish(ctx, p.id, info.Step, map[string]any{"said": fmt.Sprint(info.Round.Number)})
	}

	return p.finish(ctx, p.id, info.Step, map[string]any{})
}

// finish finishes a step. Other agents may have done so.
func (p *porter) finish(ctx context.Context, session, step string, outputs map[string]any) error {
	var r reply
	args := map[string]any{"session_id": session, "step_id": step, "outputs": outputs}
	// another agent may have finished it meanwhile, and the next round has the same step
	if said, round := outputs["said"]; round {
		args["request_id"] = fmt.Sprint("round ", said)
	}
	_, err := p.call(ctx, "finished_step", args, &r)
	switch {
	case err != nil:
		return err
	case r.Status == "needs_work":
		return p.log("asked", step, "once")
	case r.Status == "workflow_complete" && session == p.id:
		return replace(filepath.Join(p.dir, "complete"), string(r.AllOutputs))
	case r.Status == "workflow_complete":
		return p.log("finished", session+"/"+step, fmt.Sprint(outputs["tidied"]))
	case r.Status == "next_step":
		return p.log("finished", step, fmt.Sprint(os.Getpid()))
	}

	return nil
}

// log writes a line of the journal in one piece.
func (p *porter) log(what, step, by string) error {
	f, err := os.OpenFile(filepath.Join(p.dir, "agents"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s %s %s\n", what, step, by)
	return errors.Join(err, f.Close())
}

// call calls a tool at some server. It returns the code of a refusal; the error is one of the connection.
func (p *porter) call(ctx context.Context, tool string, args map[string]any, into any) (code string, err error) {
	text, err := os.ReadFile(filepath.Join(p.dir, "urls"))
	if err != nil {
		return "", err
	}
	urls := strings.Fields(string(text))
	url := urls[rand.IntN(len(urls))]
	if p.conns[url] == nil {
		if p.conns[url], err = connect(ctx, &process{url: url}, withSessions, true); err != nil {
			delete(p.conns, url)
			return "", err
		}
	}

	within, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	reply, result, err := p.conns[url].call(within, tool, args)
	if err != nil {
		return "", err
	}
	if !result.IsError {
		return "", json.Unmarshal([]byte(reply), into)
	}

	meta, _ := result.Meta["deepwork/error"].(map[string]any)
	code, _ = meta["code"].(string)
	switch code {
	case "session_ended", "step_finished", "step_moved_on", "step_not_current", "group_moved_on", "unknown_session",
		"store_busy", "shutting_down", "bad_cursor":
	default:
		err = p.log("odd", fmt.Sprint(tool, "/", args["step_id"]), code)
	}

	return code, err
}

// replace writes a file that others see whole or not at all.
func replace(path, text string) error {
	next := fmt.Sprintf("%s.%d", path, os.Getpid())
	return errors.Join(os.WriteFile(next, []byte(text), 0o644), os.Rename(next, path))
}
