package tool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog/cursor"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/remote"
	"deepwork/session/store"
)

// MaxReplyBytes is the maximum size of a reply as JSON; it is sent twice, as text and as structured
// content. Replies that can be large are bounded where they are made: lists have pages, agent
// output and diffs have limits, get_workflows reports what it leaves out, and a step or group whose
// instructions exceed their bound does not start. This limit is for all others, such as the result
// of another system's workflow.
const MaxReplyBytes = 8 << 20

// accepted encodes a reply once, in the order of its fields: as structured content, and the same
// bytes as the only text block, unless the reply has a TextValue. A reply with large parts that are
// already encoded has an EncodeJSON, which does not scan them again.
func accepted(reply any) (*mcp.CallToolResult, error) {
	var data []byte
	var err error
	if large, ok := reply.(interface{ EncodeJSON() ([]byte, error) }); ok {
		data, err = large.EncodeJSON()
	} else {
		data, err = jsontext.Encode(reply)
	}
	if err != nil {
		return nil, err
	}
	text := data
	if other, ok := reply.(interface{ TextValue() any }); ok {
		if text, err = jsontext.Encode(other.TextValue()); err != nil {
			return nil, err
		}
	}
	return &mcp.CallToolResult{
		Meta:              waiting(labelled(nil, reply), reply),
		Content:           []mcp.Content{&mcp.TextContent{Text: string(text)}},
		StructuredContent: json.RawMessage(data),
	}, nil
}

// tooLarge returns the error for a reply of n bytes of a call that was executed. The reply is not
// shortened, since nobody could see what is missing.
func (s *Set) tooLarge(tool string, n int, reply any) *session.Error {
	x := ExecutionOf(reply)
	what, next := "was executed, but its reply is too large to send", s.retryAdvice(tool)
	switch t := s.tools[tool]; {
	case t.Hints.ReadOnly:
		what = "has a reply that is too large to send"
		next = t.Smaller
		next = cmp.Or(next, "ask for less, if "+tool+
			" has an argument for that, or read the files of the project yourself.")
	case x != nil:
		next = fmt.Sprintf("execution %s is %s, and its result is at its source: get it there. "+
			"Calling %s again runs the workflow again; first have it return a reference instead of a large result.",
			x.ExecutionID, x.State, tool)
	case s.howToFindOut(tool) == SeeExecution:
		next = "the execution ended, and its result is at its source: get it there. Calling " + tool +
			" again runs the workflow again; first have it return a reference instead of a large result."
	}
	e := session.NotNow(codes.ReplyTooLarge,
		"%s %s: it has %d bytes of JSON, and at most %d are sent. What to do now: %s", tool, what, n,
		MaxReplyBytes, next).
		With("bytes", n).With("max", MaxReplyBytes).Because(fmt.Errorf("the reply is too large: %d bytes", n))
	if x != nil {
		e = e.With("execution_id", x.ExecutionID)
	}
	return e
}

// labelled adds the name of the source to meta if the reply is an execution, so that programs know
// whose words the reply has.
func labelled(meta mcp.Meta, reply any) mcp.Meta {
	x := ExecutionOf(reply)
	if x == nil {
		return meta
	}
	if meta == nil {
		meta = mcp.Meta{}
	}
	meta[SourceMeta] = x.Source
	return meta
}

// ExecutionOf returns the execution that a reply describes, or nil.
func ExecutionOf(reply any) *remote.Run {
	if called, ok := reply.(*any); ok { // of call_workflow_tool
		reply = *called
	}
	x, _ := reply.(*remote.Run)
	return x
}

const (
	// ErrorChars is the maximum length of the text of a refused call.
	ErrorChars = 8000
	// errorMetaBytes bounds the values for programs that accompany it.
	errorMetaBytes = 16 << 10
	// ErrorMeta is their key in `_meta`.
	ErrorMeta = "deepwork/error"
	// SourceMeta is the key in `_meta` of the source that a result, or an error, comes from.
	SourceMeta = "deepwork/source"
	// WaitingMeta is the key in `_meta` of why the caller can only wait or call again, and after how
	// many milliseconds: {code, retry_after_ms}.
	WaitingMeta = "deepwork/waiting"
)

// ErrStopping is the cause of contexts of calls that are cancelled because the server ends.
var ErrStopping = errors.New("the server is stopping")

// refused returns the result of a refused call: one text block that begins with the kind, and the
// code for programs in `_meta`. It has no structured content, since clients check that against the
// output schema.
func refused(e *session.Error) *mcp.CallToolResult {
	meta, room := map[string]any{}, errorMetaBytes
	for k, v := range e.Details {
		data, err := json.Marshal(v)
		if err != nil || len(data) > errorMetaBytes/2 {
			meta["details_omitted"] = true
			continue
		}
		meta[k], room = v, room-len(data)
	}
	if room < 0 {
		meta = map[string]any{"details_omitted": true}
	}
	meta["type"], meta["code"] = string(e.Kind), e.Code
	var next []session.Step
	for _, s := range e.Steps {
		if s.Do != "" { // else it is only in the text
			next = append(next, session.Step{Do: s.Do, Tool: s.Tool, Args: s.Args})
		}
	}
	if next != nil {
		meta["next"] = next
	}
	return &mcp.CallToolResult{
		Meta:    waiting(labelled(mcp.Meta{ErrorMeta: meta}, e.Details["run"]), e),
		Content: []mcp.Content{&mcp.TextContent{Text: bounded(e.Error(), ErrorChars)}},
		IsError: true,
	}
}

// waiting notes in meta that the caller can only wait or call again, if of says so.
func waiting(meta mcp.Meta, of any) mcp.Meta {
	if w, ok := of.(interface{ Waiting() *session.Waiting }); ok && w.Waiting() != nil {
		if meta == nil {
			meta = mcp.Meta{}
		}
		meta[WaitingMeta] = w.Waiting()
	}
	return meta
}

// passing are the codes of errors that are not about the call but about the present state of the server or its store.
var passing = []string{codes.Stopping, codes.ConfigInvalid, codes.Internal, codes.RestartNeeded, codes.SessionUncertain,
	codes.NotSaved, codes.SessionUnreadable, codes.RunsUnread}

// IsTemporary reports whether a result only asks for the call to be repeated, or says that the server cannot be used
// now.
func IsTemporary(res *mcp.CallToolResult) bool {
	of, _ := res.Meta[ErrorMeta].(map[string]any)
	code, _ := of["code"].(string)
	return res.Meta[WaitingMeta] != nil || slices.Contains(passing, code)
}

// broken returns the result of a call that failed because of an internal error.
func (s *Set) broken(tool string) *mcp.CallToolResult {
	return refused(session.Wrong(codes.Internal,
		"%s failed because of an error in the server, not in your arguments; the log has the details. What to do "+
			"now: %s", tool, s.retryAdvice(tool)))
}

// failed returns the result of a call whose handler returned an error, and notes it for the log.
func (s *Set) failed(ctx context.Context, l *CallLog, err error) (*mcp.CallToolResult, error) {
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))) {
		if errors.Is(context.Cause(ctx), ErrStopping) {
			l.outcome = "stopping"
			return refused(session.NotNow(codes.Stopping, "The server is stopping, and %s was interrupted. "+
				"Everything confirmed before is saved. Connect again; %s", l.Tool, s.retryAdvice(l.Tool))), nil
		}
		l.outcome = "cancelled"
		return nil, context.Canceled
	}
	if e, ok := errors.AsType[*session.Error](store.Refused(err)); ok {
		l.outcome = e.Code
		if e.Err != nil {
			l.failed(slog.LevelWarn, slog.Any("error", e.Err))
		}
		return refused(e), nil
	}
	l.outcome = "internal"
	l.failed(slog.LevelError, slog.Any("error", err))
	return s.broken(l.Tool), nil
}

// bounded cuts a text to max characters. It cuts the middle, since the beginning says what is wrong
// and the end what to do.
func bounded(text string, max int) string {
	n := utf8.RuneCountInString(text)
	if n <= max {
		return text
	}

	note := func(cut int) string { return fmt.Sprintf("\n[… %d characters cut …]\n", cut) }
	keep := max - utf8.RuneCountInString(note(n))
	runes := []rune(text)
	head := keep * 3 / 4
	tail := keep - head
	return string(runes[:head]) + note(n-keep) + string(runes[n-tail:])
}

// errorKind returns the kind of a failed call for the metrics, or "".
func errorKind(outcome string, res *mcp.CallToolResult, err error) string {
	switch {
	case outcome == "panic" || outcome == "internal":
		return "broken"
	case err != nil:
		return "cancelled"
	case res != nil && res.IsError:
		return "refused"
	}
	return ""
}

// SeeExecution is the Recheck of tools that start a workflow of another system.
const SeeExecution = "check whether the workflow was started: call workflow_status with its execution_id if you know " +
	"it, otherwise look at its source"

// howToFindOut returns how to find out what a call of a tool did. Tools that are not
// registered are workflows of other systems.
func (s *Set) howToFindOut(tool string) string {
	if t, registered := s.tools[tool]; registered {
		return t.Recheck
	}
	return SeeExecution
}

// retryAdvice ends a sentence about the outcome of a call.
func (s *Set) retryAdvice(tool string) string {
	if s.tools[tool].Hints.ReadOnly {
		return "it changes nothing, so call " + tool + " again."
	}
	return "before you call " + tool + " again, " + s.howToFindOut(tool) + "."
}

// OneLine makes text from a file fit on one line, in at most max bytes.
func OneLine(text string, max int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " ")
	if len(text) <= max {
		return text
	}

	cut := max - len("…")
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

// Plain removes invisible characters from a source's text, which could hide something from its
// reader: control characters other than line breaks and tabs, and formatting characters.
func Plain(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\u200c' || r == '\u200d': // the last two are part of words
			return r
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

// Workflows is the list of workflows, whose cursors hold the last entry of a page. The
// text distinguishes them from the SDK's.
const Workflows cursor.List = "workflow:"

// CursorArgument decodes the argument cursor, which may be nil. next is the field of
// replies that it is taken from.
func CursorArgument(cursor *string, next string) (last string, given bool, err error) {
	if cursor == nil {
		return "", false, nil
	}
	if last, given = Workflows.Decode(*cursor); !given {
		shown := jsontext.Clip(*cursor, 100)
		return "", false, session.Wrong(codes.InvalidArgument,
			"Argument \"cursor\" is %q, which is not a cursor of this list: pass %s of the previous reply, or leave "+
				"it out.", shown, next).
			With("argument", "cursor").With("value", shown)
	}
	return last, true, nil
}

// ProgressWords returns the message for a waiting caller (seed 003, 7.3).
func ProgressWords(now *remote.Run) string {
	var b strings.Builder
	fmt.Fprintf(&b, "execution_id %s: ", now.ExecutionID)
	p := now.Progress
	if p == nil || p.Value == nil && p.Message == "" {
		return b.String() + string(now.State)
	}
	if p.Value != nil {
		b.WriteString(number(*p.Value))
		if p.Total != nil {
			b.WriteString(" of " + number(*p.Total))
		}
		if p.Message != "" {
			b.WriteString(", ")
		}
	}

	return b.String() + Plain(p.Message)
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', 6, 64) }
