package transport

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
)

// decodeMessage is jsonrpc.DecodeMessage, which takes the first value for the
// whole line, cuts fractions off ids, and makes buffers of 32 KB three times a
// message. Of what is no message it returns the id, where it has one.
func decodeMessage(text []byte) (jsonrpc.Message, jsonrpc.ID, *jsonrpc.Error) {
	var fields map[string]json.RawMessage // names are case-sensitive, which a struct's would not be
	if err := json.Unmarshal(text, &fields); err != nil {
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return nil, jsonrpc.ID{}, invalidRequest("a message is an object, this is %s", article(kindOf(text)))
		}
		var finder idFinder
		if strings.Contains(err.Error(), "exceeded max depth") { // else what looks like an id may be anything
			finder.Write(text)
		}
		return nil, finder.id(), &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: fmt.Sprintf("parse error: %v", err)}
	}
	id, err := decodeID(fields["id"])
	if err != nil {
		return nil, id, invalidRequest("%v", err)
	}
	if v := string(fields["jsonrpc"]); v != `"2.0"` {
		return nil, id, invalidRequest("jsonrpc is %s, not \"2.0\"", cmp.Or(clip(v, 40), "missing"))
	}
	if name, ok := fields["method"]; ok {
		var method string
		if err := json.Unmarshal(name, &method); err != nil {
			return nil, id, invalidRequest("method is %s, not a string", article(kindOf(name)))
		}
		return &jsonrpc.Request{ID: id, Method: method, Params: fields["params"]}, id, nil
	}
	result, fault := fields["result"], fields["error"]
	if !id.IsValid() || result == nil && fault == nil {
		return nil, id, invalidRequest("it has no method, and is no reply to a request")
	}
	resp := &jsonrpc.Response{ID: id, Result: result}
	if fault != nil && !isNull(fault) {
		e := new(jsonrpc.Error)
		if err := json.Unmarshal(fault, e); err != nil {
			return nil, id, invalidRequest("error is not usable: %v", err)
		}
		resp.Error = e
	}
	return resp, id, nil
}

func decodeID(raw json.RawMessage) (jsonrpc.ID, error) {
	if len(raw) == 0 || isNull(raw) {
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
	n, exact := strconv.ParseInt(string(raw), 10, 64) // 2^53+1 has no float of its own
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 || exact == nil && (n > 1<<53 || n < -1<<53) {
		return jsonrpc.ID{}, fmt.Errorf("the id %s is neither a string nor an integer of at most 2^53", clip(string(raw), 40))
	}
	return jsonrpc.MakeID(f)
}

func invalidRequest(format string, args ...any) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "invalid request: " + fmt.Sprintf(format, args...)}
}

// appendMessage writes a message as JSON without a line break.
func appendMessage(b []byte, msg jsonrpc.Message) ([]byte, error) {
	resp, ok := msg.(*jsonrpc.Response)
	if !ok {
		data, err := jsonrpc.EncodeMessage(msg)
		return append(b, data...), err
	}
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	id, err := json.Marshal(resp.ID.Raw()) // null where it is not known, which the SDK leaves out
	if err != nil {
		return b, fmt.Errorf("encoding the id %v: %w", resp.ID.Raw(), err)
	}
	b = append(b, id...)
	if resp.Error == nil && len(resp.Result) > 0 {
		b = append(b, `,"result":`...)
		// The SDK has compacted it; a line break between tokens would tear the line.
		if bytes.IndexByte(resp.Result, '\n') >= 0 {
			var compact bytes.Buffer
			if err := json.Compact(&compact, resp.Result); err != nil {
				return b, fmt.Errorf("encoding the result: %w", err)
			}
			b = append(b, compact.Bytes()...)
		} else {
			b = append(b, resp.Result...)
		}
		return append(b, '}'), nil
	}
	fault, err := json.Marshal(wireError(resp.Error))
	if err != nil {
		return b, fmt.Errorf("encoding the error: %w", err)
	}
	return append(append(append(b, `,"error":`...), fault...), '}'), nil
}

// wireError gives every error a code.
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
