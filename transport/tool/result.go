package tool

import (
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/remote"
)

// MaxReplyBytes is the maximum size of a reply as JSON; it is sent twice, as text and as structured
// content. Replies that can be large are bounded where they are made: lists have pages, agent
// output and diffs have limits, get_workflows reports what it leaves out, and a step or group whose
// instructions exceed their bound does not start. This limit is for all others, such as the result
// of another system's workflow.
const MaxReplyBytes = 8 << 20

// accepted encodes a reply once, in the order of its fields: as structured content, and the same
// bytes as the only text block, unless the reply has a TextValue. A reply with large parts that are
// already encoded has an EncodeJSON, which does not scan them again.
func accepted(reply any) (*mcp.CallToolResult, error) {
	var data []byte
	var err error
	if large, ok := reply.(interface{ EncodeJSON() ([]byte, error) }); ok {
		data, err = large.EncodeJSON()
	} else {
		data, err = jsontext.Encode(reply)
	}
	if err != nil {
		return nil, err
	}
	text := data
	if other, ok := reply.(interface{ TextValue() any }); ok {
		if text, err = jsontext.Encode(other.TextValue()); err != nil {
			return nil, err
		}
	}
	return &mcp.CallToolResult{
		Meta:              waiting(labelled(nil, reply), reply),
		Content:           []mcp.Content{&mcp.TextContent{Text: string(text)}},
		StructuredContent: json.RawMessage(data),
	}, nil
}

// tooLarge returns the error for a reply of n bytes of a call that was executed. The reply is not
// shortened, since nobody could see what is missing.
func (s *Set) tooLarge(tool string, n int, reply any) *session.Error {
	x := executionOf(reply)
	what, next := "was executed, but its reply is too large to send", s.again(tool)
	switch t := s.tools[tool]; {
	case t.Hints.ReadOnly:
		what = "has a reply that is too large to send"
		next = t.Smaller
		if next == "" {
			next = "ask for less, if " + tool + " has an argument for that, or read the files of the project yourself."
		}
	case x != nil:
		next = fmt.Sprintf("execution %s is %s, and its result is at its source: get it there. "+
			"Calling %s again runs the workflow again; first have it return a reference instead of a large result.", x.ExecutionID, x.State, tool)
	case s.howToFindOut(tool) == SeeExecution:
		next = "the execution ended, and its result is at its source: get it there. Calling " + tool + " again runs the workflow again; first have it return a reference instead of a large result."
	}
	e := session.NotNow(codes.ReplyTooLarge, "%s %s: it has %d bytes of JSON, and at most %d are sent. What to do now: %s", tool, what, n, MaxReplyBytes, next).
		With("bytes", n).With("max", MaxReplyBytes).Because(fmt.Errorf("the reply is too large: %d bytes", n))
	if x != nil {
		e = e.With("execution_id", x.ExecutionID)
	}
	return e
}

// labelled adds the name of the source to meta if the reply is an execution, so that programs know
// whose words the reply has.
func labelled(meta mcp.Meta, reply any) mcp.Meta {
	x := executionOf(reply)
	if x == nil {
		return meta
	}
	if meta == nil {
		meta = mcp.Meta{}
	}
	meta[SourceMeta] = x.Source
	return meta
}

// executionOf returns the execution that a reply describes, or nil.
func executionOf(reply any) *remote.Run {
	if called, ok := reply.(*any); ok { // of call_workflow_tool
		reply = *called
	}
	x, _ := reply.(*remote.Run)
	return x
}
