package transcript

import (
	"bytes"
	"cmp"
)

// Answer returns the final message so far: the program's own answer, if it prints the events of a known
// executor (Claude Code, Codex, OpenCode, Cursor, Gemini), otherwise the last message to its user, as of
// Claude Code that ended without a result; "" without either.
func (r *Reader) Answer() string { return cmp.Or(string(r.answer), string(r.said)) }

// hear takes the part of the answer that an event has.
func (r *Reader) hear(e *event) {
	words, part := e.words()
	if words != "" && !(part && r.more) {
		r.answer = r.answer[:0]
	}
	r.more = part && words != ""
	r.answer = append(r.answer, words[:min(len(words), MaxLine-len(r.answer))]...)
}

// words returns the message to the user in an event, and whether more may follow.
func (e *event) words() (words string, part bool) {
	switch {
	case e.Type == "result": // Claude Code, Cursor
		return e.Result, false
	case e.Type == "item.completed" && e.Item != nil && e.Item.Type == "agent_message": // Codex
		return e.Item.Text, false
	case e.Type == "text" && e.Part != nil: // OpenCode
		return e.Part.Text, false
	case e.Type == "message" && e.Role == "assistant": // Gemini, stream-json
		return e.Content, e.Delta
	case e.Type == "": // Gemini, json
		return e.Response, false
	}
	return "", false
}

// Answer returns the final message in all that a program wrote to its standard output, as
// Reader.Answer, but a "result" is returned as the event, which says whether it failed. Of a program
// that printed anything else, it returns all of that: an event which a file has as its text, and a
// program quotes, is not its answer.
func Answer(stdout []byte) []byte {
	var result, other []byte
	var r Reader
	var last event
	for line := range bytes.Lines(stdout) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		last = event{}
		decode(line, &last) // what is not JSON is no event
		if last.Type == "" {
			other = append(other, line...)
			continue
		}
		if last.Type == "result" && (last.Result != "" || last.IsError) {
			result = line
		}
		r.Line(line, func(Message) {})
	}
	switch {
	case last.Type == "", bytes.Contains(other, []byte(`"passed"`)):
	case result != nil:
		return result
	case r.Answer() != "":
		return []byte(r.Answer())
	}
	return stdout
}
