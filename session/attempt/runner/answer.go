package runner

import (
	"bytes"
	"encoding/json"

	"deepwork/session/attempt/transcript"
)

// Answer returns the final message in all that a program wrote to its standard output: its own answer
// or, without one, the last message of its transcript, if it printed the events of a known executor. A
// "result" is returned as the event, which says whether it failed. Of a program that printed anything
// else, it returns all of that: an event which a file has as its text, and a program quotes, is not
// its answer.
func Answer(stdout []byte) []byte {
	var answer, said, other []byte
	var reader transcript.Reader
	var event, more bool // whether the last line was an event, and part of the answer
	for line := range bytes.Lines(stdout) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var e map[string]any
		_ = json.Unmarshal(line, &e) // what is not JSON is no event
		kind, _ := e["type"].(string)
		if event = kind != ""; !event {
			other = append(other, line...)
			continue
		}
		words, part := wordsOf(e)
		if kind == "result" && (words != "" || e["is_error"] == true) {
			words = string(line)
		}
		if words != "" && !(part && more) {
			answer = nil
		}
		more = part && words != ""
		answer = append(answer, words...)
		reader.Line(line, func(m transcript.Message) {
			if m.Kind == transcript.Said && m.Parent == "" {
				said = []byte(m.Text)
			}
		})
	}
	switch {
	case !event, bytes.Contains(other, []byte(`"passed"`)):
	case len(answer) > 0:
		return answer
	case len(said) > 0:
		return said
	}
	return stdout
}
