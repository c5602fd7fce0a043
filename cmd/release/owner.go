package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

// An owner is what only the owner of the project can decide. "Releases" in CONTRIBUTING.md explains each.
type owner struct {
	Name      string `json:"name"`      // of the server in the MCP registry
	Author    string `json:"author"`    // a person or an organization
	License   string `json:"license"`   // its SPDX identifier; "" while that is open
	Homepage  string `json:"homepage"`  // URL
	Downloads string `json:"downloads"` // URL of the folder with the files of release VERSION
}

//go:embed owner.json
var ownerFile string

func readOwner() (owner, error) {
	var o owner
	d := json.NewDecoder(strings.NewReader(ownerFile))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return o, fmt.Errorf("reading cmd/release/owner.json: %w", err)
	}
	return o, nil
}

// asJSON returns v as a file: indented, with a line feed at the end.
func asJSON(v any) ([]byte, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return []byte(b.String()), err
}
