package transport

import (
	"bytes"
	"encoding/json"
	"fmt"

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

// encodedResult writes a result whose content is encoded already. The SDK would
// scan and copy text and structured content four times each, which is most of
// what a large reply costs.
type encodedResult struct {
	*mcp.CallToolResult
	typed bool // it says that it is complete, as the newest protocol asks
}

// isTyped tells whether results say what they are in the protocol version that a
// session speaks.
func isTyped(ss *mcp.ServerSession) bool {
	params := ss.InitializeParams()
	return params != nil && params.ProtocolVersion >= statelessSince
}

// bareFrame is what the SDK writes for a result that has nothing.
var bareFrame = []byte(`{"content":[]}`)

// noContent is what the SDK writes for a result without content blocks.
var noContent = []byte(`"content":[]`)

// MarshalJSON gives what the embedded result's own method would.
func (r encodedResult) MarshalJSON() ([]byte, error) {
	out, err := r.encode()
	if err != nil {
		return nil, err
	}
	if r.typed {
		out = append(out[:len(out)-1], `,"resultType":"complete"}`...)
	}
	return out, nil
}

// encode gives the result without its type.
func (r encodedResult) encode() ([]byte, error) {
	structured, ok := r.StructuredContent.(json.RawMessage)
	if !ok || len(r.Content) != 1 {
		return r.CallToolResult.MarshalJSON()
	}
	block, ok := r.Content[0].(*mcp.TextContent)
	if !ok || block.Meta != nil || block.Annotations != nil {
		return r.CallToolResult.MarshalJSON()
	}
	frame := bareFrame
	if r.Meta != nil || r.IsError || r.InputRequests != nil || r.RequestState != "" {
		// The SDK writes the rest, in its order.
		rest := *r.CallToolResult
		rest.Content, rest.StructuredContent = []mcp.Content{}, nil
		var err error
		if frame, err = rest.MarshalJSON(); err != nil {
			return nil, err
		}
	}
	at := bytes.LastIndex(frame, noContent)
	if at < 0 {
		return nil, fmt.Errorf("no content in the encoded result %s", clip(string(frame), 200))
	}
	text, err := encode(block.Text)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(frame)+len(text)+len(structured)+64)
	out = append(out, frame[:at]...)
	out = append(out, `"content":[{"type":"text","text":`...)
	out = append(out, text...)
	out = append(out, `}],"structuredContent":`...)
	out = append(out, structured...)
	return append(out, frame[at+len(noContent):]...), nil
}
