package transport

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestReq003_6_4_NamesOfToolsThatComeAndGo(t *testing.T) {
	twin := func(id string) string {
		return fmt.Sprintf(`{"id":%q,"name":"twin","description":"d","executionType":"sync"}`, id)
	}
	one, other := newFactory(twin("a")), newFactory()
	config := "workflow_tools:\n" + fast + "  keep_tools_for: 0s\n  sources:\n    - {name: one, url: " + one.overWeb(t) + "}\n    - {name: other, url: " + other.overWeb(t) + "}\n"
	s, root := withConfig(t, config, nil)
	s.names(t, "twin")
	cs := client(t, s)
	if got := refusedWith(t, cs, "call_workflow_tool", `{"name":"twig"}`, "ToolError"); !strings.Contains(got, "There is one: twin.") {
		t.Error(got)
	}
	other.offer(twin("b"))
	s.names(t, "twin_a", "twin_b")
	for name, args := range map[string]string{"twin": `{}`, "call_workflow_tool": `{"name":"twin"}`} {
		res := callTool(t, cs, name, args)
		if got := text(res); !res.IsError || !strings.Contains(got, "twin_a (source 'one'), twin_b (source 'other')") {
			t.Errorf("%s: %s", name, got)
		}
		if meta := errorMetaOf(t, res); meta["code"] != "ambiguous_workflow_tool" || len(meta["available"].([]any)) != 2 {
			t.Errorf("%s: %v", name, meta)
		}
	}

	// A source that is away is named, also where its tools are gone.
	broken := strings.Replace(config, one.url, "http://127.0.0.1:1/mcp", 1)
	write(t, root, map[string]string{".deepwork/config.yml": "version: \"1.0\"\n" + broken})
	s.names(t, "twin_b")
	if got := refusedWith(t, cs, "twin_a", `{}`, "StateError"); !strings.Contains(got, "source 'one'") || !strings.Contains(got, "cannot be reached") {
		t.Error(got)
	}
	if got := refusedWith(t, cs, "call_workflow_tool", `{"name":"twin"}`, "ToolError"); !strings.Contains(got, "twin_b") || !strings.Contains(got, "'one'") {
		t.Error(got)
	}
	if l := s.remote.Listing(t.Context()); slices.Contains(namesOf(l), "twin") {
		t.Error(namesOf(l))
	}
}
