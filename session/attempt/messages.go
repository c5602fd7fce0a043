package attempt

import (
	"time"

	"deepwork/session/attempt/runner"
	"deepwork/session/attempt/transcript"
)

// A Message is one message of the output of an attempt's agents.
type Message struct {
	Index  int64     `json:"index" jsonschema:"number of its last line of output; several messages may be of one line"`
	Time   time.Time `json:"time" jsonschema:"when it was written, RFC 3339"`
	Kind   string    `json:"kind" jsonschema:"message (what the agent says), reasoning, tool_call, tool_result, error, output (any other line), stderr, or system for messages of deepwork"`
	Text   string    `json:"text" jsonschema:"its text, or the arguments of a tool_call"`
	Cut    bool      `json:"cut" jsonschema:"whether the end of the text was left out, which raw has"`
	Tool   string    `json:"tool" jsonschema:"name of the tool of a tool_call, or empty"`
	CallID string    `json:"call" jsonschema:"the same text for a tool_call and its tool_result, or empty"`
	Parent string    `json:"parent_call" jsonschema:"call of the tool_call whose subagent this is from, or empty"`
	Failed bool      `json:"failed" jsonschema:"whether it is the tool_result of a call that failed"`
}

// linePieces is the number of entries that the longest line of a transcript has.
const linePieces = transcript.MaxLine / runner.MaxLine

// messagesOf returns the messages of entries, of no more than most of them or the end of a line that
// began there, and the index of the last entry that it read. The beginning of a line whose end is not
// among the entries is left for the next call, unless ended is set or it is longer than any.
func messagesOf(entries []runner.Entry, most int, ended bool) (all []Message, next int64) {
	reader := transcript.Reader{Split: runner.MaxLine}
	begin := 0 // of the line that is open
	for i, x := range entries {
		if i >= most && !reader.Open() {
			break
		}
		give := func(m transcript.Message) {
			all = append(all, Message{Index: x.Index, Time: x.Time, Kind: string(m.Kind), Text: m.Text, Cut: m.Cut,
				Tool: m.Tool, CallID: m.CallID, Parent: m.Parent, Failed: m.Failed})
		}
		switch x.Stream {
		case runner.Stdout:
			if !reader.Open() {
				begin = i
			}
			reader.Line([]byte(x.Text), give)
		case runner.System: // no line of one run ends in another
			reader.End(give)
			fallthrough
		default:
			give(transcript.Message{Kind: transcript.Kind(x.Stream), Text: x.Text})
		}
		next = x.Index
		if i+1 == len(entries) && (ended || i+1-begin >= linePieces) {
			reader.End(give)
		}
	}
	if reader.Open() {
		next = entries[begin].Index - 1
		for len(all) > 0 && all[len(all)-1].Index > next {
			all = all[:len(all)-1]
		}
	}
	return all, next
}
