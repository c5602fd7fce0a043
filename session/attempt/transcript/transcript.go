// Package transcript reads what coding agents print in their structured formats, Claude Code's
// --output-format stream-json, Codex's exec --json and OpenCode's run --format json, into messages for
// people and agents, and into the usage that the agents report.
package transcript

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"
)

// Kind is the kind of a Message.
type Kind string

// The kinds of messages.
const (
	Said      Kind = "message"     // what the agent says to its user
	Reasoning Kind = "reasoning"   // what the agent thinks
	Call      Kind = "tool_call"   // a tool call; Text has the arguments
	Result    Kind = "tool_result" // the result of a call
	Failure   Kind = "error"       // an error or a warning that the agent reports
	Output    Kind = "output"      // any other line: plain text, an incomplete line, an unknown event
)

// A Message is one message of a transcript.
type Message struct {
	Kind   Kind
	Text   string // valid UTF-8, at most MaxText bytes
	Cut    bool   // the end of Text was cut off
	Tool   string // for a Call, the name of the tool
	CallID string // for a Call and its Result; unique within one run of an agent
	Parent string // CallID of the call whose subagent this message is from
	Failed bool   // for a Result: the call failed
}

const (
	// MaxText is the maximum length of a message's text in bytes.
	MaxText = 16 << 10
	// MaxLine is the maximum length of a line in bytes; of a longer one only the beginning is kept.
	MaxLine = 1 << 20
)

// A Reader reads the lines of an agent's standard output, in order. It stores at most one line and what Usage
// needs, which is bounded. Its zero value is ready. Only one goroutine may use it.
type Reader struct {
	// Split is the length in bytes at which callers of Line split longer lines into pieces, never within a
	// character; 0 means never.
	Split int

	held []byte // the pieces of a line so far
	long bool   // pieces of held were dropped

	claude   claudeUsage
	codex    codexUsage
	openCode openCodeUsage

	conversation string
	answer, said []byte // the program's answer, and the last message; at most MaxLine bytes
	more         bool   // the last event was part of the answer

	failure  string // the last error, "" once the agent went on
	rejected string // the last report of Claude Code on its limits, if it had to stop
}

// Failure returns the last error that the program reported, unless the agent spoke after it, or "". For
// OpenCode it has the whole event, whose details say more; for Claude Code it has the report on its limits.
func (r *Reader) Failure() string {
	if r.failure == "" {
		return ""
	}
	return strings.TrimSpace(r.failure + "\n" + r.rejected)
}

// Conversation returns the program's name for the conversation, by which it can be continued, or "" if
// unknown. Claude Code, Cursor and Gemini call it session_id, OpenCode sessionID, Codex thread_id.
func (r *Reader) Conversation() string { return r.conversation }

// isName reports whether a name may be passed as an argument of a command.
func isName(name string) bool {
	other := func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r == '_' || r == '-')
	}
	return name != "" && len(name) <= 200 && name[0] != '-' && !strings.ContainsFunc(name, other)
}

// Line reads one line, or a piece of one, and calls give with its messages. It accepts any bytes and does not
// keep line.
func (r *Reader) Line(line []byte, give func(Message)) {
	piece := r.Split > 0 && len(line) > r.Split-utf8.UTFMax // or just shorter: not split within a character
	if len(r.held) == 0 && (!piece || complete(line)) {
		r.whole(line, give)
		return
	}
	if len(r.held)+len(line) > MaxLine {
		line, r.long = line[:MaxLine-len(r.held)], true
	}
	r.held = append(r.held, line...)
	if !piece || !r.long && complete(r.held) {
		r.End(give)
	}
}

// complete reports whether a line is a whole event.
func complete(line []byte) bool { return bytes.HasSuffix(line, []byte("}")) && json.Valid(line) }

// Open reports whether the last line is incomplete.
func (r *Reader) Open() bool { return len(r.held) > 0 }

// End reads an incomplete last line. The Reader is then ready for more lines.
func (r *Reader) End(give func(Message)) {
	if len(r.held) > 0 {
		if r.long {
			give(message(Output, string(r.held[:MaxText+1])))
		} else {
			r.whole(r.held, give)
		}
	}
	r.held, r.long = nil, false
}

// whole reads a whole line.
func (r *Reader) whole(line []byte, give func(Message)) {
	text := bytes.TrimSpace(line)
	if len(text) == 0 {
		return
	}
	e := event{line: text}
	known := len(text) <= MaxLine && text[0] == '{' && decode(text, &e)

	if name := cmp.Or(e.SessionID, e.OpenCodeID, e.ThreadID); isName(name) {
		r.conversation = name
	}
	r.addAnswer(&e)

	all := give
	give = func(m Message) {
		if m.Kind == Said && m.Parent == "" && strings.TrimSpace(m.Text) != "" {
			r.said, r.failure = append(r.said[:0], m.Text...), ""
		}
		if m.Kind == Failure {
			r.failure = m.Text
		}
		all(m)
	}
	if !known || !r.claudeEvent(&e, give) && !r.codexEvent(&e, give) && !r.openCodeEvent(&e, give) {
		give(message(Output, string(text[:min(len(text), MaxText+1)])))
	}
}

// An event is one line of any of the formats.
type event struct {
	Type  string          `json:"type"`
	Usage json.RawMessage `json:"usage"`
	line  []byte

	SessionID  string `json:"session_id"`
	OpenCodeID string `json:"sessionID"`

	// Claude Code
	Message    *claudeMessage        `json:"message"` // a text in Codex's errors
	Parent     string                `json:"parent_tool_use_id"`
	Subtype    string                `json:"subtype"`
	IsError    bool                  `json:"is_error"`
	Result     string                `json:"result"`
	Errors     []string              `json:"errors"`
	NumTurns   int64                 `json:"num_turns"`
	USD        *float64              `json:"total_cost_usd"`
	ModelUsage map[string]modelUsage `json:"modelUsage"`
	Since      map[string]modelUsage `json:"model_usage_since_last_result"`
	RateLimit  struct {
		Status       string `json:"status"`
		UsingOverage bool   `json:"isUsingOverage"`
	} `json:"rate_limit_info"`

	// Codex
	ThreadID string     `json:"thread_id"`
	Item     *codexItem `json:"item"`
	Error    struct {
		Message string `json:"message"`
	} `json:"error"`

	// OpenCode
	Part *openCodePart `json:"part"`

	// Gemini
	Role     string `json:"role"`
	Content  string `json:"content"`
	Delta    bool   `json:"delta"`
	Response string `json:"response"`
}

// decode decodes JSON as far as its values have the expected types. It reports false if it is not JSON.
func decode(data []byte, to any) bool {
	err := json.Unmarshal(data, to)
	_, other := errors.AsType[*json.UnmarshalTypeError](err)
	return err == nil || other
}

// message returns a message with a text that may be too long or not UTF-8.
func message(kind Kind, text string) Message {
	m := Message{Kind: kind}
	if m.Cut = len(text) > MaxText; m.Cut {
		text = text[:MaxText]
		for i := 1; i < utf8.UTFMax && i < len(text); i++ { // not within a character
			if tail := text[len(text)-i:]; utf8.RuneStart(tail[0]) {
				if !utf8.FullRuneInString(tail) {
					text = text[:len(text)-i]
				}
				break
			}
		}
	}
	m.Text = strings.ToValidUTF8(text, "?")
	return m
}

// An Argument is an argument of a tool call.
type Argument struct{ Name, Value string }

// Arguments returns the arguments of a tool call, sorted by name, or nil if the text is not a JSON object.
func Arguments(text string) (all []Argument) {
	var given map[string]any
	if json.Unmarshal([]byte(text), &given) != nil {
		return nil
	}
	for name, value := range given {
		s, ok := value.(string)
		if !ok {
			data, _ := json.Marshal(value) // it was decoded from JSON
			s = string(data)
		}
		all = append(all, Argument{name, s})
	}
	slices.SortFunc(all, func(a, b Argument) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// summaryArguments are the arguments that best say what a call does, best first.
var summaryArguments = []string{"description", "command", "file_path", "path", "pattern", "query", "url", "prompt"}

// Gist says in one line what a tool call does.
func Gist(text string) string {
	all := Arguments(text)
	for _, name := range summaryArguments {
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

// Answer returns the final message so far: the program's own answer, if it prints the events of a known
// executor (Claude Code, Codex, OpenCode, Cursor, Gemini), otherwise the last message to its user, for
// example if Claude Code ended without a result; "" without either.
func (r *Reader) Answer() string { return cmp.Or(string(r.answer), string(r.said)) }

// addAnswer adds the part of the answer in an event.
func (r *Reader) addAnswer(e *event) {
	words, part := e.words()
	if words != "" && !(part && r.more) {
		r.answer = r.answer[:0]
	}
	r.more = part && words != ""
	r.answer = append(r.answer, words[:min(len(words), MaxLine-len(r.answer))]...)
}

// words returns the message to the user in an event, and whether more of it may follow.
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

// Answer returns the final message in everything that a program wrote to its standard output, like
// Reader.Answer, but returns a "result" as the whole event, which says whether it failed. If the program
// printed anything else, it returns all of that: an event in the text of a file that a program quotes is not
// the answer.
func Answer(stdout []byte) []byte {
	var result, other []byte
	var r Reader
	var last event
	for line := range bytes.Lines(stdout) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}

		last = event{}
		decode(line, &last) // what is not JSON is not an event
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
