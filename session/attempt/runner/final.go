package runner

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"deepwork/actor/process"
	"deepwork/session/attempt/transcript"
)

// MaxFinal is the longest final message in characters; a longer one is cut at the end.
const MaxFinal = 4000

// maxEvent is the longest line, in bytes, that is searched for a program's own final message.
const maxEvent = 1 << 20

// maxStderr is the length in bytes of the last lines on stderr that an Exit has.
const maxStderr = 2000

// A summary is what an Exit says of a program's lines: its final message, its last lines on stderr, and
// its usage. Its memory is bounded.
type summary struct {
	final  final
	stderr []byte // at most 2*MaxLine and a line
	reader transcript.Reader
}

func newSummary() *summary { return &summary{reader: transcript.Reader{Split: MaxLine}} }

// line takes one line, or one piece of a line, of a stream.
func (s *summary) line(stream string, text []byte) {
	s.final.line(stream, text)
	switch stream {
	case Stdout:
		s.reader.Line(text, s.final.hear)
	case Stderr:
		if s.stderr = append(append(s.stderr, text...), '\n'); len(s.stderr) > 2*MaxLine {
			s.stderr = append(s.stderr[:0], s.stderr[len(s.stderr)-2*maxStderr:]...)
		}
	}
}

// put completes an Exit.
func (s *summary) put(e *Exit) {
	s.reader.End(s.final.hear)
	e.FinalMessage, e.Stderr, e.Usage = s.final.message(), process.Tail(string(s.stderr), maxStderr), s.reader.Usage()
	e.Conversation = s.reader.Conversation()
}

// A final extracts the final message from a program's lines: the program's own answer, if it prints
// the JSON of a known executor (Claude Code and Cursor's "result", Codex's "agent_message",
// Gemini's "response" and assistant messages, OpenCode's "text"), otherwise the last message that its
// transcript has, as of Claude Code that ended without a "result", otherwise its last line that is not
// blank, preferring stdout to stderr. Its memory is bounded.
type final struct {
	out, err []byte // the last lines that are not blank
	answer   []byte // the program's own answer
	said     []byte // the last message of its transcript
	more     bool   // the last event was a part of the answer
	long     []byte // the pieces of a line that was split
}

// line takes one line, or one piece of a line, of a stream.
func (f *final) line(stream string, text []byte) {
	switch stream {
	case Stdout:
		f.event(text)
		keep(&f.out, text)
	case Stderr:
		keep(&f.err, text)
	}
}

// hear takes a message of the transcript.
func (f *final) hear(m transcript.Message) {
	if m.Kind == transcript.Said && m.Parent == "" {
		keep(&f.said, []byte(m.Text))
	}
}

// event searches a line for an answer. A piece of the maximum length is taken for the beginning of
// a longer line.
func (f *final) event(text []byte) {
	if len(f.long) > 0 || len(text) > MaxLine-utf8.UTFMax {
		if len(f.long)+len(text) <= maxEvent {
			f.long = append(f.long, text...)
		}
		if len(text) > MaxLine-utf8.UTFMax {
			return
		}
		text, f.long = f.long, nil
	}
	var e map[string]any
	if text = bytes.TrimSpace(text); !bytes.HasPrefix(text, []byte("{")) || json.Unmarshal(text, &e) != nil {
		return
	}
	words, part := wordsOf(e)
	if !(part && f.more) && words != "" {
		f.answer = f.answer[:0]
	}
	f.more = part && words != ""
	if len(f.answer) < utf8.UTFMax*MaxFinal {
		f.answer = append(f.answer, words...)
	}
}

// wordsOf returns the message to the user in an event, and whether more may follow.
func wordsOf(e map[string]any) (words string, part bool) {
	item, _ := e["item"].(map[string]any)
	inner, _ := e["part"].(map[string]any)
	var said any
	switch e["type"] {
	case "result": // Claude Code, Cursor: {"type":"result","result":"…"}
		said = e["result"]
	case "item.completed": // Codex: {"type":"item.completed","item":{"type":"agent_message","text":"…"}}
		if item["type"] == "agent_message" {
			said = item["text"]
		}
	case "text": // OpenCode: {"type":"text","part":{"type":"text","text":"…"}}
		if inner["type"] == "text" {
			said = inner["text"]
		}
	case "message": // Gemini, stream-json: {"type":"message","role":"assistant","content":"…","delta":true}
		if e["role"] == "assistant" {
			said, part = e["content"], e["delta"] == true
		}
	case nil: // Gemini, json
		said = e["response"]
	}
	words, _ = said.(string)
	return words, part
}

// message returns the final message.
func (f *final) message() string {
	for _, found := range [][]byte{f.answer, f.said, f.out, f.err} {
		if text := clip(found); text != "" {
			return text
		}
	}
	return ""
}

// keep makes a line the last one, unless it is blank.
func keep(last *[]byte, line []byte) {
	if len(bytes.TrimSpace(line)) > 0 {
		*last = append((*last)[:0], line[:min(len(line), utf8.UTFMax*MaxFinal+utf8.UTFMax)]...)
	}
}

// clip makes a text displayable: valid UTF-8, trimmed, and not too long.
func clip(text []byte) string {
	s := []rune(strings.TrimSpace(string(bytes.ToValidUTF8(text, []byte(string(utf8.RuneError))))))
	return strings.TrimSpace(string(s[:min(len(s), MaxFinal)]))
}
