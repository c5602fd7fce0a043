package transport

import (
	"bytes"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// accepted encodes a reply once, with the order of its fields kept: as
// structured content, and the same bytes as the one text block, unless the reply
// has a textValue for that.
func accepted(reply any) (*mcp.CallToolResult, error) {
	data, err := encode(reply)
	if err != nil {
		return nil, err
	}
	text := data
	if other, ok := reply.(interface{ textValue() any }); ok {
		if text, err = encode(other.textValue()); err != nil {
			return nil, err
		}
	}
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: string(text)}},
		StructuredContent: json.RawMessage(data),
	}, nil
}

// encode is json.Marshal without the escapes for HTML, which agents would read.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
