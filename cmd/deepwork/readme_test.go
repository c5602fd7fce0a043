package main

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"deepwork/catalog/config"
)

var option = regexp.MustCompile(`(?m)^ +--[a-z-]+`)

// The README documents every command with every option it has.
func TestReadmeTellsOfEveryOption(t *testing.T) {
	text := strings.ReplaceAll(readme(t), `\|`, "|")
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.Name() != "help" && !sub.Hidden {
				check(sub)
			}
		}
		if !c.HasParent() || c.HasSubCommands() && !c.Runnable() || c.Parent().Name() == "completion" {
			return
		}
		if !strings.Contains(text, "`"+c.CommandPath()) {
			t.Errorf("no page documents the command %q", c.CommandPath())
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
				t.Errorf("no page documents %s %s", c.CommandPath(), option)
			}
		}
	}
	check((&app{}).root())
}

// What the README says of http are the defaults, and every key of it.
func TestReadmeHTTP(t *testing.T) {
	block := snippets(t, "yaml config")[0].text
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
	block += snippets(t, "yaml user")[0].text
	for key := range strings.SplitSeq(keys, ", ") {
		if !strings.Contains(block, "  "+key+":") && !strings.Contains(block, "  # "+key+": ") {
			t.Errorf("no page documents http.%s", key)
		}
	}
}

// The README's example of a verdict is one.
func TestReadmeVerdict(t *testing.T) {
	block := snippets(t, "json verdict")[0].text
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

// What the README shows of the demo is what it prints, but for ids and times; a line that ends with … is shown in part.
func TestReadmeTranscript(t *testing.T) {
	var out bytes.Buffer
	must(t, runDemo(t, &out, "deepwork"))
	mask := func(text string) string {
		return regexp.MustCompile(`"[0-9a-f]{8}"|-[0-9a-f]{4}\b|\b[0-9a-f]{12}\b|[0-9.]+m?s\b`).ReplaceAllString(text, "#")
	}
	printed, checked := mask(out.String()), 0
	for _, s := range snippets(t, "transcript") {
		for line := range strings.Lines(s.text) {
			want := mask(strings.TrimSuffix(line, "\n"))
			if !regexp.MustCompile(`^(->|<-|\$|   )`).MatchString(want) {
				continue // the words in between
			}
			checked++
			if part, shortened := strings.CutSuffix(want, "…"); !strings.Contains(printed, "\n"+part) || !shortened && !strings.Contains(printed, "\n"+part+"\n") {
				t.Errorf("README.md: the demo does not print %q", line)
			}
		}
	}
	if checked < 5 {
		t.Errorf("README.md shows %d lines of the demo", checked)
	}
}
