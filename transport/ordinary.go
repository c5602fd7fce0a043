package transport

import (
	"context"
	"encoding/json"
	"mime"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// An ordinary is a call of a tool that came as a client should send it, with nothing
// in it but what a call needs.
type ordinary struct {
	id        jsonrpc.ID
	name      string
	arguments json.RawMessage
	meta      ordinaryMeta
}

// An ordinaryMeta is what is said about a call.
type ordinaryMeta struct {
	token  any         // of progress; nil: there is none
	newest *newestMeta // nil: nothing that the newest version of the protocol has
}

// A newestMeta is what every request of the newest version of the protocol says.
type newestMeta struct{ version, client, capabilities json.RawMessage }

// told is the call for those who carry it out.
func (o *ordinary) told(notify func(context.Context, *mcp.ProgressNotificationParams) error) *toolCall {
	return &toolCall{name: o.name, arguments: o.arguments, token: o.meta.token, notify: notify}
}

// ordinaryCall takes a request apart if it is one.
func ordinaryCall(header http.Header, body *readBody) (*ordinary, bool) {
	if len(body.messages) != 1 || isBatch(body.data) || !isOrdinary(header) {
		return nil, false
	}
	o := &ordinary{}
	return o, o.take(&body.messages[0])
}

// isOrdinary tells whether the headers of a POST are those of a client that does what
// MCP says; the protocol's version is not looked at.
func isOrdinary(header http.Header) bool {
	return isJSON(header.Get("Content-Type")) && takesBoth(header.Values("Accept")) && header.Values("Last-Event-Id") == nil
}

// isJSON tells whether a content type is JSON's, whatever its parameters are.
func isJSON(kind string) bool {
	if kind == "application/json" {
		return true
	}
	base, _, err := mime.ParseMediaType(kind)
	return err == nil && base == "application/json"
}

// takesBoth tells whether a client takes JSON and streams of events, as it has to.
func takesBoth(accept []string) bool {
	var object, stream bool
	for _, line := range accept {
		for kind := range strings.SplitSeq(line, ",") {
			kind, _, _ = strings.Cut(kind, ";")
			switch strings.TrimSpace(kind) {
			case "application/json":
				object = true
			case "text/event-stream":
				stream = true
			case "*/*":
				return true
			}
		}
	}
	return object && stream
}

// take fills o from a message; false: there is something about that.
func (o *ordinary) take(m *enveloped) bool {
	if m.name() != toolsCall || string(m.version) != `"2.0"` {
		return false
	}
	id, err := decodeID(m.id)
	if err != nil || !id.IsValid() {
		return false
	}
	o.id = id
	return o.takeParams(m.params)
}

func (o *ordinary) takeParams(raw json.RawMessage) bool {
	var params map[string]json.RawMessage
	if json.Unmarshal(raw, &params) != nil {
		return false
	}
	for name, value := range params {
		switch name {
		case "name":
			if json.Unmarshal(value, &o.name) != nil {
				return false
			}
		case "arguments":
			if kindOf(value) != "object" {
				return false
			}
			o.arguments = value
		case "_meta":
			if !o.meta.take(value) {
				return false
			}
		default:
			return false
		}
	}
	return o.name != ""
}

// mcpMeta is what the names begin with that MCP gives a meaning to.
const mcpMeta = "io.modelcontextprotocol/"

// take fills m from the _meta of a call.
func (m *ordinaryMeta) take(raw json.RawMessage) bool {
	var meta map[string]json.RawMessage
	if json.Unmarshal(raw, &meta) != nil {
		return false
	}
	for name, value := range meta {
		if name == "progressToken" && !isNull(value) {
			token, err := decodeID(value) // it is made as an id is
			if err != nil {
				return false
			}
			m.token = token.Raw()
		}
		if !strings.HasPrefix(name, mcpMeta) {
			continue
		}
		if m.newest == nil {
			m.newest = &newestMeta{}
		}
		switch name {
		case mcp.MetaKeyProtocolVersion:
			m.newest.version = value
		case mcp.MetaKeyClientInfo:
			m.newest.client = value
		case mcp.MetaKeyClientCapabilities:
			m.newest.capabilities = value
		default:
			return false
		}
	}
	return true
}

// fits tells whether it is whole, and of that version.
func (m *newestMeta) fits(version string) bool {
	var client mcp.Implementation
	var capabilities mcp.ClientCapabilities
	return string(m.version) == `"`+version+`"` &&
		(m.client == nil || kindOf(m.client) == "object" && json.Unmarshal(m.client, &client) == nil) &&
		kindOf(m.capabilities) == "object" && json.Unmarshal(m.capabilities, &capabilities) == nil
}
