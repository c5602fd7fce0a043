package transport

import (
	"encoding/json"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session/remote"
	"deepwork/transport/web"
)

// A tool of a source whose schema model APIs refuse is listed in a form that they accept, says so, and gets its
// arguments under their own names, also by way of call_workflow_tool.
func TestField03_ASourceGetsItsOwnNames(t *testing.T) {
	t.Parallel()
	f := newFactory(`{"id":"w","name":"find","description":"d","executionType":"sync","inputSchema":{"oneOf":[
		{"properties":{"filter[name]":{"type":"string"}},"required":["filter[name]"]},{"properties":{"user id":{"type":"integer"}},"required":["user id"]}]}}`)
	s, _ := withSource(t, f, "")
	cs := client(t, s)
	tool := listed(t, cs)["find"]
	schema, _ := json.Marshal(tool.InputSchema)
	testkit.True(t, !strings.Contains(string(schema), "oneOf") && strings.Contains(string(schema), `"filter_name"`), "listed as %s", schema)
	meta, _ := json.Marshal(tool.Meta["deepwork/workflow"])
	testkit.ContainsAll(t, string(meta), []string{`"renamed":{"filter_name":"filter[name]","user_id":"user id"}`, `"changes":["`}, "_meta")
	testkit.Contains(t, string(into[remote.Run](t, cs, "find", `{"user_id":7}`).Result), `{"user id":7}`, "the source got")
	testkit.Contains(t, string(into[remote.Run](t, cs, "call_workflow_tool", `{"name":"find","arguments":{"filter_name":"x"}}`).Result), `{"filter[name]":"x"}`, "the source got")
	refusedWith(t, cs, "find", `{"user_id":7,"filter_name":"x"}`, "ToolError")
	testkit.True(t, len(f.started) == 2, "%d calls reached the source", len(f.started))
}

// A client that sends initialize again, as some do after a pause, gets the same answer, and its stack is kept.
func TestField10_InitializeTwice(t *testing.T) {
	t.Parallel()
	s, _ := fakeServer(t, nil)
	again := strings.Replace(strings.Replace(initialize, `"id":0`, `"id":7.0`, 1), "2025-06-18", "2024-11-05", 1)
	lines := overStdio(t, s, hello+again+"\n"+`{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"+
		`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"_meta":{"progressToken":1.0},"name":"get_workflows","arguments":{}}}`+"\n")
	all := strings.Join(lines, "\n")
	testkit.True(t, !strings.Contains(all, `"error":{`) && strings.Count(all, `"protocolVersion":"2025-06-18"`) == 2 && strings.Count(all, `"instructions"`) == 2 && strings.Contains(all, `"id":8`), "stdio: %s", all)
	h := overHTTP(t, s, web.Options{})
	c, id := opened(t, h)
	send(t, c, "POST", h.URL(), again, id).is(t, 200, `"protocolVersion":"2025-06-18"`)
}

// The server is found with a slash at the end of its address, and below the path of a proxy, which may leave it in
// requests or remove it.
func TestField10_AddressesOfTheServer(t *testing.T) {
	t.Parallel()
	s, _ := fakeServer(t, nil)
	file, token := tokens(t, "ann")
	h, sse := overHTTP(t, s, web.Options{TokenFile: file, BasePath: "/deep/work"}), overHTTP(t, s, web.Options{Transport: web.SSE, TokenFile: file, BasePath: "/deep/work"})
	for _, path := range []string{"/mcp", "/mcp/", "/mcp//", "/deep/work/mcp", "/deep/work/mcp/"} {
		cs := dialAt(t, at(h, path), "", httpClient(t, token[0]))
		accepted(t, cs, "get_workflows", `{}`)
	}
	for path, want := range map[string]int{"/healthz/": 200, "/deep/work/healthz": 200, "/deep/workmcp": 404, "/deep/mcp": 404, "/other/": 404} {
		testkit.Equal(t, send(t, httpClient(t, token[0]), "GET", at(h, path), "").status, want, "%s", path)
	}
	for _, test := range []struct{ path, header, endpoint string }{
		{"/deep/work/sse/", "", "/deep/work/sse?sessionid="},
		{"/sse", "", "/deep/work/sse?sessionid="},
		{"/sse", "X-Forwarded-Prefix: /a-b/", "/a-b/sse?sessionid="},
		{"/sse", "X-Forwarded-Prefix: //evil.example.com", "/deep/work/sse?sessionid="},
	} {
		if test.header != "" {
			test.header += "\r\n"
		}
		conn := raw(t, sse, "GET "+test.path+" HTTP/1.1\r\nHost: localhost\r\n"+test.header+"Authorization: Bearer "+token[0]+"\r\n\r\n")
		endpoint := endpointOf(t, conn)
		testkit.True(t, strings.HasPrefix(endpoint, test.endpoint), "%+v: the endpoint is %s", test, endpoint)
	}
}
