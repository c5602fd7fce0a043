package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"deepwork/catalog/config"
)

var option = regexp.MustCompile(`(?m)^ +--[a-z-]+`)

// The README documents every command with every option it has.
func TestReadmeTellsOfEveryOption(t *testing.T) {
	data, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(data), `\|`, "|")
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.Name() != "help" && !sub.Hidden {
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
			option = strings.TrimSpace(option)
			ofStore := c.Name() != "serve" && (option == "--store" || option == "--project" && c.Parent().Name() != "board") // told once
			if !ofStore && option != "--path" && option != "--help" && !strings.Contains(row, option) {
				t.Errorf("README.md does not tell of %s %s", c.CommandPath(), option)
			}
		}
	}
	check((&app{}).root())
}

// What the README says of http are the defaults, and every key of it.
func TestReadmeHTTP(t *testing.T) {
	data, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(data), "```yaml config\n")
	block, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("README.md shows no config")
	}
	c, faults := config.Parse("config.yml", []byte(block))
	if faults != nil {
		t.Fatal(faults)
	}
	got, want := c.HTTP, config.Default().HTTP
	if got.IdleTimeout != want.IdleTimeout || got.MaxConnections != want.MaxConnections || got.MaxRequests != want.MaxRequests ||
		got.MaxBodyBytes != want.MaxBodyBytes || len(got.Tokens)+len(got.AllowedHosts)+len(got.AllowedOrigins) > 0 {
		t.Errorf("README.md shows %+v, the defaults are %+v", got, want)
	}
	_, fault := config.Parse("config.yml", []byte("http: 7\n"))
	_, keys, _ := strings.Cut(fault.Error(), "with the keys ")
	_, rest, _ = strings.Cut(string(data), "```yaml user\n")
	users, _, _ := strings.Cut(rest, "```")
	block += users
	for key := range strings.SplitSeq(keys, ", ") {
		if !strings.Contains(block, "  "+key+":") && !strings.Contains(block, "  # "+key+": ") {
			t.Errorf("README.md does not tell of http.%s", key)
		}
	}
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
		t.Errorf("README.md's verdict is not one: %v\n%s", err, block)
	}
}
