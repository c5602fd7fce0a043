package workflow

import (
	"encoding/json"
	"fmt"
)

// Outputs maps an output's name to its value, in the author's order.
type Outputs = OrderedMap[OutputValue]

// An OutputValue is one path, or a list of paths, as submitted.
type OutputValue struct {
	Paths []string
	List  bool
}

// MarshalJSON gives a string, or an array of strings.
func (v OutputValue) MarshalJSON() ([]byte, error) {
	if !v.List {
		if len(v.Paths) != 1 {
			return nil, fmt.Errorf("a file output has %d paths", len(v.Paths))
		}
		return marshal(v.Paths[0])
	}
	if v.Paths == nil {
		return []byte("[]"), nil
	}
	return marshal(v.Paths)
}

// UnmarshalJSON reads a string, or an array of strings.
func (v *OutputValue) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		v.List, v.Paths = false, make([]string, 1)
		return json.Unmarshal(data, &v.Paths[0])
	}
	v.List = true
	return json.Unmarshal(data, &v.Paths)
}
