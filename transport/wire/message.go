// Package wire speaks JSON-RPC on standard input and output, one message per line,
// and decodes messages more strictly than the SDK does.
package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"deepwork/catalog/jsontext"
)

// ListenMethod opens a stream of notifications that lasts until the client ends it.
const ListenMethod = "subscriptions/listen"

// DecodeMessage decodes one message. Unlike jsonrpc.DecodeMessage it refuses text after the message
// and fractional ids. If text is not a message, it returns the reason and the id, if any.
func DecodeMessage(text []byte) (jsonrpc.Message, jsonrpc.ID, *jsonrpc.Error) {
	var fields map[string]json.RawMessage // names are case-sensitive, unlike those of a struct
	if err := json.Unmarshal(text, &fields); err != nil {
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return nil, jsonrpc.ID{}, invalidRequest("a message is an object, this is %s", jsontext.WithArticle(jsontext.Kind(text)))
		}
		var id jsonrpc.ID
		if strings.Contains(err.Error(), "exceeded max depth") { // otherwise anything may look like an id
			id = findID(text, text)
		}
		return nil, id, &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: fmt.Sprintf("parse error: %v", err)}
	}
	id, err := DecodeID(fields["id"])
	if err != nil {
		return nil, id, invalidRequest("%v", err)
	}
	if v := string(fields["jsonrpc"]); v != `"2.0"` {
		return nil, id, invalidRequest("jsonrpc is %s, not \"2.0\"", cmp.Or(jsontext.Clip(v, 40), "missing"))
	}
	if name, ok := fields["method"]; ok {
		var method string
		if err := json.Unmarshal(name, &method); err != nil {
			return nil, id, invalidRequest("method is %s, not a string", jsontext.WithArticle(jsontext.Kind(name)))
		}
		return &jsonrpc.Request{ID: id, Method: method, Params: fields["params"]}, id, nil
	}
	result, fault := fields["result"], fields["error"]
	if !id.IsValid() || result == nil && fault == nil {
		return nil, id, invalidRequest("it has no method, and is no reply to a request")
	}
	resp := &jsonrpc.Response{ID: id, Result: result}
	if fault != nil && !jsontext.IsNull(fault) {
		e := new(jsonrpc.Error)
		if err := json.Unmarshal(fault, e); err != nil {
			return nil, id, invalidRequest("error is not usable: %v", err)
		}
		resp.Error = e
	}
	return resp, id, nil
}

// DecodeID decodes an id: a string, an integer of at most 2^53, or null.
func DecodeID(raw json.RawMessage) (jsonrpc.ID, error) {
	if jsontext.IsNull(raw) {
		return jsonrpc.ID{}, nil
	}
	if raw[0] == '"' {
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return jsonrpc.ID{}, err
		}
		return jsonrpc.MakeID(s)
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	n, exact := strconv.ParseInt(string(raw), 10, 64) // 2^53+1 is not a float64
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 || exact == nil && (n > 1<<53 || n < -1<<53) {
		return jsonrpc.ID{}, fmt.Errorf("the id %s is neither a string nor an integer of at most 2^53", jsontext.Clip(string(raw), 40))
	}
	return jsonrpc.MakeID(f)
}

func invalidRequest(format string, args ...any) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "invalid request: " + fmt.Sprintf(format, args...)}
}

// appendMessage appends a message as JSON without line breaks. Unlike jsonrpc.EncodeMessage it does
// not copy and compact a large result again.
func appendMessage(b []byte, msg jsonrpc.Message) ([]byte, error) {
	resp, ok := msg.(*jsonrpc.Response)
	if !ok || resp.Error == nil && bytes.IndexByte(resp.Result, '\n') >= 0 {
		data, err := jsonrpc.EncodeMessage(msg)
		return append(b, data...), err
	}
	id, err := jsontext.Encode(resp.ID.Raw()) // null if unknown, which the SDK omits
	if err != nil {
		return b, err
	}
	b = append(append(b, `{"jsonrpc":"2.0","id":`...), id...)
	if resp.Error == nil && len(resp.Result) > 0 {
		b = append(append(b, `,"result":`...), resp.Result...)
	} else {
		fault, err := jsontext.Encode(wireError(resp.Error))
		if err != nil {
			return b, err
		}
		b = append(append(b, `,"error":`...), fault...)
	}
	return append(b, '}'), nil
}

// wireError gives errors a code.
func wireError(err error) *jsonrpc.Error {
	e := &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "no result"}
	if err == nil {
		return e
	}
	if bare, ok := err.(*jsonrpc.Error); ok {
		return bare
	}
	e.Message = err.Error()
	if wrapped, ok := errors.AsType[*jsonrpc.Error](err); ok {
		e.Code, e.Data = wrapped.Code, wrapped.Data
	}
	return e
}
