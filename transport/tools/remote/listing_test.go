package remote

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	sources "deepwork/catalog/source"
	"deepwork/transport/tool"
)

// The rewritten schema is what tools/list gives.
func TestListedWorkflowAsksForNoHeaders(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`)
	listed := listedWorkflow(&sources.Tool{
		Name:     "mirror",
		Workflow: sources.Workflow{ID: "m", Name: "mirror", InputSchema: schema},
	})
	got := string(listed.InputSchema.(json.RawMessage))
	testkit.True(t, !strings.Contains(got, "x-mcp-header") && strings.Contains(got, `"region"`), "listed with %s", got)
}

// A page goes by its bytes too.
func TestPagesAreBounded(t *testing.T) {
	filler := json.RawMessage(`{"type":"object","description":"` + strings.Repeat("x", 200<<10) + `"}`)
	large := &Listing{}
	for i := range 50 {
		large.Tools = append(large.Tools, &mcp.Tool{Name: fmt.Sprintf("big-%02d", i), InputSchema: filler})
	}

	var names []string
	pages := 0
	for after, first := "", []*mcp.Tool{{Name: "get_step"}}; after != "" || pages == 0; pages++ {
		page, next := large.page(first, after)
		size := 0
		for _, listed := range page {
			names = append(names, listed.Name)
			if listed.InputSchema != nil {
				size += len(filler)
			}
		}
		testkit.True(t, size <= pageBytes && size != 0, "page %d has %d bytes of schemas", pages, size)

		after, _ = tool.Workflows.Decode(next)
		first = nil
	}
	testkit.Equal(t, pages, 3, "%d tools on %d pages: %v", len(names), pages, names)
	testkit.Need(t, len(names) == 51, "%d tools on %d pages: %v", len(names), pages, names)
	testkit.Equal(t, names[0], "get_step", "%d tools on %d pages: %v", len(names), pages, names)
	testkit.True(t, slices.IsSorted(names[1:]), "%d tools on %d pages: %v", len(names), pages, names)
	testkit.Equal(t, len(slices.Compact(names)), 51, "%d tools on %d pages: %v", len(names), pages, names)
}
