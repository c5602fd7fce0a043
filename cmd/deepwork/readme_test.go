package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var option = regexp.MustCompile(`(?m)^ +--[a-z-]+`)

// The README tells of every command with every option it has.
func TestReadmeTellsOfEveryOption(t *testing.T) {
	data, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(data), `\|`, "|")
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.Name() != "help" {
				check(sub)
			}
		}
		if !c.HasParent() || c.HasSubCommands() && !c.Runnable() {
			return
		}
		if !strings.Contains(text, "`"+c.CommandPath()) {
			t.Errorf("README.md does not tell of the command %q", c.CommandPath())
		}
		var row string // of the table of commands, or the table of serve's options
		for line := range strings.Lines(text) {
			if c.Name() == "serve" && strings.HasPrefix(line, "| `--") || strings.HasPrefix(line, "| `"+c.CommandPath()) {
				row += line
			}
		}
		for _, option := range option.FindAllString(c.LocalFlags().FlagUsages(), -1) {
			if option = strings.TrimSpace(option); option != "--path" && option != "--help" && !strings.Contains(row, option) {
				t.Errorf("README.md does not tell of %s %s", c.CommandPath(), option)
			}
		}
	}
	check((&app{}).root())
}

// The README's example of a verdict is one.
func TestReadmeVerdict(t *testing.T) {
	data, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(data), "```json verdict\n")
	block, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("README.md shows no verdict")
	}
	var v struct {
		Passed   *bool   `json:"passed"`
		Feedback *string `json:"feedback"`
		Results  []struct {
			Criterion string  `json:"criterion"`
			Passed    *bool   `json:"passed"`
			Feedback  *string `json:"feedback"`
		} `json:"criteria_results"`
	}
	d := json.NewDecoder(strings.NewReader(block))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil || v.Passed == nil || v.Feedback == nil || len(v.Results) != 1 || v.Results[0].Passed == nil {
		t.Errorf("README.md's verdict is none: %v\n%s", err, block)
	}
}
