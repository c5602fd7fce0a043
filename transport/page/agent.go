package page

import (
	"context"
	"net/http"

	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/store"
)

// An agentPage shows one process of an agent of a run.
type agentPage struct {
	attemptPage
	Agent *board.RunStep
}

// agent returns the page of the process that the URL names, or nil if it is not one of an agent of the run.
func (s *Site) agent(ctx context.Context, who session.Caller, r *http.Request, p *attemptPage) (*shown, error) {
	for i, x := range p.Run.RunReply.Steps {
		if x.ExecutionID != r.URL.Query().Get("execution") {
			continue
		}
		v := &agentPage{*p, &p.Run.RunReply.Steps[i]}
		if err := s.messages(ctx, who, r, &v.attemptPage); err != nil {
			return nil, err
		}
		return &shown{view: "agent", title: x.StepID + " · " + p.Task.Title, data: v, on: []string{store.AttemptChanged + ":" + p.AttemptID, outputTopic + ":" + p.AttemptID}}, nil
	}
	return nil, nil
}
