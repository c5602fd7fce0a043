// Package plugin is the plugin for Claude Code, laid out as Claude Code expects it and offered by the marketplace at
// the top of the repository. Its skills and its hook can also be installed in a project.
package plugin

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"deepwork/actor/durable"
	"deepwork/cmd/deepwork/clients"
	"deepwork/session/show"
	"deepwork/session/store"
)

//go:embed skills hooks
var files embed.FS

// hookCommand is what the hook runs.
const hookCommand = "deepwork hook compact"

// Installed reports whether the plugin is turned on in Claude Code: for the user, or in the project at root.
func Installed(root string) bool {
	home, _ := os.UserHomeDir()
	own := cmp.Or(os.Getenv("CLAUDE_CONFIG_DIR"), filepath.Join(home, ".claude"))
	on := false
	users, _, _ := durable.ReadLinked(filepath.Join(own, "settings.json"), clients.MaxFile)
	projects, _ := durable.ReadIn(root, ".claude/settings.json", clients.MaxFile)
	local, _ := durable.ReadIn(root, ".claude/settings.local.json", clients.MaxFile)
	for _, text := range [][]byte{users, projects, local} {
		var settings struct {
			EnabledPlugins map[string]json.RawMessage `json:"enabledPlugins"`
		}
		_ = json.Unmarshal(text, &settings) // what cannot be read turns nothing on
		for name, value := range settings.EnabledPlugins {
			if strings.HasPrefix(name, "deepwork@") { // a later file overrides the earlier ones
				on = string(value) == "true"
			}
		}
	}
	return on
}

// Hooks returns the entry of the hook in settings of Claude Code.
func Hooks() clients.Entry {
	const event = "SessionStart"
	var all struct {
		Hooks map[string]json.RawMessage `json:"hooks"`
	}
	text, err := files.ReadFile("hooks/hooks.json")
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		panic(err) // it is embedded
	}
	return clients.Hook(event, all.Hooks[event])
}

// Install installs the skills and the hook in .claude of the project at root. It reports for each file what was done,
// or why nothing was; a *clients.LeftAloneError means that a person has to add the hook.
func Install(root string, report func(path, done string, err error)) {
	skills, err := fs.Glob(files, "skills/*/SKILL.md")
	if err != nil {
		panic(err) // the pattern is right
	}
	for _, name := range skills {
		text, _ := files.ReadFile(name)
		target := filepath.Join(root, ".claude", "skills", "deepwork-"+path.Base(path.Dir(name)), "SKILL.md")
		err := durable.Inside(root, target)
		done := ""
		if err == nil {
			done, err = clients.Create(target, text)
		}
		report(target, done, err)
	}
	settings := filepath.Join(root, ".claude", "settings.json")
	if text, _ := durable.ReadIn(root, settings, clients.MaxFile); strings.Contains(string(text), hookCommand) {
		report(settings, clients.Kept, nil)
		return
	}
	done, err := clients.AddTo(root, settings, Hooks(), false)
	report(settings, done, err)
}

// Compacted answers Claude Code's hook that runs after a compaction: it reads the hook's input, and prints the sessions
// in progress in the agent's folder, as find returns them, or nothing.
func Compacted(
	ctx context.Context, in io.Reader, out io.Writer,
	find func(ctx context.Context, folder string) ([]store.Session, error),
) error {
	var input struct {
		CWD string `json:"cwd"`
	}
	if err := json.NewDecoder(io.LimitReader(in, 1<<20)).Decode(&input); err != nil {
		return fmt.Errorf("reading the hook's input, a JSON object of Claude Code: %w", err)
	}
	sessions, err := find(ctx, input.CWD)
	if err != nil || len(sessions) == 0 {
		return err
	}

	var text strings.Builder
	text.WriteString("The conversation was compacted. These deepwork workflows are in progress in this project, the " +
		"one that moved last first:\n")
	for _, s := range sessions {
		fmt.Fprintf(&text, "- session %s of %s/%s is at step %s; its goal: %q\n", s.ID, s.Job, s.Workflow, s.Step,
			show.OneLine(s.Goal, 200))
	}
	fmt.Fprintf(&text, "If you were working on one of them, call get_step with its session_id, such as %s, to read "+
		"the instructions of its step again, and go on there; don't start the workflow again.\n", sessions[0].ID)
	return json.NewEncoder(out).
		Encode(map[string]any{"hookSpecificOutput": map[string]string{
			"hookEventName":     "SessionStart",
			"additionalContext": text.String(),
		}})
}
