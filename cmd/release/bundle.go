package main

import (
	_ "embed"
	"fmt"
	"path/filepath"
)

// launcher starts the binary for the processor that it runs on: a manifest tells operating systems
// apart, but not processors.
//
//go:embed launcher.sh
var launcher []byte

// bundleName is the file name of the MCPB bundle.
func (r *release) bundleName() string { return fmt.Sprintf("deepwork_%s.mcpb", r.version) }

// bundle writes the MCPB bundle, which desktop applications install with a click. Windows on arm64
// runs the binary for amd64.
func (r *release) bundle() error {
	manifest, err := asJSON(r.manifest())
	if err != nil {
		return err
	}
	files := []file{
		{name: "manifest.json", data: manifest, mode: 0o644},
		{name: "server/deepwork", data: launcher, mode: 0o755},
		{name: "server/deepwork.exe", path: r.binary(platform{"windows", "amd64"}), mode: 0o755},
		{name: "THIRD_PARTY_LICENSES", path: filepath.Join(r.from, "common", "THIRD_PARTY_LICENSES"), mode: 0o644},
	}
	for _, p := range platforms {
		if p.os != "windows" {
			files = append(files, file{name: "server/deepwork-" + p.os + "-" + p.arch, path: r.binary(p), mode: 0o755})
		}
	}
	if err := writeZip(filepath.Join(r.to, r.bundleName()), files, r.time); err != nil {
		return fmt.Errorf("writing the bundle: %w", err)
	}

	return nil
}

// manifest returns the manifest of the bundle, of version 0.3 of its specification.
func (r *release) manifest() any {
	type object = map[string]any
	m := object{
		"manifest_version": "0.3",
		"name":             "deepwork",
		"display_name":     "deepwork",
		"version":          r.version,
		"description":      description,
		"author":           object{"name": r.owner.Author},
		"homepage":         r.owner.Homepage,
		"server": object{
			"type":        "binary",
			"entry_point": "server/deepwork",
			"mcp_config": object{
				"command": "${__dirname}/server/deepwork",
				"args":    []string{"serve", "--path", "${user_config.project}"},
				"platform_overrides": object{
					"win32": object{"command": "${__dirname}/server/deepwork.exe"},
				},
			},
		},
		"user_config": object{
			"project": object{
				"type": "directory", "title": "Project", "required": true,
				"description": "The folder of the project that the agent works on",
			},
		},
		"tools_generated":   true, // which tools there are depends on the project's config
		"prompts_generated": true,
		"compatibility":     object{"platforms": []string{"darwin", "linux", "win32"}},
	}
	if r.owner.License != "" {
		m["license"] = r.owner.License
	}
	return m
}
