package main

import (
	"os"
	"path/filepath"
)

// plugin writes the folder of the Claude Code plugin. It has no binary: it starts the deepwork that
// is in PATH, as the entry that deepwork init writes does.
func (r *release) plugin() error {
	type object = map[string]any
	manifest := object{
		"name": "deepwork", "version": r.version, "description": description,
		"author": object{"name": r.owner.Author}, "homepage": r.owner.Homepage,
	}
	if r.owner.License != "" {
		manifest["license"] = r.owner.License
	}

	// Claude Code starts servers in the project's folder.
	servers := object{"mcpServers": object{"deepwork": object{
		"command": "deepwork",
		"args":    []string{"serve", "--path", "."},
	}}}
	for name, v := range map[string]any{".claude-plugin/plugin.json": manifest, ".mcp.json": servers} {
		data, err := asJSON(v)
		if err != nil {
			return err
		}

		path := filepath.Join(r.to, "plugin", filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
	}

	return nil
}
