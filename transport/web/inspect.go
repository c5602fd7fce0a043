package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"deepwork/catalog/jsontext"
	"deepwork/transport/wire"
)

// inspect counts the messages in the body of an HTTP request (more than one in a batch, which older
// protocol versions allow) and returns a fault that the SDK would accept, if there is one: text
// after the first message, which would be lost; an id that is not a whole number, which would be
// truncated to another one; and, in a batch, a duplicate id, whose call may be executed and never
// answered. The SDK reports all other faults.
func inspect(body []byte) (n int, fault string) {
	body = bytes.TrimSpace(body)
	messages := []json.RawMessage{body}
	batch := bytes.HasPrefix(body, []byte("["))
	if batch {
		var err error
		if messages, n, err = wire.SplitBatch(body); n > wire.MaxBatch {
			return 0, fmt.Sprintf("a batch of %d messages; at most %d are taken", n, wire.MaxBatch)
		} else if err != nil {
			return 0, ""
		}
	} else if len(body) == 0 {
		return 0, ""
	}
	seen := map[jsonrpc.ID]bool{}
	for _, message := range messages {
		var fields map[string]json.RawMessage // names are case-sensitive, unlike those of a struct
		if err := json.Unmarshal(message, &fields); err != nil {
			if _, other := errors.AsType[*json.UnmarshalTypeError](err); other {
				return 0, ""
			}
			return 0, "malformed payload: the body is not one JSON value"
		}
		id, err := wire.DecodeID(fields["id"])
		switch {
		case err != nil:
			return 0, fmt.Sprintf("malformed payload: %v", err)
		case !id.IsValid() || fields["method"] == nil:
		case seen[id]:
			return 0, fmt.Sprintf("two requests of the batch have the id %s", jsontext.Clip(string(fields["id"]), 100))
		default:
			seen[id] = true
		}
	}
	return len(messages), ""
}
