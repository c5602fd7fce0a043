package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"deepwork/catalog/jsontext"
	"deepwork/catalog/source"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/remote"
	"deepwork/session/store"
)

const (
	// sourcesTopic is the topic of what sources offer, and of the progress of executions.
	sourcesTopic = "sources"
	// maxTools is how many workflows of a source a page lists, maxExecutions how many executions.
	maxTools      = 100
	maxExecutions = 50
	// maxResult is how much of a result a page shows, in bytes.
	maxResult = 64 << 10
)

type sourcesPage struct {
	Sources    []sourceView
	Unused     []source.Skipped // of no source that is listed
	Executions []remote.Run
	More       int // older executions
}

type sourceView struct {
	source.SourceState
	Tools   []*source.Tool
	More    int // tools that are left out
	Skipped []source.Skipped
}

// State says in a word how a source is.
func (v sourceView) State() string {
	switch {
	case v.Err != nil && v.Connected:
		return "in trouble"
	case v.Connected:
		return "connected"
	case v.Err != nil:
		return "away"
	}
	return "connecting"
}

var errNoSources = session.NotNow(codes.NoSources,
	"This server does not offer workflows of other systems: start it with the toolset remote.")

func (s *Site) sources(ctx context.Context, who session.Caller, _ *http.Request) (*shown, error) {
	now, unused := s.Sources.Offer(ctx)
	p := &sourcesPage{Unused: unused}
	for _, state := range now.Sources {
		v := sourceView{SourceState: state}
		for _, t := range now.Tools {
			switch {
			case t.Source != state.Name:
			case len(v.Tools) == maxTools:
				v.More++
			default:
				v.Tools = append(v.Tools, t)
			}
		}
		for _, skipped := range now.Skipped {
			if skipped.Source == state.Name {
				v.Skipped = append(v.Skipped, skipped)
			}
		}
		p.Sources = append(p.Sources, v)
	}

	list, total, err := s.Sources.Runs.Newest(ctx, who.Identity, maxExecutions)
	if err != nil {
		return nil, err
	}
	p.Executions, p.More = list, total-len(list)
	return &shown{
		view:   "sources",
		title:  "Sources",
		data:   p,
		topics: []string{sourcesTopic, store.RemoteRunChanged, configTopic},
	}, nil
}

type executionPage struct {
	*remote.Run
	Text string // the result, indented
	Cut  bool
}

func (s *Site) execution(ctx context.Context, who session.Caller, r *http.Request) (*shown, error) {
	x, err := s.Sources.Runs.Status(ctx, who.Identity, r.PathValue("id"))
	if err != nil {
		refused, ok := errors.AsType[*session.Error](err)
		if !ok {
			return nil, err
		}
		told, ok := refused.Details["run"].(*remote.Run)
		if !ok {
			return nil, err
		}
		x = told // which cannot be asked for its state
	}
	p := &executionPage{Run: x}
	text, ok := indented(x.Result)
	if !ok {
		text = string(x.Result)
	}
	p.Cut, p.Text = len(text) > maxResult, jsontext.Clip(text, maxResult)
	return &shown{
		view:   "execution",
		title:  x.WorkflowName,
		data:   p,
		topics: []string{sourcesTopic, store.RemoteRunChanged + ":" + x.ExecutionID},
	}, nil
}

func (s *Site) refreshSources(ctx context.Context, who session.Caller, _ *http.Request) (string, error) {
	reply, err := s.Sources.Refresh(ctx)
	s.Touch(sourcesTopic)
	if err != nil {
		return "", err
	}

	var said []string
	for _, of := range []struct {
		what  string
		names []string
	}{{"New", reply.Added}, {"Gone", reply.Removed}, {"Changed", reply.Changed}} {
		if n := len(of.names); n > 0 {
			said = append(said, fmt.Sprintf("%s (%d): %s", of.what, n, strings.Join(of.names[:min(n, 20)], ", ")))
		}
	}
	if len(said) == 0 {
		said = []string{"Nothing has changed."}
	}
	return s.withNotice(who, "/sources", strings.Join(said, "\n")), nil
}

func (s *Site) cancelExecution(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	x, err := s.Sources.Runs.Cancel(ctx, who.Identity, r.PathValue("id"))
	if err != nil {
		return "", err
	}
	s.Touch(sourcesTopic)
	return s.withNotice(who, back(r, "/sources"), fmt.Sprintf("%s: %s", x.WorkflowName, x.State)), nil
}
