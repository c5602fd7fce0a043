package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary",
		Args:  takes(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			v := readBuild()
			if !a.json {
				_, err := fmt.Fprintln(a.out, v)
				return err
			}
			return a.printJSON(v)
		},
	}
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
	return cmd
}

// version is that of the release: the linker sets it (.ci/release). Other builds have none.
var version string

// A build describes how this binary was built.
type build struct {
	Version  string `json:"version"` // of the release, or as Go derives it from tags and commits
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"` // of the commit
	Modified bool   `json:"modified"`       // the checkout had uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readBuild() build {
	b := build{Version: "dev", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = cmp.Or(version, strings.TrimSuffix(info.Main.Version, "(devel)"), b.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String returns the output line of `deepwork version`.
func (b build) String() string {
	words := []string{"deepwork", b.Version}
	if b.Commit != "" {
		words = append(words, "commit", b.Commit[:min(12, len(b.Commit))])
	}
	if b.Time != "" {
		words = append(words, b.Time)
	}
	if b.Modified {
		words = append(words, "modified")
	}
	return strings.Join(append(words, b.Go, b.Platform), " ")
}

// printJSON prints v as JSON indented by two spaces.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
