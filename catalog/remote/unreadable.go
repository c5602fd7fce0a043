package remote

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// parseError is JSON-RPC's code for what is not JSON.
const parseError = -32700

// inPlaceOf is the error to give for an answer that is not JSON, or nil where what
// it answers cannot be told, or it is no answer.
func inPlaceOf(text []byte, fault error) []byte {
	id := answered(withoutNaN(text))
	if id == nil {
		return nil
	}
	var message struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	message.Version, message.ID = "2.0", id
	message.Error.Code = parseError
	message.Error.Message = fmt.Sprintf("its answer is not JSON: %v; NaN and Infinity, for example, have no place in it", fault)
	answer, err := json.Marshal(&message)
	if err != nil {
		return nil // an id that is none
	}
	return append(answer, '\n')
}

// answered is the id of the request that a message answers, as far as that can be
// read; nil: it cannot, or the message is no answer.
func answered(text []byte) (id json.RawMessage) {
	in := json.NewDecoder(bytes.NewReader(text))
	if t, err := in.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	result := false
	for in.More() {
		key, err := in.Token()
		if err != nil {
			break
		}
		switch key {
		case "method":
			return nil
		case "result", "error":
			result = true
		}
		var value json.RawMessage
		if in.Decode(&value) != nil {
			break
		}
		if key == "id" && len(value) > 0 && (value[0] == '"' || value[0] == '-' || value[0] >= '0' && value[0] <= '9') {
			id = value
		}
	}
	if !result {
		return nil
	}
	return id
}

// withoutNaN has null in the place of NaN and Infinity, which Python writes for
// numbers that JSON does not have: so that what stands behind them can be read.
func withoutNaN(text []byte) []byte {
	out := make([]byte, 0, len(text))
	quoted := false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quoted && c == '\\' && i+1 < len(text):
			out = append(out, c)
			i++
			c = text[i]
		case c == '"':
			quoted = !quoted
		case quoted:
		default:
			if n := notANumber(text[i:]); n > 0 {
				out = append(out, "null"...)
				i += n - 1
				continue
			}
		}
		out = append(out, c)
	}
	return out
}

// notANumber is how long the NaN or Infinity is that a text begins with.
func notANumber(text []byte) int {
	for _, name := range []string{"NaN", "-NaN", "Infinity", "-Infinity"} {
		if bytes.HasPrefix(text, []byte(name)) {
			return len(name)
		}
	}
	return 0
}
