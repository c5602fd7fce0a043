// Package clients adds this server to the configs that programs with agents have in a project.
package clients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"deepwork/actor/xslices"
	"deepwork/transport/web"
)

// A Client is a program with an agent, and where a project configures MCP servers for it.
type Client struct {
	Name   string // as given to --client
	Title  string
	File   string // of its config in a project, with slashes
	Start  string // the next step after init
	ByHand string // format of the command that adds a server with the quoted root; "" means none

	key  string // of the object that has the servers; "" means that the file is TOML
	here string // how an argument names the project's root

	typed           bool   // an entry has a type
	httpKey, sseKey string // of the URL; "" means that the transport is not supported
	variable        string // format of a reference to an environment variable; "" means that an entry names it
}

// All are the known clients; the first is the default.
var All = []Client{
	{
		Name:     "claude",
		Title:    "Claude Code",
		File:     ".mcp.json",
		key:      "mcpServers",
		here:     ".",
		httpKey:  "url",
		sseKey:   "url",
		typed:    true,
		variable: "${%s}",
		Start:    "start claude in the project; it asks once whether to use the server deepwork",
	},
	{
		Name:     "cursor",
		Title:    "Cursor",
		File:     ".cursor/mcp.json",
		key:      "mcpServers",
		here:     "${workspaceFolder}",
		httpKey:  "url",
		sseKey:   "url",
		variable: "${env:%s}",
		Start:    "open the project in Cursor, and turn on the server deepwork in its settings under MCP",
	},
	{Name: "codex", Title: "Codex", File: ".codex/config.toml", here: ".", httpKey: "url",
		ByHand: "codex mcp add deepwork -- deepwork serve --path %s",
		Start:  "start codex in the project and trust it: Codex reads the config of trusted projects only"},
	{
		Name:     "vscode",
		Title:    "VS Code",
		File:     ".vscode/mcp.json",
		key:      "servers",
		here:     "${workspaceFolder}",
		httpKey:  "url",
		sseKey:   "url",
		typed:    true,
		variable: "${env:%s}",
		Start:    "open the project in VS Code, and start the server deepwork with the command MCP: List Servers",
	},
	{
		Name:     "gemini",
		Title:    "Gemini CLI",
		File:     ".gemini/settings.json",
		key:      "mcpServers",
		here:     ".",
		httpKey:  "httpUrl",
		sseKey:   "url",
		variable: "${%s}",
		Start:    "start gemini in the project and trust the folder; /mcp lists the server deepwork",
	},
}

// Named returns the client with a name, or nil.
func Named(name string) *Client {
	for i := range All {
		if All[i].Name == name {
			return &All[i]
		}
	}
	return nil
}

// Names lists the names of all clients.
func Names() []string { return xslices.Map(All, func(c Client) string { return c.Name }) }

// Speaks reports whether the client supports the transport of a server at a URL.
func (c *Client) Speaks(u *url.URL) bool { return !isSSE(u) || c.sseKey != "" }

// isSSE reports whether a URL is that of the transport sse.
func isSSE(u *url.URL) bool { return strings.HasSuffix(u.Path, "/sse") }

// Path returns the file of the client's config of a project.
func (c *Client) Path(root string) string { return filepath.Join(root, filepath.FromSlash(c.File)) }

// An Entry is a member of an object in a client's config file: this server's entry, or hooks.
type Entry struct {
	name     string // of the member
	key      string // of the object that has the servers; "" means that the file is TOML
	text     string // the member, indented by two spaces per level; in TOML the table
	required bool   // another entry of that name is not as good
}

// Whole returns a config file with only this entry.
func (e Entry) Whole() string {
	if e.key == "" {
		return e.text
	}
	return "{\n  \"" + e.key + "\": {\n    " + strings.ReplaceAll(e.text, "\n", "\n    ") + "\n  }\n}\n"
}

// Hook returns the entry of the hooks of an event in settings of Claude Code, a list of JSON.
func Hook(event string, hooks json.RawMessage) Entry {
	var text bytes.Buffer
	_ = json.Indent(&text, hooks, "", "  ") // it writes to memory, and what is not JSON is not added
	return Entry{name: event, key: "hooks", text: fmt.Sprintf("%q: %s", event, text.String()), required: true}
}

const serverName = "deepwork"

// Stdio returns the entry of a server that the client starts (seed 001 "Example MCP Configuration").
func (c *Client) Stdio() Entry {
	if c.key == "" {
		return Entry{
			name: serverName,
			text: fmt.Sprintf("[mcp_servers.%s]\ncommand = \"deepwork\"\nargs = [\"serve\", \"--path\", %q]\n",
				serverName, c.here),
		}
	}

	kind := ""
	if c.key == "servers" {
		kind = "  \"type\": \"stdio\",\n"
	}
	return Entry{
		name: serverName,
		key:  c.key,
		text: fmt.Sprintf("%q: {\n%s  \"command\": \"deepwork\",\n  \"args\": [\"serve\", \"--path\", %q]\n}",
			serverName, kind, c.here),
	}
}

// TokenVariable is the environment variable that an entry names instead of a token, which is in no file.
const TokenVariable = "DEEPWORK_TOKEN"

// HTTP returns the entry of a server at a URL. It names the variable of a token, unless peers is true and the server is
// on loopback, where it knows who owns a connection.
func (c *Client) HTTP(u *url.URL, peers bool) (e Entry, named bool) {
	named = !peers || !web.IsLoopback(u.Hostname())
	if c.key == "" {
		text := fmt.Sprintf("[mcp_servers.%s]\nurl = %q\n", serverName, u.String())
		if named {
			text += fmt.Sprintf("bearer_token_env_var = %q\n", TokenVariable)
		}
		return Entry{name: serverName, text: text, required: true}, named
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
		text += fmt.Sprintf(",\n  \"headers\": {\n    \"Authorization\": \"Bearer %s\"\n  }",
			fmt.Sprintf(c.variable, TokenVariable))
	}
	return Entry{name: serverName, key: c.key, text: text + "\n}", required: true}, named
}
