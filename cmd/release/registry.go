package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// registrySchema identifies the format of server.json.
const registrySchema = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"

// registry writes server.json, the server's entry in the MCP registry. Its package is the bundle,
// which must exist.
func (r *release) registry() error {
	type object = map[string]any
	sum, err := checksum(filepath.Join(r.to, r.bundleName()))
	if err != nil {
		return err
	}
	data, err := asJSON(object{
		"$schema": registrySchema, "name": r.owner.Name, "title": "deepwork", "description": description,
		"version": r.version, "websiteUrl": r.owner.Homepage,
		"packages": []object{{
			"registryType": "mcpb",
			"identifier":   strings.ReplaceAll(r.owner.Downloads, "VERSION", r.version) + "/" + r.bundleName(),
			"version":      r.version,
			"fileSha256":   sum,
			"transport":    object{"type": "stdio"},
		}},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.to, "server.json"), data, 0o644)
}

// checksum returns the SHA-256 of a file, in hexadecimal.
func checksum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()

	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// checksums writes SHA256SUMS, which "sha256sum -c" reads: a line for every other file of the release.
func (r *release) checksums() error {
	var lines strings.Builder
	err := filepath.WalkDir(r.to, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}

		name, err := filepath.Rel(r.to, path)
		if err != nil {
			return err
		}

		sum, err := checksum(path)
		fmt.Fprintf(&lines, "%s  %s\n", sum, filepath.ToSlash(name))
		return err
	})
	if err != nil {
		return fmt.Errorf("writing the checksums: %w", err)
	}
	return os.WriteFile(filepath.Join(r.to, "SHA256SUMS"), []byte(lines.String()), 0o644)
}
