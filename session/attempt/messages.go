package attempt

import (
	"context"
	"slices"
	"time"

	"deepwork/catalog/jsontext"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/runner"
	"deepwork/session/attempt/transcript"
	"deepwork/session/board"
	"deepwork/session/codes"
)

// A Message is one message in the output of an attempt's agents.
type Message struct {
	Index  int64     `json:"index"`
	Time   time.Time `json:"time" jsonschema:"when it was written, RFC 3339"`
	Kind   string    `json:"kind"`
	Text   string    `json:"text" jsonschema:"its text, or the arguments of a tool_call"`
	Cut    bool      `json:"cut" jsonschema:"whether the end of the text was left out; raw has all of it"`
	Tool   string    `json:"tool" jsonschema:"name of the tool of a tool_call, or empty"`
	CallID string    `json:"call" jsonschema:"id that a tool_call shares with its tool_result, or empty"`
	Parent string    `json:"parent_call" jsonschema:"call of the tool_call whose subagent this is from, or empty"`
	Failed bool      `json:"failed" jsonschema:"whether it is the tool_result of a call that failed"`
}

// Tags implements fieldtag.Tagger.
func (Message) Tags() map[string]string {
	return map[string]string{
		"Index": `jsonschema:"number of its last line of output; several messages may come from one line"`,
		"Kind": `jsonschema:"message (what the agent says), reasoning, tool_call, tool_result, error, output (any ` +
			`other line), stderr, or system for messages of deepwork"`,
	}
}

// linePieces is the maximum number of entries of one transcript line.
const linePieces = transcript.MaxLine / runner.MaxLine

// messagesOf returns the messages of at most most entries, or up to the end of a line that began there, and
// the index of the last entry that it read. A line whose end is not among the entries is left for the next
// call, unless ended is set or the line is too long.
func messagesOf(entries []runner.Entry, most int, ended bool) (all []Message, next int64) {
	reader := transcript.Reader{Split: runner.MaxLine}
	begin := 0 // where the incomplete line begins
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
		case runner.System: // lines do not continue in the next run
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

// A logPart is the part of a log that one execution wrote.
type logPart struct {
	log   logRef // the log of the attempt, or of an agent of a run
	state task.AttemptState
	began *time.Time // nil means that nothing precedes it, or that an index excludes that
	until *time.Time // when the next execution started; nil means none has
	none  bool       // the execution never ran
}

// partOf returns the part of an execution, of the attempt or of an agent of a run. If after is before the
// part's first entry, it becomes the index before that entry.
func (e *Engine) partOf(
	ctx context.Context, b board.View, a *task.Attempt, id string, after **int64,
) (s logPart, err error) {
	all, err := b.Executions(ctx, a.ID)
	if err == nil && a.Run != nil {
		var steps []task.Execution
		steps, err = b.Steps(ctx, a.ID)
		all = append(all, steps...)
	}
	if err != nil {
		return s, board.AttemptFault("reading the executions", err, a.ID)
	}
	i := slices.IndexFunc(all, func(x task.Execution) bool { return x.ID == id })
	if i < 0 {
		list := "get_attempt"
		if a.Run != nil {
			list = "get_run"
		}
		return s, session.Wrong(codes.UnknownExecution, "Attempt %s has no execution %s.", a.ID, id).
			Next("see its executions", list, "attempt_id", a.ID).With("argument", "execution_id").With("value", id)
	}
	x := all[i]
	s = logPart{log: logOfExecution(&x), state: x.State, none: x.StartedAt == nil}

	if s.none {
		return s, nil
	}

	earlier := false
	for j, other := range all {
		switch {
		case other.LogID != x.LogID || other.StartedAt == nil || i == j:
		case j < i:
			s.until = other.StartedAt // the oldest of them
		default:
			earlier = true
		}
	}
	switch {
	case *after != nil && **after >= 0: // after is a next_index
	case !earlier: // the first execution has what precedes its start
		*after = new(int64(-1))
	default:
		s.began = x.StartedAt
		*after, err = e.lastBefore(ctx, b, a, s.log, *x.StartedAt)
	}

	return s, err
}

// lastBefore returns the index of the last entry of a log before a moment.
func (e *Engine) lastBefore(
	ctx context.Context, b board.View, a *task.Attempt, log logRef, moment time.Time,
) (*int64, error) {
	for after := int64(-1); ; {
		entries, next, err := e.tail(ctx, b, a, log, &after, runner.MaxTail, 0)
		if err != nil {
			return nil, board.Fault("reading the attempt's log", err)
		}
		if i := slices.IndexFunc(entries, func(x runner.Entry) bool { return !x.Time.Before(moment) }); i >= 0 {
			return new(entries[i].Index - 1), nil
		}
		after = next
		if len(entries) == 0 {
			return &after, nil
		}
	}
}

// cut removes entries before and after the part. It reports whether it has removed them all.
func (s *logPart) cut(entries *[]runner.Entry) bool {
	n := len(*entries)
	*entries = slices.DeleteFunc(*entries, func(x runner.Entry) bool {
		return s.until != nil && !x.Time.Before(*s.until) || s.began != nil && x.Time.Before(*s.began)
	})
	return n > 0 && len(*entries) == 0
}

// executionsReply lists executions with the beginnings of their texts, and their costs by id.
func executionsReply(all []task.Execution, costs map[string]*board.ExecutionCost) []Execution {
	brief := func(s *string) *string {
		if s == nil {
			return nil
		}
		return new(jsontext.Clip(*s, 400))
	}

	r := make([]Execution, len(all))
	for i, x := range all {
		r[i] = Execution{
			ExecutionID:  x.ID,
			State:        board.ExecutionState(x.State),
			Prompt:       jsontext.Clip(x.Prompt, 400),
			ExitCode:     x.ExitCode,
			FinalMessage: brief(x.FinalMessage),
			Error:        brief(x.Error),
			StartedAt:    board.StampOrNull(x.StartedAt),
			EndedAt:      board.StampOrNull(x.EndedAt),
			Cost:         costs[x.ID],
			Why:          board.WhyOf(&x).Sentence(),
		}
	}

	return r
}
