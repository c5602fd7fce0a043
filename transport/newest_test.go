package transport

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// What may be kept of a reply says for how long, and that it's its caller's alone; the server says what it supports.
func TestWhatMayBeKeptInTheNewestProtocol(t *testing.T) {
	t.Parallel()
	root := slowProject(t)
	_, c := taking(t, root, takesTasks)
	id := c.start()
	for method, params := range map[string]string{
		"server/discover": "", "tools/list": "", "prompts/list": "", "resources/list": "", "resources/templates/list": "",
		"resources/read": fmt.Sprintf(`"uri":"deepwork://sessions/%s"`, id),
	} {
		name := ""
		if params != "" {
			name = strings.Split(params, `"`)[3]
		}
		r, fault := c.request(method, name, params)
		ttl, is := r["ttlMs"].(float64)
		testkit.True(t, fault == "" && r["resultType"] == "complete" && r["cacheScope"] == "private" && is && ttl >= 0, "%s: %s, type %v, scope %v, ttlMs %v", method, fault, r["resultType"], r["cacheScope"], r["ttlMs"])
		if method != "server/discover" {
			continue
		}
		can, _ := r["capabilities"].(map[string]any)
		extensions, _ := can["extensions"].(map[string]any)
		versions, _ := r["supportedVersions"].([]any)
		testkit.True(t, extensions["io.modelcontextprotocol/tasks"] != nil && can["tools"] != nil && slices.Contains(versions, "2026-07-28") && r["instructions"] != "", "server/discover: %v", r)
	}
	r := c.call("get_workflows", `{}`)
	testkit.True(t, r["ttlMs"] == nil && r["cacheScope"] == nil, "a call may not be kept: %v", r)
}

// The context of a trace in _meta changes nothing for who sends it, be it as W3C writes it or not.
func TestAnyTraceContextIsTaken(t *testing.T) {
	t.Parallel()
	_, c := taking(t, slowProject(t), "")
	for _, trace := range []string{
		`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"`, `"traceparent":"00-0","tracestate":"a=b,,","baggage":"="`,
		`"traceparent":7,"tracestate":[],"baggage":{}`, `"traceparent":null`,
	} {
		c.can = `{},` + trace
		testkit.Equal(t, c.call("get_workflows", `{}`)["isError"], nil, "%s", trace)
		_, fault := c.request("tools/list", "", "")
		testkit.Equal(t, fault, "", "%s", trace)
	}
}
