package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
)

// A client is a program with an agent that can use the server, and where it is configured for one
// project.
type client struct {
	name  string // as given to --client
	title string
	file  string // of its config in a project, with slashes
	key   string // of the object that has the servers; "" means that the file is TOML
	here  string // how an argument names the project's root

	typed           bool   // an entry has a type
	httpKey, sseKey string // of the URL; "" means that the transport is not supported
	variable        string // format of a reference to an environment variable; "" means that tokens are not in the file
	byHand          string // format of the command that adds a server with the quoted root; "" means none
	start           string // the next step after init
}

// clients are the values of --client; the first is the default.
var clients = []client{
	{name: "claude", title: "Claude Code", file: ".mcp.json", key: "mcpServers", here: ".", httpKey: "url", sseKey: "url", typed: true, variable: "${%s}",
		start: "start claude in the project; it asks once whether to use the server deepwork"},
	{name: "cursor", title: "Cursor", file: ".cursor/mcp.json", key: "mcpServers", here: "${workspaceFolder}", httpKey: "url", sseKey: "url", variable: "${env:%s}",
		start: "open the project in Cursor, and turn on the server deepwork in its settings under MCP"},
	{name: "codex", title: "Codex", file: ".codex/config.toml", here: ".", httpKey: "url",
		byHand: "codex mcp add deepwork -- deepwork serve --path %s",
		start:  "start codex in the project and trust it: Codex reads the config of trusted projects only"},
	{name: "vscode", title: "VS Code", file: ".vscode/mcp.json", key: "servers", here: "${workspaceFolder}", httpKey: "url", sseKey: "url", typed: true, variable: "${env:%s}",
		start: "open the project in VS Code, and start the server deepwork with the command MCP: List Servers"},
	{name: "gemini", title: "Gemini CLI", file: ".gemini/settings.json", key: "mcpServers", here: ".", httpKey: "httpUrl", sseKey: "url", variable: "${%s}",
		start: "start gemini in the project and trust the folder; /mcp lists the server deepwork"},
}

// clientNamed returns the client with a name, or nil.
func clientNamed(name string) *client {
	for i := range clients {
		if clients[i].name == name {
			return &clients[i]
		}
	}
	return nil
}

func clientNames() (names []string) {
	for _, c := range clients {
		names = append(names, c.name)
	}
	return names
}

// stdio returns the entry of a server that the client starts (seed 001 "Example MCP Configuration").
func (c *client) stdio() mcpEntry {
	if c.key == "" {
		return mcpEntry{text: fmt.Sprintf("[mcp_servers.%s]\ncommand = \"deepwork\"\nargs = [\"serve\", \"--path\", %q]\n", serverName, c.here)}
	}
	kind := ""
	if c.key == "servers" {
		kind = "  \"type\": \"stdio\",\n"
	}
	return mcpEntry{key: c.key, text: fmt.Sprintf("%q: {\n%s  \"command\": \"deepwork\",\n  \"args\": [\"serve\", \"--path\", %q]\n}", serverName, kind, c.here)}
}

// http returns the entry of a server at a URL, with a token or, if named, with the environment
// variable that has it.
func (c *client) http(u *url.URL, token string, named bool) mcpEntry {
	if c.key == "" {
		text := fmt.Sprintf("[mcp_servers.%s]\nurl = %q\n", serverName, u.String())
		if named {
			text += fmt.Sprintf("bearer_token_env_var = %q\n", tokenVariable)
		}
		return mcpEntry{text: text, required: true}
	}
	kind, key := "http", c.httpKey
	if isSSE(u) {
		kind, key = "sse", c.sseKey
	}
	at, _ := json.Marshal(u.String()) // a string
	text := fmt.Sprintf("%q: {\n", serverName)
	if c.typed {
		text += fmt.Sprintf("  \"type\": %q,\n", kind)
	}
	text += fmt.Sprintf("  %q: %s", key, at)
	if named {
		token = fmt.Sprintf(c.variable, tokenVariable)
	}
	if token != "" {
		text += fmt.Sprintf(",\n  \"headers\": {\n    \"Authorization\": \"Bearer %s\"\n  }", token)
	}
	return mcpEntry{key: c.key, text: text + "\n}", required: true}
}

// isSSE reports whether a URL is that of the transport sse.
func isSSE(u *url.URL) bool { return strings.HasSuffix(u.Path, "/sse") }

// add adds an entry to the client's config of a project, and returns what was done.
func (c *client) add(root string, entry mcpEntry) (done string, err error) {
	whole, edit := entry.text, func(there []byte) ([]byte, error) { return appendTable(there, entry) }
	if c.key != "" {
		whole, edit = entry.file(), func(there []byte) ([]byte, error) { return insertServer(there, entry) }
	}
	return editConfig(root, c.path(root), whole, entry.secret, edit)
}

// path returns the file of the client's config of a project.
func (c *client) path(root string) string { return filepath.Join(root, filepath.FromSlash(c.file)) }
