package page

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"unicode/utf8"

	"deepwork/actor/durable"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/codes"
	"deepwork/session/judging"
	"deepwork/session/outputs"
	"deepwork/session/show"
	"deepwork/session/store"
)

// maxMessages is how many messages of an agent a page shows.
const maxMessages = 200

const (
	// maxTalk is how many bytes of a page the messages may take, about.
	maxTalk = 25_000
	// maxMessage is how many bytes of a message a page shows.
	maxMessage = 8000
	// messageBytes is what a message takes in addition to its text.
	messageBytes = 350
)

// A message is one of an agent's. Result is what its tool_call returned, nil if unknown.
type message struct {
	attempt.Message
	Result *attempt.Message
}

// messages reads the newest messages, or those of the execution that the URL names.
func (s *Site) messages(ctx context.Context, who session.Caller, r *http.Request, p *workPage) error {
	args := attempt.TailArgs{Target: onAttempt(r), Limit: new(maxMessages)}
	if id := p.Of; id != "" {
		args.ExecutionID, args.AfterIndex = &id, new(int64(-1))
		if after, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64); err == nil {
			args.AfterIndex = &after
		} else if p.Run != nil {
			args.AfterIndex, args.Newest = nil, true
		}
		for i := range p.Executions {
			if p.Executions[i].ExecutionID == id {
				p.Shown = &p.Executions[i]
			}
		}
	}
	tail, err := s.Board.TailAttempt(ctx, who, args)
	if err != nil {
		return err
	}
	fits, cut := fitting(tail.Messages, args.AfterIndex == nil)
	p.Messages, p.Newest = joined(fits), args.AfterIndex == nil
	switch {
	case len(fits) == 0:
	case args.AfterIndex == nil:
		switch more := cut || len(tail.Messages) == maxMessages; {
		case more && args.ExecutionID != nil:
			p.Older = *args.ExecutionID
		case more && len(p.Executions) > 0:
			p.Older = p.Executions[0].ExecutionID
		}
	case cut:
		p.Next = fits[len(fits)-1].Index
	case len(tail.Messages) == maxMessages:
		p.Next = tail.NextIndex
	}

	return nil
}

// fitting returns the messages that fit on a page, the newest or the oldest, and whether that leaves out
// others. Those of one line of output stay together.
func fitting(all []attempt.Message, newest bool) (fits []attempt.Message, cut bool) {
	all = slices.Clone(all)
	left := maxTalk
	size := func(m *attempt.Message) int {
		m.Text = jsontext.Clip(m.Text, maxMessage)
		return messageBytes + sizeOf(m.Text)
	}
	if newest {
		i := len(all)
		for i > 0 && left > 0 {
			i--
			left -= size(&all[i])
		}
		return all[i:], i > 0
	}

	n := 0
	for n < len(all) && (left > 0 || all[n].Index == all[n-1].Index) {
		left -= size(&all[n])
		n++
	}
	return all[:n], n < len(all)
}

// joined merges successive lines of the same kind, and each tool_call with its tool_result.
func joined(all []attempt.Message) (out []message) {
	calls := map[string]int{} // where in out they are
	for i, m := range all {
		if at, ok := calls[m.CallID]; ok && m.Kind == "tool_result" {
			out[at].Result = &all[i]
			continue
		}

		last := len(out) - 1
		if last >= 0 && out[last].Kind == m.Kind && (m.Kind == "output" || m.Kind == "system" || m.Kind == "stderr") {
			out[last].Text += "\n" + m.Text
			continue
		}
		if m.Kind == "tool_call" && m.CallID != "" {
			calls[m.CallID] = len(out)
		}
		out = append(out, message{Message: m})
	}
	return out
}

// maxOutput is how much of an output a page shows, in bytes.
const maxOutput = 64 << 10

type outputPage struct {
	SessionID, Path string
	Text            string
	Size            int64
	Cut, Binary     bool
}

// output shows a file that a session has delivered, as it is now.
func (s *Site) output(ctx context.Context, who session.Caller, r *http.Request) (*shown, error) {
	p, err := s.readSession(ctx, who, r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	path := r.URL.Query().Get("path")
	if !delivered(p, path) {
		return nil, session.Wrong(codes.UnknownOutput, "Session %s has delivered no file %q.", p.ID, path)
	}
	file, fi, err := durable.OpenIn(p.State.RootOf(p.Root, r.URL.Query().Get("step")), path)
	if err != nil {
		return nil, session.NotNow(codes.UnreadableOutput, "The file cannot be read now: %v.", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxOutput))
	if err != nil {
		return nil, err
	}

	v := &outputPage{SessionID: p.ID, Path: path, Size: fi.Size(), Cut: fi.Size() > maxOutput}
	for v.Cut && len(data) > 0 && !utf8.Valid(data[len(data)-1:]) { // in the middle of a character
		data = data[:len(data)-1]
	}
	if v.Binary = !utf8.Valid(data) || slices.Contains(data, 0); !v.Binary {
		v.Text = show.Exact(string(data))
	}
	return &shown{view: "output", title: path, data: v, topics: []string{store.SessionChanged + ":" + p.ID}}, nil
}

// delivered reports whether a session has an output of this path, in a step or in a review.
func delivered(p *sessionView, path string) bool {
	has := func(all outputs.Map) bool {
		return slices.ContainsFunc(all, func(o jsontext.Pair[outputs.Value]) bool {
			return slices.Contains(o.Value.Paths, path)
		})
	}
	for _, e := range p.State.StepProgress {
		if has(e.Value.Outputs) ||
			slices.ContainsFunc(e.Value.Submissions, func(u *judging.Submission) bool { return has(u.Outputs) }) {
			return true
		}
	}

	return false
}
