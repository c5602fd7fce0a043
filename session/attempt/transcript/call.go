package transcript

import (
	"encoding/json"
	"slices"
	"strings"
)

// An Argument is one of a tool call.
type Argument struct{ Name, Value string }

// Arguments returns those of a tool call, in the order of their names, or nil if the text has other JSON.
func Arguments(text string) (all []Argument) {
	var given map[string]any
	if json.Unmarshal([]byte(text), &given) != nil {
		return nil
	}
	for name, value := range given {
		s, is := value.(string)
		if !is {
			data, _ := json.Marshal(value) // it was decoded from JSON
			s = string(data)
		}
		all = append(all, Argument{name, s})
	}
	slices.SortFunc(all, func(a, b Argument) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// telling are the arguments that say best what a call does, the best first.
var telling = []string{"description", "command", "file_path", "path", "pattern", "query", "url", "prompt"}

// Gist returns what a tool call does in one line.
func Gist(text string) string {
	all := Arguments(text)
	for _, name := range telling {
		if i := slices.IndexFunc(all, func(a Argument) bool { return a.Name == name }); i >= 0 {
			line, _, _ := strings.Cut(strings.TrimSpace(all[i].Value), "\n")
			return line
		}
	}
	if len(all) > 0 {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
