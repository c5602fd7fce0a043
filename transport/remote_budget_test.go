package transport

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"deepwork/catalog/config"
)

// Clients read tools/list at every start, and show a model the names, descriptions and input
// schemas of all tools with every request: the characters of {"name","description","inputSchema"}
// of each tool are bounded for the default toolsets and for workflows, and the bytes on the wire.
func TestToolsFitTheBudgetOfCharactersShownAndBytesSent(t *testing.T) {
	for _, c := range []struct {
		name                string
		sets                []string
		mostShown, mostSent int
	}{
		{"default", config.DefaultToolsets, 16_700, 100_000},
		{"workflows", []string{"workflows"}, 6_000, 40_960},
		{"workflows and remote", []string{"workflows", "remote"}, 13_000, 40_960},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _ := bareProject(t, "", func(o *Options) { o.Toolsets = c.sets })
			lines := overStdio(t, s, hello+`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`+"\n")
			line := lines[len(lines)-1]
			var list struct {
				Result struct{ Tools []json.RawMessage }
			}
			must(t, json.Unmarshal([]byte(line), &list))
			sum := 0
			for _, sent := range list.Result.Tools {
				var tool struct {
					Name        string          `json:"name"`
					Description string          `json:"description"`
					InputSchema json.RawMessage `json:"inputSchema"`
				}
				must(t, json.Unmarshal(sent, &tool))
				if len(tool.Description) >= 2048 { // clients cut there, silently
					t.Errorf("%s: the description has %d bytes", tool.Name, len(tool.Description))
				}
				var shown strings.Builder
				e := json.NewEncoder(&shown)
				e.SetEscapeHTML(false)
				must(t, e.Encode(tool))
				n := utf8.RuneCountInString(strings.TrimSpace(shown.String()))
				sum += n
				t.Logf("%5d characters shown, %5d bytes sent: %s", n, len(sent), tool.Name)
			}
			t.Logf("%d tools: %d characters shown, %d bytes sent", len(list.Result.Tools), sum, len(line))
			if sum > c.mostShown {
				t.Errorf("a model is shown %d characters, at most %d are allowed: shorten descriptions", sum, c.mostShown)
			}
			if len(line) > c.mostSent {
				t.Errorf("tools/list has %d bytes, at most %d are allowed", len(line), c.mostSent)
			}
			if n := len(client(t, s).InitializeResult().Instructions); n >= 2048 {
				t.Errorf("the instructions have %d bytes", n)
			}
		})
	}
}
